"""Storing of copy workers' reports in rows: offsets, totals, rates."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.reconciling.sampling import note_in_sync, raise_complete_at, store_progress
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from tests.console.conftest import NOW

MS = int(NOW.timestamp() * 1000)


def report(after_ms: int = 0, **values: Any) -> PartitionProgress:
    at_ms = MS + after_ms
    defaults: dict[str, Any] = {"key": "k", "copy_run_id": "s", "phase": PartitionPhase.COPYING, "observed_at_ms": at_ms}
    if "source_end" in values:
        defaults["source_seen_at_ms"] = at_ms
    return PartitionProgress(**{**defaults, **values})


@pytest.fixture
def row(mirror: MirrorTopic) -> MirrorPartition:
    return mirror.partitions.get(partition=0)


def store(row: MirrorPartition, *reports: PartitionProgress, after_s: float = 0) -> bool:
    """Apply reports to the row in memory, as a reconcile pass does, whether or not they are stored."""
    return store_progress(rows={"k": row}, reports=reports, now=NOW + timedelta(seconds=after_s))


def test_a_failed_attempt_is_counted_once(row: MirrorPartition) -> None:
    counted = []
    for after_ms, failed_ms in [(0, None), (1000, 700), (2000, 700), (3000, 2500)]:
        failed_at = None if failed_ms is None else MS + failed_ms
        seen = report(after_ms, phase=PartitionPhase.SOURCE_UNREACHABLE, failed_at_ms=failed_at)
        for _ in range(2):  # the same report is read until a newer report exists
            store(row, seen, after_s=after_ms / 1000)
            counted.append(row.failed_again)

    assert counted == [False, False, True, False, False, False, True, False]


def test_a_report_is_stored_once(row: MirrorPartition) -> None:
    seen = report(source_end=40, mirror_end=30, last_fetch_offset=33, caught_up_at_ms=MS, bytes_copied=100, records_copied=20)

    assert store(row, seen)
    assert not store(row, seen)

    assert (row.source_end, row.mirror_end, row.last_source_fetch_offset) == (40, 30, 33)
    assert (row.bytes_copied, row.records_copied, row.phase, row.caught_up_at) == (100, 20, "COPYING", NOW)


@pytest.mark.parametrize(("found", "kept"), [(31, 30), (28, 28)], ids=["longer", "shorter"])
def test_an_unproven_end_does_not_raise_the_mirrors_end(row: MirrorPartition, found: int, kept: int) -> None:
    """Later records may be foreign writes, and a failover relies on the row. A lower end is stored: records were lost."""
    store(row, report(mirror_end=30))

    store(row, report(1000, unproven_end=found), after_s=1)

    assert row.mirror_end == kept


@pytest.mark.parametrize(("stopped_end", "code"), [(None, "MIRROR_WAS_STOPPED"), (30, "")])
def test_a_reported_fence_is_an_error_only_if_no_stop_was_recorded(
    row: MirrorPartition, stopped_end: int | None, code: str
) -> None:
    row.stopped_end = stopped_end
    row.save()

    store(row, report(phase=PartitionPhase.RELEASED, error_code="MIRROR_WAS_STOPPED", error_message="Stopped."))

    assert (row.error_code, bool(row.error_message)) == (code, bool(code))


def test_error_that_is_reported_after_the_stop_is_not_shown(row: MirrorPartition) -> None:
    row.stopped_end = 30
    row.save()

    store(row, report(phase=PartitionPhase.SOURCE_UNREACHABLE, error_code="TIMEOUT_ERROR", error_message="No response."))

    assert (row.error_code, row.error_message) == ("", "")


def test_values_that_are_unknown_in_a_report_stay(row: MirrorPartition) -> None:
    store(row, report(source_end=40, mirror_end=30))
    store(row, report(500, copy_run_id="next", phase=PartitionPhase.WAITING))

    assert (row.source_end, row.mirror_end, row.phase) == (40, 30, "WAITING")


def test_the_source_epoch_is_kept_until_the_next_report_with_an_epoch(row: MirrorPartition) -> None:
    store(row, report(mirror_end=30, source_epoch=4))
    store(row, report(after_ms=500, mirror_end=35))  # by a worker that has not read yet

    assert (row.source_epoch, row.source_epoch_end) == (4, 30)


def test_a_lag_that_is_no_longer_measured_becomes_unknown(row: MirrorPartition) -> None:
    store(row, report(source_end=40, mirror_end=40))
    store(row, after_s=14)
    assert row.source_end == 40

    assert store(row, after_s=16)
    assert [row.lag, row.source_end, row.last_source_end] == [None, None, 40]


def test_a_time_in_the_future_is_ignored_and_does_not_block_later_reports(row: MirrorPartition) -> None:
    hour_ms = 3_600_000  # the clock was set back by this much afterwards
    store(row, report(hour_ms, source_end=40, mirror_end=40, caught_up_at_ms=MS + hour_ms, bytes_copied=9))
    assert (row.lag, row.caught_up_at, row.observed_at, row.last_source_seen_at) == (None, None, None, None)

    MirrorPartition.objects.update(observed_at=NOW + timedelta(hours=1), bytes_per_s=5.0)
    row.refresh_from_db()
    store(row, report(500, source_end=41, mirror_end=40, caught_up_at_ms=MS), after_s=1)
    assert (row.source_end, row.caught_up_at, row.observed_at) == (41, NOW, NOW + timedelta(seconds=0.5))


def test_a_report_read_again_with_another_clock_is_not_new(row: MirrorPartition) -> None:
    store(row, report(500, mirror_end=500))
    store(row, report(530, mirror_end=530))
    assert row.mirror_end == 500

    store(row, report(560, phase=PartitionPhase.RELEASED, mirror_end=530))
    assert row.phase == "RELEASED"


@pytest.mark.parametrize("phase", [PartitionPhase.RELEASED, PartitionPhase.FAILED])
def test_after_an_orderly_end_the_last_lag_is_kept_for_a_handover_only(row: MirrorPartition, phase: PartitionPhase) -> None:
    store(row, report(source_end=40, mirror_end=40, phase=phase))
    store(row, after_s=14)
    assert row.source_end == 40

    store(row, after_s=16)
    assert [row.source_end, row.last_source_end, row.lag] == [None, 40, None]


def test_a_repeated_source_end_is_as_old_as_its_first_reading(row: MirrorPartition) -> None:
    for after_ms in range(0, 17_000, 500):  # the broker does not respond, or the partition's copy run has ended
        repeated = report(after_ms, source_end=40, mirror_end=40, source_seen_at_ms=MS)
        store(row, repeated, after_s=after_ms / 1000)

    assert (row.lag, row.source_end, row.last_source_end, row.last_source_seen_at) == (None, None, 40, NOW)
    assert row.complete_at == NOW


def test_reports_of_a_waiting_worker_do_not_keep_an_old_lag(row: MirrorPartition) -> None:
    store(row, report(source_end=40, mirror_end=40))
    store(row, report(16_000, copy_run_id="next", phase=PartitionPhase.WAITING), after_s=16)
    assert row.source_end is None


@pytest.mark.parametrize("phase", [PartitionPhase.SOURCE_UNREACHABLE, PartitionPhase.LINK_BROKEN])
def test_lag_is_unknown_while_the_source_is_unreachable(row: MirrorPartition, phase: PartitionPhase) -> None:
    store(row, report(source_end=40, mirror_end=40))
    assert row.source_end == 40

    store(row, report(500, phase=phase, mirror_end=40))
    assert row.lag is None

    store(row, report(1000, phase=PartitionPhase.RELEASED, mirror_end=40))
    assert row.lag is None


def test_totals_grow_over_copy_runs_and_ignore_an_older_report_of_a_run(row: MirrorPartition) -> None:
    store(row, report(bytes_copied=100))
    store(row, report(500, bytes_copied=150))
    store(row, report(1000, bytes_copied=30, copy_run_id="next"))
    store(row, report(1500, bytes_copied=40, copy_run_id="next"))
    store(row, report(2000, bytes_copied=5, copy_run_id="next"))  # older than the last counted report
    assert row.bytes_copied == 150 + 40

    store(row, report(2500, bytes_copied=5, copy_run_id="after a restart"))  # a restarted worker begins a new run
    store(row, report(3000, bytes_copied=8, copy_run_id="after a restart"))
    assert row.bytes_copied == 150 + 40 + 8


def test_two_workers_that_report_alternately_are_counted_once(row: MirrorPartition) -> None:
    for after_ms, copy_run_id, copied in [(0, "first", 100), (500, "second", 10), (1000, "first", 130), (1500, "second", 15)]:
        store(row, report(after_ms, bytes_copied=copied, records_copied=copied, copy_run_id=copy_run_id))

    assert (row.bytes_copied, row.records_copied) == (130 + 15, 130 + 15)


@pytest.mark.parametrize(("copy_run_id", "total"), [("first", 130 + 10), ("second", 100 + 130), ("older", 100 + 10)])
def test_an_ending_adds_the_records_that_were_not_reported_before(row: MirrorPartition, copy_run_id: str, total: int) -> None:
    store(row, report(bytes_copied=100, copy_run_id="first"))
    store(row, report(500, bytes_copied=10, copy_run_id="second"))
    for _ in range(2):  # an ending is read until it is deleted
        ending = report(400, bytes_copied=130, copy_run_id=copy_run_id)
        store_progress(rows={"k": row}, reports=[], endings=[ending], now=NOW)

    row.refresh_from_db()  # the kept report is deleted now, so the row is stored immediately
    assert (row.bytes_copied, row.copy_run_id) == (total, "second")


def test_a_silent_partition_has_no_rate(row: MirrorPartition) -> None:
    store(row, report())
    store(row, report(500, bytes_per_s=1000.0))

    assert not store(row, after_s=3)
    assert row.bytes_per_s == 1000
    assert store(row, after_s=6)
    assert row.bytes_per_s is None
    assert not store(row, after_s=7)


def test_offsets_read_at_different_times_do_not_violate_the_database_constraint(row: MirrorPartition) -> None:
    store(row, report(mirror_start=50))

    assert (row.mirror_start, row.mirror_end) == (None, 10)


def test_missing_rows_of_partitions_are_created(mirror: MirrorTopic) -> None:
    mirror.num_partitions = 5

    rows = mirror.ensure_partitions()

    assert [row.partition for row in rows] == [0, 1, 2, 3, 4]
    assert all(row.pk for row in rows)
    assert rows[4].source_end is None
    assert [row.pk for row in mirror.ensure_partitions()] == [row.pk for row in rows]


def test_hundreds_of_reports_take_few_queries(mirror: MirrorTopic, django_assert_max_num_queries: Any) -> None:
    mirror.num_partitions = 300
    rows = {str(row.partition): row for row in mirror.ensure_partitions()}
    reports = [report(key=key, source_end=1) for key in rows]

    with django_assert_max_num_queries(12):
        store_progress(rows=rows, reports=reports, now=NOW)


def test_the_high_watermark_is_stored_with_the_end_it_was_read_with(row: MirrorPartition) -> None:
    store(row, report(source_end=40, source_high_watermark=90, mirror_end=30))
    store(row, report(500, phase=PartitionPhase.SOURCE_UNREACHABLE), after_s=1)
    assert (row.source_end, row.last_source_end, row.last_high_watermark, row.missing) == (None, 40, 90, None)

    store(row, report(1_000, source_end=40, mirror_end=40), after_s=2)  # from a copy worker that does not report it
    assert (row.last_source_end, row.last_high_watermark) == (40, None)


def written(row: MirrorPartition, *reports: PartitionProgress, after_s: float) -> bool:
    """Do what a reconcile pass does: read the row and apply reports; return whether the row was stored."""
    fresh = MirrorPartition.objects.get(pk=row.pk)
    with CaptureQueriesContext(connection) as queries:
        store_progress(rows={"k": fresh}, reports=reports, now=NOW + timedelta(seconds=after_s))
    return any("UPDATE" in query["sql"] for query in queries)


def level(after_s: int, **values: Any) -> PartitionProgress:
    at_ms = MS + after_s * 1000
    known = {"source_end": 40, "mirror_end": 40, "source_high_watermark": 40, "caught_up_at_ms": at_ms, **values}
    return report(after_s * 1000, **known)


def test_an_idle_partition_is_stored_once(row: MirrorPartition) -> None:
    assert [written(row, level(second), after_s=second) for second in range(30)] == [True] + 29 * [False]


def test_a_partition_that_copies_records_is_sampled_every_ten_seconds(row: MirrorPartition) -> None:
    moving = [written(row, level(second, mirror_end=40 + second, bytes_copied=second), after_s=second) for second in range(35)]

    assert [second for second, stored in enumerate(moving) if stored] == [0, 10, 20, 30]


def test_partitions_stored_longest_ago_are_sampled_first(mirror: MirrorTopic) -> None:
    mirror.num_partitions = 4
    rows = {f"k{row.partition}": row for row in mirror.ensure_partitions()}
    for number, (key, row) in enumerate(rows.items()):
        store_progress(rows={key: row}, reports=[replace(level(number), key=key)], now=NOW + timedelta(seconds=number))

    moved = [replace(level(20, bytes_copied=1), key=key) for key in rows]
    store_progress(rows=rows, reports=moved, now=NOW + timedelta(seconds=20), samples=2)

    stored = MirrorPartition.objects.filter(mirror=mirror, bytes_copied=1).order_by("partition")
    assert [row.partition for row in stored] == [0, 1]


@pytest.mark.parametrize(
    "news",
    [
        {"phase": PartitionPhase.SOURCE_UNREACHABLE},
        {"error_code": "CORRUPT_RECORDS", "error_message": "Corrupt."},
        {"copy_run_id": "next"},
        {"source_epoch": 5},
        {"mirror_end": 30},
        {"failed_at_ms": MS + 900},
    ],
    ids=["phase", "error", "owner", "leader epoch", "set-back", "another failure"],
)
def test_a_report_to_act_on_or_to_keep_is_stored_immediately(row: MirrorPartition, news: dict[str, Any]) -> None:
    store(row, level(0))

    assert written(row, level(1, **news), after_s=1)


def test_the_last_report_of_a_silent_partition_is_stored(row: MirrorPartition) -> None:
    store(row, level(0))
    last = level(8, mirror_end=47, bytes_copied=9)
    assert not written(row, last, after_s=8)

    assert written(row, last, after_s=20)  # no report of the last ten seconds shows that it was in sync
    row.refresh_from_db()
    assert (row.mirror_end, row.bytes_copied, row.behind) == (47, 9, True)


def test_all_partitions_of_a_stopping_mirror_are_stored(row: MirrorPartition) -> None:
    store(row, level(0))

    store_progress(rows={"k": row}, reports=[level(1, mirror_end=41)], now=NOW + timedelta(seconds=1), at_once={row.mirror_id})

    assert MirrorPartition.objects.get(pk=row.pk).mirror_end == 41


def test_the_time_of_being_in_sync_is_stored_once_for_idle_partitions(row: MirrorPartition, link: ClusterLink) -> None:
    for second in (0, 5, 3600):
        fresh = MirrorPartition.objects.get(pk=row.pk)
        raise_complete_at(link, [fresh])
        store_progress(rows={"k": fresh}, reports=[level(second)], now=NOW + timedelta(seconds=second))
        note_in_sync(link, [fresh], now=NOW + timedelta(seconds=second))
    link.refresh_from_db()

    assert link.in_sync_at == NOW + timedelta(seconds=3600)
    assert MirrorPartition.objects.get(pk=row.pk).complete_at == NOW


def test_a_partition_that_falls_behind_is_stored_with_the_time_of_its_link(row: MirrorPartition, link: ClusterLink) -> None:
    store(row, level(0))
    link.in_sync_at = NOW + timedelta(seconds=100)
    fresh = MirrorPartition.objects.get(pk=row.pk)
    raise_complete_at(link, [fresh])

    behind = report(120_000, source_end=90, mirror_end=40, source_high_watermark=90)
    store_progress(rows={"k": fresh}, reports=[behind], now=NOW + timedelta(seconds=120))

    row.refresh_from_db()
    assert (row.behind, row.complete_at) == (True, link.in_sync_at)


@pytest.mark.parametrize("phase", [PartitionPhase.RELEASED, PartitionPhase.SOURCE_UNREACHABLE])
def test_a_partition_that_is_not_copied_counts_as_behind(row: MirrorPartition, phase: PartitionPhase) -> None:
    """Otherwise a paused mirror would count as in sync as long as other mirrors of its link are."""
    store(row, level(0))

    assert written(row, level(1, phase=phase), after_s=1)

    row.refresh_from_db()
    assert (row.phase, row.behind) == (phase, True)

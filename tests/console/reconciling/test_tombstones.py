"""A mirror that was behind for longer than its source keeps tombstones raises the alarm and is verified again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from console.models import AuditEvent, ClusterLink, MirrorPartition, MirrorTopic, RestoreRun, VerifyRun
from console.models.mirrors import TOMBSTONES_MISSED
from console.reconciling import coverage, gaps, transition_errors
from console.reconciling.plans import mirror_key
from console.reconciling.sampling import note_in_sync, raise_complete_at, store_progress
from console.workflows import reverse_and_restore
from console.workflows.mirrors import note_synced
from console.workflows.verifying import _comparison
from linkengine import jobs
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSynced
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror
from tests.console.reconciling.test_coverage import checked, ledger, report

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "3600000"}
DELETED = {"cleanup.policy": "delete", "delete.retention.ms": "3600000"}
HOUR, DAYS = timedelta(hours=1), timedelta(days=3)


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    """Return a mirror of a compacted topic that is complete, and verified, up to offset 10."""
    mirror = make_mirror(partitions=1, source_configs=COMPACTED, mirror_topic_id="mirror-id")
    see(mirror, NOW, mirror_end=10, source_end=10)
    coverage.note_report(mirror=mirror, report=report(checked(0, 10)), now=NOW)
    return MirrorTopic.objects.get(pk=mirror.pk)


def see(mirror: MirrorTopic, at: datetime, **values: Any) -> None:
    """Process a report as a reconcile pass does."""
    key = f"{mirror_key(mirror)}/0"
    at_ms = int(at.timestamp() * 1000)
    fixed = {
        "key": key,
        "copy_run_id": "s",
        "phase": PartitionPhase.COPYING,
        "observed_at_ms": at_ms,
        "source_seen_at_ms": at_ms,
    }
    reports, rows = [PartitionProgress(**{**fixed, **values})], {key: MirrorPartition.objects.get(mirror=mirror, partition=0)}
    mirrors = MirrorTopic.objects.filter(pk=mirror.pk).prefetch_related("transition_errors")
    link = ClusterLink.objects.get(pk=mirror.link_id)
    raise_complete_at(link, rows.values())
    gaps.note_lateness(mirrors=mirrors, rows=rows, reports=reports, now=at)
    store_progress(rows=rows, reports=reports, now=at)
    note_in_sync(link, rows.values(), now=at)


def read_configs(mirror: MirrorTopic, at: datetime, configs: dict[str, str], *, late: bool = True) -> None:
    """Process source configs as a run of the config sync does; ``late``: whether the run found stored lateness."""
    synced = MirrorSynced(partitions=1, source_partitions=1, source_configs=configs)
    note_synced(MirrorTopic.objects.get(pk=mirror.pk), synced, now=at, queried_at=at if late else None)


def compare(mirror: MirrorTopic, began: datetime, *, differences: int = 0, row: MirrorTopic | None = None) -> None:
    run = VerifyRun.objects.create(mirror=mirror, requested_by="owner", requested_at=began, started_at=began)
    found = report(checked(0, 300, differences=differences))
    coverage.note_report(mirror=row or MirrorTopic.objects.get(pk=mirror.pk), report=found, run=run, now=began + HOUR)


def alarms(mirror: MirrorTopic) -> list[str]:
    return [error.code for error in mirror.transition_errors.all()]


def test_copying_after_the_tombstones_are_gone_raises_the_alarm_and_removes_verified_ranges(mirror: MirrorTopic) -> None:
    back = NOW + timedelta(days=3)

    see(mirror, back, mirror_end=300, source_end=300, copy_run_id="after the weekend")

    (error,) = mirror.transition_errors.all()
    assert error.code == TOMBSTONES_MISSED
    assert "from 2026-01-01 12:00:00 UTC on (partition 0)" in error.message
    assert "delete.retention.ms=3600000" in error.message
    assert ledger(mirror) == []
    transition_errors.clear(mirrors=[mirror], now=NOW)
    assert alarms(mirror) == [TOMBSTONES_MISSED]


@pytest.mark.parametrize(
    ("configs", "away", "values"),
    [
        (COMPACTED, HOUR, {"mirror_end": 300, "source_end": 300}),
        (COMPACTED, timedelta(days=3), {"mirror_end": 10, "source_end": 10}),
        ({"cleanup.policy": "delete", "delete.retention.ms": "1"}, timedelta(days=3), {"mirror_end": 300, "source_end": 300}),
        ({"cleanup.policy": "compact"}, timedelta(hours=23), {"mirror_end": 300, "source_end": 300}),
        (COMPACTED | {"delete.retention.ms": "0"}, timedelta(seconds=9), {"mirror_end": 300, "source_end": 300}),
        (COMPACTED | {"delete.retention.ms": str(2**63 - 1)}, timedelta(days=3), {"mirror_end": 300, "source_end": 300}),
    ],
    ids=[
        "in time",
        "nothing was written",
        "not compacted",
        "Kafka's default",
        "handover between workers",
        "unlimited retention",
    ],
)
def test_a_mirror_that_missed_no_tombstones_keeps_its_verified_ranges(
    mirror: MirrorTopic, configs: dict[str, str], away: timedelta, values: dict[str, int]
) -> None:
    MirrorTopic.objects.update(source_configs=configs)

    see(mirror, NOW + away, **values)

    assert (alarms(mirror), ledger(mirror)) == ([], [(0, 0, 10, 10)])


def test_a_first_copy_that_takes_too_long_raises_the_alarm_and_is_verified_again_once_complete(make_mirror: MakeMirror) -> None:
    mirror = make_mirror(partitions=1, source_configs=COMPACTED)
    for minutes in range(0, 90, 10):
        see(mirror, NOW + timedelta(minutes=minutes), mirror_end=10 + minutes, source_end=300)
        assert bool(alarms(mirror)) is (minutes > 60)
    coverage.note_report(mirror=mirror, report=report(checked(0, 90)), now=NOW)

    see(mirror, NOW + timedelta(minutes=90), mirror_end=300, source_end=310)
    assert ledger(mirror) == [(0, 0, 90, 90)]  # not complete yet
    see(mirror, NOW + timedelta(minutes=91), mirror_end=300, source_end=300)
    assert ledger(mirror) == []


def test_records_after_an_open_transaction_are_not_cleaned_and_may_be_copied_late(mirror: MirrorTopic) -> None:
    for hours in range(1, 30):
        see(mirror, NOW + hours * HOUR, mirror_end=10, source_end=10, source_high_watermark=300)
    see(mirror, NOW + 30 * HOUR, mirror_end=300, source_end=300, source_high_watermark=300)

    assert alarms(mirror) == []


def test_only_a_verification_run_that_started_after_the_last_late_record_ends_the_alarm(mirror: MirrorTopic) -> None:
    late, later = NOW + 5 * HOUR, NOW + 6 * HOUR
    see(mirror, late, mirror_end=100, source_end=300)
    before = MirrorTopic.objects.get(pk=mirror.pk)
    see(mirror, later, mirror_end=300, source_end=300)

    compare(mirror, late, row=before)
    assert (alarms(mirror), ledger(mirror)) == ([TOMBSTONES_MISSED], [])
    compare(mirror, later + HOUR, differences=1)
    assert TOMBSTONES_MISSED in alarms(mirror)

    compare(mirror, later + HOUR)
    assert (alarms(mirror), ledger(mirror)) == ([], [(0, 0, 300, 300)])
    event = AuditEvent.objects.get(action="EndTombstoneAlarm")
    assert event.detail["requested_by"] == "owner"


def test_continuous_verification_that_started_before_the_alarm_adds_only_ranges_that_differ(mirror: MirrorTopic) -> None:
    before = MirrorTopic.objects.get(pk=mirror.pk)
    see(mirror, NOW + 5 * HOUR, mirror_end=300, source_end=300)

    coverage.note_report(mirror=before, report=report(checked(10, 20), checked(20, 30, differences=2)), now=NOW)
    assert ledger(mirror) == [(0, 20, 30, 10)]

    coverage.note_report(mirror=MirrorTopic.objects.get(pk=mirror.pk), report=report(checked(0, 20)), now=NOW)
    assert ledger(mirror) == [(0, 0, 20, 20), (0, 20, 30, 10)]
    assert TOMBSTONES_MISSED in alarms(mirror)


def test_creating_the_topic_anew_ends_the_alarm(mirror: MirrorTopic) -> None:
    see(mirror, NOW + 5 * HOUR, mirror_end=300, source_end=300)
    made: dict[str, Any] = {"partitions": 1, "read_only": True, "source_configs": {}}

    coverage.keep_for(
        mirror=mirror, made=MirrorCreated(source_topic_id="of another side", mirror_topic_id="mirror-id", **made), now=NOW
    )
    assert alarms(mirror) == [TOMBSTONES_MISSED]
    coverage.keep_for(mirror=mirror, made=MirrorCreated(source_topic_id="topic-id", mirror_topic_id="new", **made), now=NOW)
    assert alarms(mirror) == []


@pytest.mark.parametrize("equal_until", [NOW - timedelta(days=3), None], ids=["in place", "created anew"])
def test_a_topic_restored_in_place_is_complete_up_to_the_other_sides_stop_only(
    make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch, equal_until: datetime | None
) -> None:
    monkeypatch.setattr(jobs, "find_topic", lambda *_: None)
    mirror = make_mirror(state=MirrorState.PENDING_SETUP_FOR_RESTORE, partitions=1, source_configs=COMPACTED)
    run = RestoreRun.objects.create(mirror=mirror, requested_by="owner", requested_at=NOW)

    reverse_and_restore._note_agreed(mirror, run, (), equal_until=equal_until, now=NOW)
    see(mirror, NOW, mirror_end=20, source_end=20, bytes_copied=5)

    assert bool(alarms(mirror)) is (equal_until is not None)


def test_a_verification_run_that_started_before_the_alarm_does_not_open_a_gate(mirror: MirrorTopic) -> None:
    see(mirror, NOW + 5 * HOUR, mirror_end=300, source_end=300)
    run = VerifyRun.objects.create(
        mirror=mirror, requested_by="owner", requested_at=NOW, status=VerifyRun.Status.EQUAL, records_compared=9, differences=0
    )

    assert _comparison(run).differences is None
    mirror.transition_errors.all().delete()
    assert _comparison(run).differences == 0


def test_a_mirror_paused_while_the_source_was_compacted_raises_the_alarm_after_compaction_ended(mirror: MirrorTopic) -> None:
    read_configs(mirror, NOW + DAYS, DELETED)  # the first reading of the source after the pause

    see(mirror, NOW + DAYS + timedelta(seconds=3), mirror_end=300, source_end=300)

    (error,) = mirror.transition_errors.all()
    assert (error.code, "delete.retention.ms=3600000" in error.message, ledger(mirror)) == (TOMBSTONES_MISSED, True, [])


def test_a_mirror_that_was_complete_after_compaction_ended_may_be_behind_for_days(mirror: MirrorTopic) -> None:
    read_configs(mirror, NOW + timedelta(seconds=5), DELETED)
    at = NOW + timedelta(seconds=9)
    see(mirror, at, mirror_end=10, source_end=10, caught_up_at_ms=int(at.timestamp() * 1000))

    see(mirror, NOW + DAYS, mirror_end=300, source_end=300)
    read_configs(mirror, NOW + DAYS + timedelta(minutes=1), DELETED)

    assert alarms(mirror) == []


@pytest.mark.parametrize(("read", "expected"), [(COMPACTED, [TOMBSTONES_MISSED]), (DELETED, [])], ids=["compacted", "not"])
def test_lateness_is_checked_with_the_configs_that_are_read_after_it(
    mirror: MirrorTopic, read: dict[str, str], expected: list[str]
) -> None:
    MirrorTopic.objects.update(source_configs=DELETED)
    see(mirror, NOW + DAYS, mirror_end=300, source_end=300)
    assert alarms(mirror) == []

    read_configs(mirror, NOW + DAYS, read)  # may have been requested before
    assert alarms(mirror) == []
    read_configs(mirror, NOW + DAYS + timedelta(seconds=5), read)

    assert (alarms(mirror), ledger(mirror) == []) == (expected, bool(expected))
    assert gaps.mirrors_with_lateness([mirror]) == set()


def test_a_shorter_tombstone_retention_that_is_read_later_counts_for_earlier_lateness(mirror: MirrorTopic) -> None:
    away = NOW + timedelta(minutes=30)
    see(mirror, away, mirror_end=300, source_end=300)
    assert (alarms(mirror), gaps.mirrors_with_lateness([mirror])) == ([], {mirror.pk})

    read_configs(mirror, away + timedelta(seconds=5), COMPACTED | {"delete.retention.ms": "60000"})

    assert alarms(mirror) == [TOMBSTONES_MISSED]


@pytest.mark.parametrize("whole", [True, False])
def test_the_shortest_retention_counts_until_the_mirror_is_complete_again(mirror: MirrorTopic, *, whole: bool) -> None:
    read_configs(mirror, NOW + timedelta(seconds=5), COMPACTED | {"delete.retention.ms": "60000"})
    read_configs(mirror, NOW + timedelta(seconds=10), COMPACTED)
    if whole:
        see(mirror, NOW + timedelta(seconds=15), mirror_end=10, source_end=10)
    read_configs(mirror, NOW + timedelta(seconds=20), COMPACTED | {"delete.retention.ms": "7200000"})

    see(mirror, NOW + timedelta(minutes=30), mirror_end=300, source_end=300)

    assert bool(alarms(mirror)) is not whole


@pytest.mark.parametrize(("reason", "expected"), [(GapReason.COMPACTED, True), (GapReason.TRANSACTION_MARKER, False)])
def test_a_compaction_between_two_readings_is_detected_by_gaps_in_late_records(
    mirror: MirrorTopic, reason: GapReason, *, expected: bool
) -> None:
    MirrorTopic.objects.update(source_configs=DELETED)

    see(mirror, NOW + DAYS, mirror_end=300, source_end=300, gaps=(Gap(OffsetRange(20, 21), reason),))

    assert bool(alarms(mirror)) is expected


@pytest.mark.parametrize("topic_id", ["mirror-id", "created anew"])
def test_a_topic_that_becomes_a_mirror_again_may_lack_tombstones_removed_in_between(mirror: MirrorTopic, topic_id: str) -> None:
    deleted = {"cleanup.policy": "delete", "delete.retention.ms": "60000"}
    MirrorTopic.objects.update(state=MirrorState.PENDING_RESTORE_MIRROR, was_compacted=True, source_configs=deleted)
    made: dict[str, Any] = {"source_topic_id": "topic-id", "partitions": 1, "read_only": True, "source_configs": deleted}
    created = MirrorCreated(mirror_topic_id=topic_id, **made)

    taken = MirrorTopic.objects.select_related("link__destination").get(pk=mirror.pk)
    reverse_and_restore.note_mirroring(taken, created, event=MirrorEvent.MIRROR_READY, starts={}, now=NOW + DAYS)
    see(mirror, NOW + DAYS, mirror_end=300, source_end=300)

    assert bool(alarms(mirror)) is (topic_id == "mirror-id")


def test_records_copied_after_an_idle_hour_are_not_late(mirror: MirrorTopic) -> None:
    """Rows of idle partitions are not stored again, so their own times are an hour old."""
    briefly = {**COMPACTED, "delete.retention.ms": "60000"}
    MirrorTopic.objects.update(source_configs=briefly)
    for second in range(0, 3600, 10):
        at = NOW + timedelta(seconds=second)
        see(mirror, at, mirror_end=10, source_end=10, caught_up_at_ms=int(at.timestamp() * 1000), source_high_watermark=10)
    at = NOW + HOUR
    see(mirror, at, mirror_end=11, source_end=11, caught_up_at_ms=int(at.timestamp() * 1000), source_high_watermark=11)

    assert not mirror.transition_errors.exists()
    assert MirrorPartition.objects.get(mirror=mirror).late_since is None

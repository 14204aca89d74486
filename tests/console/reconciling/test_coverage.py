"""The ledger of verified ranges: small, exact, and with an alarm that only a run of the whole mirror ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from console.models import AuditEvent, MirrorPartition, MirrorTopic, StateTransitionError, VerifiedRange, VerifyRun
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import coverage, transition_errors
from console.reconciling.plans import mirror_key
from console.redis import redis_client
from console.verification import queries as verification_queries
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import PartitionPhase, PartitionProgress, VerifyReport
from linkengine.domain.ranges import CheckedRange, OffsetRange, RecordDifference, combine, hash_of
from tests.console.conftest import NOW

COPYING = PartitionPhase.COPYING
LATER = NOW + timedelta(minutes=5)
DIFFERENCE = RecordDifference(partition=0, offset=7, kind="value", source_value="a", mirror_value="b")


def checked(start: int, end: int, *, differences: int = 0, partition: int = 0) -> CheckedRange:
    return CheckedRange(
        partition=partition, start=start, end=end, records=end - start, hash=hash_of(start, end), differences=differences
    )


def report(*ranges: CheckedRange, first: tuple[RecordDifference, ...] = ()) -> VerifyReport:
    return VerifyReport(
        records_compared=1, differences=sum(part.differences for part in ranges), first_differences=first, bytes_compared=1,
        duration_ms=1, checked=ranges,
    )  # fmt: skip


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, int, int | None]]:
    return [(row.partition, row.start, row.end, row.records) for row in mirror.verified_ranges.all()]


def test_adjacent_ranges_are_merged_with_the_combined_hash(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 10), checked(0, 4, partition=1)), now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(10, 30)), now=LATER)

    row = mirror.verified_ranges.get(partition=0)
    assert ledger(mirror) == [(0, 0, 30, 30), (1, 0, 4, 4)]
    assert row.hash == combine(hash_of(0, 10), hash_of(10, 30))
    assert (row.first_verified_at, row.verified_at) == (NOW, LATER)
    assert coverage.covered(mirror) == {0: [OffsetRange(0, 30)], 1: [OffsetRange(0, 4)]}


def test_later_run_replaces_the_range_that_it_covers(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(40, 120)), now=LATER)

    first, second = mirror.verified_ranges.all()
    assert (first.start, first.end, first.records, first.hash, first.verified_at) == (0, 40, None, "", NOW)
    assert (second.start, second.end, second.hash, second.verified_at) == (40, 120, hash_of(40, 120), LATER)


def test_difference_raises_an_alarm_that_names_it_and_stays(mirror: MirrorTopic) -> None:
    found = report(checked(0, 5), checked(5, 9, differences=2), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=found, now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(9, 20)), now=LATER)
    transition_errors.clear(mirrors=[mirror], now=NOW)

    error = StateTransitionError.objects.get()
    assert error.code == RECORDS_DIFFER
    assert "2 records" in error.message
    assert "partition 0, offset 7: another value." in error.message
    assert ledger(mirror) == [(0, 0, 5, 5), (0, 5, 9, 4), (0, 9, 20, 11)]


@pytest.mark.parametrize(("kind", "words"), [("missing", "missing on the mirror"), ("extra", "not on the source")])
def test_alarm_names_the_side_that_lacks_a_record(mirror: MirrorTopic, kind: str, words: str) -> None:
    one_sided = RecordDifference(partition=0, offset=7, kind=kind)

    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=1), first=(one_sided,)), now=NOW)

    assert words in StateTransitionError.objects.get().message


@pytest.fixture
def run(mirror: MirrorTopic) -> VerifyRun:
    """A verification run that a user requested."""
    return VerifyRun.objects.create(mirror=mirror, requested_by="owner", requested_at=NOW)


def test_equal_run_of_the_whole_mirror_ends_the_alarm_and_is_audited(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2), first=(DIFFERENCE,)), now=NOW)

    for _ in range(2):
        coverage.note_report(mirror=mirror, report=report(checked(0, 20)), run=run, now=LATER)

    assert not StateTransitionError.objects.exists()
    assert ledger(mirror) == [(0, 0, 20, 20)]
    event = AuditEvent.objects.get(action="EndDifferenceAlarm")
    assert event.detail["requested_by"] == "owner"
    assert event.detail["ranges"] == ["partition 0: 5 to 8, 2 differ"]


def test_differences_outside_the_run_stay(mirror: MirrorTopic, run: VerifyRun) -> None:
    """Retention at the source deleted one of them; continuous verification found the other after the end of the run."""
    found = report(checked(5, 9, differences=2), checked(40, 44, differences=3), checked(90, 95, differences=1))
    coverage.note_report(mirror=mirror, report=found, now=NOW)

    coverage.note_report(mirror=mirror, report=report(checked(20, 80)), run=run, now=LATER)

    assert StateTransitionError.objects.get().message.startswith("3 records of")
    assert ledger(mirror) == [(0, 5, 9, 4), (0, 20, 80, 60), (0, 90, 95, 5)]
    assert not AuditEvent.objects.filter(action="EndDifferenceAlarm").exists()


def test_difference_ends_when_the_mirror_has_deleted_the_records(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2)), now=NOW)
    mirror.partitions.filter(partition=0).update(mirror_start=9)

    coverage.note_report(mirror=mirror, report=report(checked(9, 80)), now=LATER)
    assert StateTransitionError.objects.exists()
    coverage.note_report(mirror=mirror, report=report(checked(9, 80)), run=run, now=LATER)

    assert not StateTransitionError.objects.exists()
    assert AuditEvent.objects.get(action="EndDifferenceAlarm").detail["ranges"] == ["partition 0: 5 to 8, 2 differ"]


def test_equal_run_of_deleted_topics_ends_no_alarm(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2)), now=NOW)
    MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id="another")

    coverage.note_report(mirror=mirror, report=report(checked(0, 80)), run=run, now=LATER)

    assert StateTransitionError.objects.exists()


def made(mirror: MirrorTopic, *, mirror_topic_id: str) -> MirrorCreated:
    return MirrorCreated(
        source_topic_id=mirror.source_topic_id, mirror_topic_id=mirror_topic_id, partitions=1, read_only=True
    )  # fmt: skip


def test_ledger_is_dropped_when_a_topic_is_created_anew(mirror: MirrorTopic) -> None:
    both = report(checked(0, 5), checked(5, 9, differences=2), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=both, now=NOW)
    coverage.keep_for(mirror=mirror, made=made(mirror, mirror_topic_id=mirror.mirror_topic_id), now=LATER)
    assert mirror.verified_ranges.count() == 2

    coverage.keep_for(mirror=mirror, made=made(mirror, mirror_topic_id="another"), now=LATER)

    assert not mirror.verified_ranges.exists()
    assert not StateTransitionError.objects.exists()
    assert AuditEvent.objects.get(action="EndDifferenceAlarm").detail["reason"] == "a topic was created anew"


def test_run_of_deleted_topics_is_not_stored(mirror: MirrorTopic) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id="another")

    coverage.note_report(mirror=mirror, report=report(checked(0, 5)), now=NOW)

    assert not mirror.verified_ranges.exists()


def test_offsets_that_were_not_compared_are_not_verified(mirror: MirrorTopic) -> None:
    mirror.partitions.filter(partition=0).update(source_start=2, mirror_start=0, mirror_end=100)
    mirror.partitions.exclude(partition=0).update(mirror_end=None)
    [first, *others] = verification_queries.coverage(mirror=mirror)
    assert (first.start, first.end, first.verified_to, first.unverified, first.verified_at) == (2, 100, 2, 98, None)
    assert all(other.verified_to is None and other.unverified is None for other in others)

    ranges = report(checked(0, 40), checked(40, 50, differences=1), checked(50, 90), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=ranges, now=NOW)

    first = verification_queries.coverage(mirror=mirror)[0]
    assert (first.verified_to, first.verified, first.unverified, first.differences, first.verified_at) == (40, 78, 20, 1, NOW)


def test_stopped_mirror_keeps_its_ledger_up_to_its_stop(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 10)), now=NOW)
    mirror.partitions.filter(partition=0).update(source_start=0, mirror_start=0, mirror_end=50, stopped_end=10)

    first = verification_queries.coverage(mirror=mirror)[0]

    assert VerifiedRange.objects.count() == 1
    assert (first.verified_to, first.end, first.unverified) == (10, 10, 0)


def shorten(mirror: MirrorTopic, *ends: int, name: str = "mirror_end", **fields: Any) -> bool:
    """Process reports of a mirror that ended at 100 and ends at ``ends`` now; ``name`` is the field that says so."""
    MirrorPartition.objects.filter(mirror=mirror).update(mirror_end=100)
    rows = {f"{mirror_key(mirror)}/{row.partition}": row for row in mirror.partitions.all()}
    reports = [
        PartitionProgress(**{"key": key, "copy_run_id": "s", "phase": COPYING, "observed_at_ms": 0, name: end, **fields})
        for key, end in zip(rows, ends, strict=False)
    ]
    return coverage.forget_lost(mirrors=[mirror], rows=rows, reports=reports, now=LATER)


@pytest.mark.parametrize("name", ["mirror_end", "unproven_end"])
def test_offsets_that_a_mirror_lost_are_no_longer_verified(mirror: MirrorTopic, name: str) -> None:
    whole = report(checked(0, 60), checked(60, 70, differences=1), checked(70, 100), checked(0, 100, partition=1))
    coverage.note_report(mirror=mirror, report=whole, now=NOW)

    assert shorten(mirror, 50, 100, name=name)
    assert ledger(mirror) == [(0, 0, 50, None), (0, 60, 70, 10), (1, 0, 100, 100)]


def test_run_that_started_before_a_loss_verifies_nothing_and_ends_no_alarm(mirror: MirrorTopic, run: VerifyRun) -> None:
    begun = MirrorTopic.objects.get(pk=mirror.pk)
    run.started_at = NOW
    transition_errors.note(
        mirror=mirror, code=TOMBSTONES_MISSED, message="Tombstones are missing.", now=NOW - timedelta(hours=1)
    )
    shorten(mirror, 99, 100)
    assert not coverage.note_report(mirror=begun, report=report(checked(0, 100)), run=run, now=LATER)
    assert ledger(mirror) == []
    assert [error.code for error in mirror.transition_errors.all()] == [TOMBSTONES_MISSED]
    assert coverage.note_report(mirror=MirrorTopic.objects.get(), report=report(checked(0, 100)), run=run, now=LATER)
    assert not mirror.transition_errors.exists()


@pytest.mark.usefixtures("redis_server")
def test_loss_that_was_copied_again_between_two_passes_is_not_verified(mirror: MirrorTopic) -> None:
    """All further reports of the lease contain the loss; what is verified later counts."""
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    copy_run_id = uuid4().hex

    assert shorten(mirror, 101, set_back_to=60, set_backs=1, copy_run_id=copy_run_id)
    assert ledger(mirror) == [(0, 0, 60, None)]
    coverage.note_report(mirror=MirrorTopic.objects.get(), report=report(checked(60, 100)), now=LATER)
    assert not shorten(mirror, 101, set_back_to=60, set_backs=1, copy_run_id=copy_run_id)
    assert ledger(mirror) == [(0, 0, 60, None), (0, 60, 100, 40)]
    assert shorten(mirror, 101, set_back_to=60, set_backs=2, copy_run_id=copy_run_id)
    assert ledger(mirror) == [(0, 0, 60, None)]


@pytest.mark.usefixtures("redis_server")
def test_loss_counts_once_however_long_the_lease_lasts(mirror: MirrorTopic) -> None:
    """Otherwise what was copied and verified again would have to be verified every hour."""
    copy_run_id = uuid4().hex
    assert shorten(mirror, 101, set_back_to=60, set_backs=1, copy_run_id=copy_run_id)
    coverage.note_report(mirror=MirrorTopic.objects.get(), report=report(checked(0, 100)), now=LATER)
    client: Any = redis_client()
    (claim,) = [key for key in client.keys("console:claim:*") if copy_run_id in key]
    client.pexpire(claim, 60_000)  # as after most of the hour

    assert not shorten(mirror, 101, set_back_to=60, set_backs=1, copy_run_id=copy_run_id)

    assert client.pttl(claim) > 60_000
    assert ledger(mirror) == [(0, 0, 100, 100)]


@pytest.mark.usefixtures("redis_server")
@pytest.mark.parametrize(("kept", "left"), [(70, [(0, 0, 70, None)]), (0, [])], ids=["known end", "unknown end"])
def test_offsets_that_the_source_lost_are_no_longer_verified(mirror: MirrorTopic, kept: int, left: list[Any]) -> None:
    """The mirror still has them; a run that compared them on both sides does not count."""
    begun = MirrorTopic.objects.get(pk=mirror.pk)
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    copy_run_id = uuid4().hex

    assert shorten(mirror, 100, source_kept=kept, copy_run_id=copy_run_id)
    assert ledger(mirror) == left
    assert not coverage.note_report(mirror=begun, report=report(checked(0, 100)), now=LATER)
    assert not shorten(mirror, 100, source_kept=kept, copy_run_id=copy_run_id)  # repeated for as long as the report exists


def test_last_report_before_a_fence_does_not_shorten_the_verified_range(mirror: MirrorTopic) -> None:
    """A killed copy worker had not reported its last records; its old report exists for some minutes."""
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    MirrorPartition.objects.update(stopped_end=100)

    assert not shorten(mirror, 90)
    assert ledger(mirror) == [(0, 0, 100, 100)]
    assert MirrorTopic.objects.get().ranges_removed_at is None


def test_growing_mirror_loses_no_verified_range(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    assert not shorten(mirror, 101, 100)
    assert ledger(mirror) == [(0, 0, 100, 100)]

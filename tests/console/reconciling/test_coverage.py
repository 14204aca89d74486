"""The ledger of comparisons: small, exact, and with an alarm that only a full comparison ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from console.models import AuditEvent, MirrorPartition, MirrorTopic, StateTransitionError, VerifiedRange, VerifyRun
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.queries import verification
from console.reconciling import coverage, troubles
from console.reconciling.plans import mirror_key
from linkengine.domain.coverage import CheckedRange, RecordDifference, combine, hash_of
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import PartitionPhase, PartitionProgress, VerifyReport
from linkengine.domain.ranges import OffsetRange
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
        records_compared=1, differences=sum(one.differences for one in ranges), first_differences=first, bytes_compared=1,
        duration_ms=1, checked=ranges,
    )  # fmt: skip


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, int, int | None]]:
    return [(one.partition, one.start, one.end, one.records) for one in mirror.verified_ranges.all()]


def test_ranges_that_follow_each_other_are_one_row_with_the_hash_of_both(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 10), checked(0, 4, partition=1)), now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(10, 30)), now=LATER)

    row = mirror.verified_ranges.get(partition=0)
    assert ledger(mirror) == [(0, 0, 30, 30), (1, 0, 4, 4)]
    assert row.hash == combine(hash_of(0, 10), hash_of(10, 30))
    assert (row.first_verified_at, row.verified_at) == (NOW, LATER)
    assert coverage.covered(mirror) == {0: [OffsetRange(0, 30)], 1: [OffsetRange(0, 4)]}


def test_a_later_comparison_replaces_what_it_covers_and_keeps_the_rest(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(40, 120)), now=LATER)

    first, second = mirror.verified_ranges.all()
    assert (first.start, first.end, first.records, first.hash, first.verified_at) == (0, 40, None, "", NOW)
    assert (second.start, second.end, second.hash, second.verified_at) == (40, 120, hash_of(40, 120), LATER)


def test_a_difference_raises_an_alarm_that_names_it_and_stays(mirror: MirrorTopic) -> None:
    found = report(checked(0, 5), checked(5, 9, differences=2), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=found, now=NOW)
    coverage.note_report(mirror=mirror, report=report(checked(9, 20)), now=LATER)
    troubles.clear(mirror=mirror)

    error = StateTransitionError.objects.get()
    assert error.code == RECORDS_DIFFER
    assert "2 records" in error.message
    assert "partition 0, offset 7: another value." in error.message
    assert ledger(mirror) == [(0, 0, 5, 5), (0, 5, 9, 4), (0, 9, 20, 11)]


@pytest.mark.parametrize(("kind", "words"), [("missing", "missing on the mirror"), ("extra", "not on the source")])
def test_records_that_only_one_side_has_are_named_so(mirror: MirrorTopic, kind: str, words: str) -> None:
    one_sided = RecordDifference(partition=0, offset=7, kind=kind)

    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=1), first=(one_sided,)), now=NOW)

    assert words in StateTransitionError.objects.get().message


@pytest.fixture
def run(mirror: MirrorTopic) -> VerifyRun:
    """A comparison that somebody asked for."""
    return VerifyRun.objects.create(mirror=mirror, requested_by="owner", requested_at=NOW)


def test_a_full_comparison_that_finds_all_equal_ends_the_alarm_and_leaves_a_trace(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2), first=(DIFFERENCE,)), now=NOW)

    for _ in range(2):
        coverage.note_report(mirror=mirror, report=report(checked(0, 20)), run=run, now=LATER)

    assert not StateTransitionError.objects.exists()
    assert ledger(mirror) == [(0, 0, 20, 20)]
    event = AuditEvent.objects.get(action="EndDifferenceAlarm")
    assert event.detail["requested_by"] == "owner"
    assert event.detail["ranges"] == ["partition 0: 5 to 8, 2 differ"]


def test_differences_that_a_full_comparison_could_not_look_at_stay(mirror: MirrorTopic, run: VerifyRun) -> None:
    """Retention at the source took one, continuous verification found the other behind the end of the comparison."""
    found = report(checked(5, 9, differences=2), checked(40, 44, differences=3), checked(90, 95, differences=1))
    coverage.note_report(mirror=mirror, report=found, now=NOW)

    coverage.note_report(mirror=mirror, report=report(checked(20, 80)), run=run, now=LATER)

    assert StateTransitionError.objects.get().message.startswith("3 records of")
    assert ledger(mirror) == [(0, 5, 9, 4), (0, 20, 80, 60), (0, 90, 95, 5)]
    assert not AuditEvent.objects.filter(action="EndDifferenceAlarm").exists()


def test_a_difference_that_the_mirror_does_not_hold_any_more_is_over(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2)), now=NOW)
    mirror.partitions.filter(partition=0).update(mirror_start=9)

    coverage.note_report(mirror=mirror, report=report(checked(9, 80)), now=LATER)
    assert StateTransitionError.objects.exists()
    coverage.note_report(mirror=mirror, report=report(checked(9, 80)), run=run, now=LATER)

    assert not StateTransitionError.objects.exists()
    assert AuditEvent.objects.get(action="EndDifferenceAlarm").detail["ranges"] == ["partition 0: 5 to 8, 2 differ"]


def test_an_equal_comparison_of_topics_that_are_gone_ends_no_alarm(mirror: MirrorTopic, run: VerifyRun) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(5, 9, differences=2)), now=NOW)
    MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id="another")

    coverage.note_report(mirror=mirror, report=report(checked(0, 80)), run=run, now=LATER)

    assert StateTransitionError.objects.exists()


def made(mirror: MirrorTopic, *, mirror_topic_id: str) -> MirrorCreated:
    return MirrorCreated(
        source_topic_id=mirror.source_topic_id, mirror_topic_id=mirror_topic_id, partitions=1, read_only=True
    )  # fmt: skip


def test_a_topic_that_is_created_anew_has_no_ledger_yet(mirror: MirrorTopic) -> None:
    both = report(checked(0, 5), checked(5, 9, differences=2), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=both, now=NOW)
    coverage.keep_for(mirror=mirror, made=made(mirror, mirror_topic_id=mirror.mirror_topic_id), now=LATER)
    assert mirror.verified_ranges.count() == 2

    coverage.keep_for(mirror=mirror, made=made(mirror, mirror_topic_id="another"), now=LATER)

    assert not mirror.verified_ranges.exists()
    assert not StateTransitionError.objects.exists()
    assert AuditEvent.objects.get(action="EndDifferenceAlarm").detail["reason"] == "a topic was created anew"


def test_a_comparison_of_topics_that_are_gone_is_not_kept(mirror: MirrorTopic) -> None:
    MirrorTopic.objects.filter(pk=mirror.pk).update(mirror_topic_id="another")

    coverage.note_report(mirror=mirror, report=report(checked(0, 5)), now=NOW)

    assert not mirror.verified_ranges.exists()


def test_what_is_not_compared_is_not_called_verified(mirror: MirrorTopic) -> None:
    mirror.partitions.filter(partition=0).update(source_start=2, mirror_start=0, mirror_end=100)
    mirror.partitions.exclude(partition=0).update(mirror_end=None)
    [one, *others] = verification.coverage(mirror=mirror)
    assert (one.start, one.end, one.verified_to, one.unverified, one.verified_at) == (2, 100, 2, 98, None)
    assert all(other.verified_to is None and other.unverified is None for other in others)

    ranges = report(checked(0, 40), checked(40, 50, differences=1), checked(50, 90), first=(DIFFERENCE,))
    coverage.note_report(mirror=mirror, report=ranges, now=NOW)

    one = verification.coverage(mirror=mirror)[0]
    assert (one.verified_to, one.verified, one.unverified, one.differences, one.verified_at) == (40, 78, 20, 1, NOW)


def test_a_stopped_mirror_keeps_its_ledger_and_is_verified_up_to_its_stop(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 10)), now=NOW)
    mirror.partitions.filter(partition=0).update(source_start=0, mirror_start=0, mirror_end=50, stopped_end=10)

    one = verification.coverage(mirror=mirror)[0]

    assert VerifiedRange.objects.count() == 1
    assert (one.verified_to, one.end, one.unverified) == (10, 10, 0)


def shorten(mirror: MirrorTopic, *ends: int, name: str = "mirror_end", **told: Any) -> bool:
    """Take in reports of a mirror that ended at 100 and ends there now; ``name`` is how they tell it."""
    MirrorPartition.objects.filter(mirror=mirror).update(mirror_end=100)
    rows = {f"{mirror_key(mirror)}/{row.partition}": row for row in mirror.partitions.all()}
    reports = [
        PartitionProgress(**{"key": key, "hold_id": "s", "phase": COPYING, "observed_at_ms": 0, name: end, **told})
        for key, end in zip(rows, ends, strict=False)
    ]
    return coverage.forget_lost(mirrors=[mirror], rows=rows, reports=reports, now=LATER)


@pytest.mark.parametrize("name", ["mirror_end", "unproven_end"])
def test_what_a_mirror_lost_is_not_verified_any_more(mirror: MirrorTopic, name: str) -> None:
    whole = report(checked(0, 60), checked(60, 70, differences=1), checked(70, 100), checked(0, 100, partition=1))
    coverage.note_report(mirror=mirror, report=whole, now=NOW)

    assert shorten(mirror, 50, 100, name=name)
    assert ledger(mirror) == [(0, 0, 50, None), (0, 60, 70, 10), (1, 0, 100, 100)]


def test_a_comparison_that_saw_what_was_lost_since_verifies_nothing_and_ends_no_alarm(
    mirror: MirrorTopic, run: VerifyRun
) -> None:
    begun = MirrorTopic.objects.get(pk=mirror.pk)
    run.started_at = NOW
    troubles.note(mirror=mirror, code=TOMBSTONES_MISSED, message="Tombstones are missing.", now=NOW - timedelta(hours=1))
    shorten(mirror, 99, 100)
    assert not coverage.note_report(mirror=begun, report=report(checked(0, 100)), run=run, now=LATER)
    assert ledger(mirror) == []
    assert [one.code for one in mirror.transition_errors.all()] == [TOMBSTONES_MISSED]
    assert coverage.note_report(mirror=MirrorTopic.objects.get(), report=report(checked(0, 100)), run=run, now=LATER)
    assert not mirror.transition_errors.exists()


@pytest.mark.usefixtures("redis_server")
def test_what_a_mirror_lost_and_got_again_between_two_looks_is_not_verified_any_more(mirror: MirrorTopic) -> None:
    """The report tells of it for the rest of the slice; what is compared after it counts."""
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    hold_id = uuid4().hex

    assert shorten(mirror, 101, set_back_to=60, set_backs=1, hold_id=hold_id)
    assert ledger(mirror) == [(0, 0, 60, None)]
    coverage.note_report(mirror=MirrorTopic.objects.get(), report=report(checked(60, 100)), now=LATER)
    assert not shorten(mirror, 101, set_back_to=60, set_backs=1, hold_id=hold_id)
    assert ledger(mirror) == [(0, 0, 60, None), (0, 60, 100, 40)]
    assert shorten(mirror, 101, set_back_to=60, set_backs=2, hold_id=hold_id)
    assert ledger(mirror) == [(0, 0, 60, None)]


@pytest.mark.usefixtures("redis_server")
@pytest.mark.parametrize(("kept", "left"), [(70, [(0, 0, 70, None)]), (0, [])], ids=["cut short", "nobody knows where"])
def test_what_the_source_lost_is_not_verified_any_more(mirror: MirrorTopic, kept: int, left: list[Any]) -> None:
    """The mirror still holds it; a comparison that saw it on both sides counts for nothing."""
    begun = MirrorTopic.objects.get(pk=mirror.pk)
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    hold_id = uuid4().hex

    assert shorten(mirror, 100, source_kept=kept, hold_id=hold_id)
    assert ledger(mirror) == left
    assert not coverage.note_report(mirror=begun, report=report(checked(0, 100)), now=LATER)
    assert not shorten(mirror, 100, source_kept=kept, hold_id=hold_id)  # it is told for as long as the report is kept


def test_the_last_report_before_a_fence_says_nothing_about_what_was_found_there(mirror: MirrorTopic) -> None:
    """A copier that was killed had not told of its last records; its report stays for minutes."""
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    MirrorPartition.objects.update(stopped_end=100)

    assert not shorten(mirror, 90)
    assert ledger(mirror) == [(0, 0, 100, 100)]
    assert MirrorTopic.objects.get().doubted_at is None


def test_a_mirror_that_grows_loses_nothing(mirror: MirrorTopic) -> None:
    coverage.note_report(mirror=mirror, report=report(checked(0, 100)), now=NOW)
    assert not shorten(mirror, 101, 100)
    assert ledger(mirror) == [(0, 0, 100, 100)]

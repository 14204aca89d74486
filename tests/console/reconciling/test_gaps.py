"""The gap ledger: few rows, and an alarm where records were lost."""

from __future__ import annotations

from console.models import GapRange, MirrorTopic, StateTransitionError
from console.models.mirrors import RECORDS_LOST
from console.reconciling.gaps import note_head, store_gaps
from console.reconciling.troubles import clear
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason
from tests.console.conftest import NOW

R = GapReason


def gap(start: int, end: int, reason: R = R.TRANSACTION_MARKER) -> Gap:
    return Gap(OffsetRange(start, end), reason)


def ledger(mirror: MirrorTopic) -> list[tuple[int, int, int, str]]:
    return list(GapRange.objects.filter(mirror=mirror).values_list("partition", "start", "end", "reason"))


def test_neighbours_become_one_row(mirror: MirrorTopic) -> None:
    assert store_gaps(mirror=mirror, gaps={0: [gap(5, 6)], 1: [gap(5, 6)]}, now=NOW)
    assert store_gaps(mirror=mirror, gaps={0: [gap(6, 9), gap(20, 21)]}, now=NOW)
    assert store_gaps(mirror=mirror, gaps={0: [gap(9, 10, R.ABORTED)]}, now=NOW)

    assert ledger(mirror) == [
        (0, 5, 9, "TRANSACTION_MARKER"),
        (0, 9, 10, "ABORTED"),
        (0, 20, 21, "TRANSACTION_MARKER"),
        (1, 5, 6, "TRANSACTION_MARKER"),
    ]


def test_what_is_known_is_not_written_again(mirror: MirrorTopic) -> None:
    store_gaps(mirror=mirror, gaps={0: [gap(5, 9)]}, now=NOW)
    pk = GapRange.objects.get().pk

    assert not store_gaps(mirror=mirror, gaps={0: [gap(5, 9)]}, now=NOW)
    assert not store_gaps(mirror=mirror, gaps={0: [gap(6, 7)]}, now=NOW)
    assert not store_gaps(mirror=mirror, gaps={0: []}, now=NOW)
    assert GapRange.objects.get().pk == pk


def test_lost_records_raise_an_alarm_that_stays(mirror: MirrorTopic) -> None:
    store_gaps(mirror=mirror, gaps={0: [gap(5, 9, R.LOST)]}, now=NOW)
    store_gaps(mirror=mirror, gaps={1: [gap(0, 2, R.LOST)]}, now=NOW)

    error = StateTransitionError.objects.get()
    assert error.code == RECORDS_LOST
    assert error.message.startswith("6 offsets of 'orders' were deleted by its retention")
    clear(mirror=mirror)
    assert StateTransitionError.objects.exists()


def test_the_head_below_the_first_record_is_noted(mirror: MirrorTopic) -> None:
    note_head(mirror=mirror, seeded=[(0, 1_000_000), (1, 0)], now=NOW)

    assert ledger(mirror) == [(0, 0, 1_000_000, "HEAD")]

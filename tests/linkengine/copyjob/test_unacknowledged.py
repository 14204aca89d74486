"""Whether an owner's unacknowledged requests explain where its mirror ends, without brokers."""

import pytest

from linkengine.batches.patch import SEQUENCES
from linkengine.batches.steps import Append
from linkengine.copyjob.producer_state import LateAppends, OwnProducerState, Unacknowledged, unacknowledged_of
from linkengine.domain.producers import ProducerState

OWN_ID = 1 << 62


def append(base: int, count: int) -> Append:
    return Append(base, count, memoryview(b""), count, 0)


def producer(next_sequence: int, *, epoch: int = 0) -> OwnProducerState:
    created = OwnProducerState(OWN_ID)
    created.next_sequence, created.epoch = next_sequence, epoch
    return created


def test_unacknowledged_range_begins_at_the_first_offset_and_sequence() -> None:
    sent = [append(100, 3), append(103, 4)]

    assert unacknowledged_of(sent, fill_start=None, producer=producer(2), counts=True) == Unacknowledged(
        offset=100, sequence=SEQUENCES - 5, producer_id=OWN_ID
    )
    assert unacknowledged_of([], fill_start=100, producer=producer(9), counts=True) == Unacknowledged(
        offset=100, sequence=9, producer_id=OWN_ID
    )
    assert unacknowledged_of([], fill_start=None, producer=producer(9), counts=True) is None


def test_all_new_offsets_are_checked_if_a_coordinator_may_restart_sequences() -> None:
    unacknowledged = unacknowledged_of([append(100, 7)], fill_start=None, producer=producer(57), counts=False)

    assert unacknowledged is not None
    ends = [
        unacknowledged.confirmed_end(end, sent_end=107, producer=ProducerState(epoch=0, last_sequence=52))
        for end in (100, 103, 107)
    ]
    assert ends == [107, 100, 100]


@pytest.mark.parametrize(
    ("end", "last_sequence", "confirmed"),
    [(100, 49, 107), (103, 52, 107), (107, 56, 107), (102, 49, 100), (105, 52, 100), (110, 59, 107), (101, -1, 100)],
    ids=[
        "nothing written",
        "one batch",
        "all batches",
        "foreign write",
        "own and foreign",
        "duplicate worker",
        "producer forgotten",
    ],
)
def test_end_is_trusted_only_if_new_offsets_equal_new_sequences(end: int, last_sequence: int, confirmed: int) -> None:
    unacknowledged = Unacknowledged(offset=100, sequence=50, producer_id=OWN_ID)

    assert (
        unacknowledged.confirmed_end(end, sent_end=107, producer=ProducerState(epoch=0, last_sequence=last_sequence))
        == confirmed
    )


@pytest.mark.parametrize(
    ("reached", "in_flight", "epoch", "loose"),
    [(SEQUENCES - 1, 0, 0, True), (2, 1, 0, True), (2, 0, 0, False), (9, 2, 0, False), (1, 0, 1, False)],
    ids=["the first", "all but the last", "all", "later ones as well", "a higher epoch"],
)
@pytest.mark.parametrize("shorter_attempt", [False, True])
def test_appends_are_loose_until_their_sequences_are_written(
    reached: int, in_flight: int, epoch: int, loose: bool, shorter_attempt: bool
) -> None:
    """Six records were lost, the last with sequence 1: sequences wrap around to 0 after the highest."""
    lost_appends = LateAppends()
    lost_appends.add([append(100, 3), append(103, 3)], producer=producer(2))
    if shorter_attempt:
        lost_appends.add([append(100, 3)], producer=producer(SEQUENCES - 1))

    unacknowledged = [append(200, in_flight)] if in_flight else []
    lost_appends.acknowledged(unacknowledged, producer=producer(reached, epoch=epoch))

    assert bool(lost_appends) is loose

"""Whether an owner's own requests explain where its mirror ends, without brokers."""

import pytest

from linkengine.batches.patch import SEQUENCES
from linkengine.batches.steps import Append
from linkengine.copyjob.doubts import Doubt, LooseAppends, doubt_of
from linkengine.copyjob.pieces import FillInFlight
from linkengine.copyjob.writer import Writer
from linkengine.kafka.producers import ProducerState

OURS = 1 << 62


def append(base: int, count: int) -> Append:
    return Append(base, count, memoryview(b""), count, 0)


def writer(next_sequence: int, *, epoch: int = 0) -> Writer:
    one = Writer(OURS)
    one.next_sequence, one.epoch = next_sequence, epoch
    return one


def test_what_was_never_answered_is_in_doubt_from_its_first_offset_and_sequence_on() -> None:
    fill, sent = FillInFlight(100, 5, 0, "COMPACTED"), [append(100, 3), append(103, 4)]

    assert doubt_of(sent, None, writer=writer(2), counts=True) == Doubt(offset=100, sequence=SEQUENCES - 5, producer_id=OURS)
    assert doubt_of([], fill, writer=writer(9), counts=True) == Doubt(offset=100, sequence=9, producer_id=OURS)
    assert doubt_of([], None, writer=writer(9), counts=True) is None


def test_where_a_coordinator_may_count_anew_all_that_came_is_looked_at() -> None:
    doubt = doubt_of([append(100, 7)], None, writer=writer(57), counts=False)

    assert doubt is not None
    ends = [doubt.vouched_end(end, sent_end=107, producer=ProducerState(epoch=0, last_sequence=52)) for end in (100, 103, 107)]
    assert ends == [107, 100, 100]


@pytest.mark.parametrize(
    ("end", "last_sequence", "vouched"),
    [(100, 49, 107), (103, 52, 107), (107, 56, 107), (102, 49, 100), (105, 52, 100), (110, 59, 107), (101, -1, 100)],
    ids=["nothing came", "one batch came", "all came", "a stranger", "ours and a stranger", "a twin of ours", "forgotten"],
)
def test_offsets_and_sequences_that_do_not_add_up_are_somebody_elses(end: int, last_sequence: int, vouched: int) -> None:
    doubt = Doubt(offset=100, sequence=50, producer_id=OURS)

    assert doubt.vouched_end(end, sent_end=107, producer=ProducerState(epoch=0, last_sequence=last_sequence)) == vouched


@pytest.mark.parametrize(
    ("reached", "unanswered", "epoch", "loose"),
    [(SEQUENCES - 1, 0, 0, True), (2, 1, 0, True), (2, 0, 0, False), (9, 2, 0, False), (1, 0, 1, False)],
    ids=["the first of them", "all but the last", "all of them", "and later ones", "a higher epoch"],
)
@pytest.mark.parametrize("shorter_attempt", [False, True])
def test_data_is_loose_until_its_sequences_are_written(
    reached: int, unanswered: int, epoch: int, loose: bool, shorter_attempt: bool
) -> None:
    """Six records were lost, the last with sequence 1: behind the highest one there is they begin anew."""
    one = LooseAppends()
    one.add([append(100, 3), append(103, 3)], writer=writer(2))
    if shorter_attempt:
        one.add([append(100, 3)], writer=writer(SEQUENCES - 1))

    rest = [append(200, unanswered)] if unanswered else []
    one.acknowledged(rest, writer=writer(reached, epoch=epoch))

    assert bool(one) is loose

"""Whether an owner's own requests explain where its mirror ends, without brokers."""

import pytest

from linkengine.batches.patch import SEQUENCES
from linkengine.batches.steps import Append
from linkengine.copyjob.doubts import Doubt, doubt_of
from linkengine.copyjob.pieces import FillInFlight
from linkengine.kafka.producers import ProducerState


def append(base: int, count: int) -> Append:
    return Append(base, count, memoryview(b""), count, 0)


def test_what_was_never_answered_is_in_doubt_from_its_first_offset_and_sequence_on() -> None:
    fill = FillInFlight(100, 5, 0, "COMPACTED")

    assert doubt_of([append(100, 3), append(103, 4)], None, next_sequence=2) == Doubt(offset=100, sequence=SEQUENCES - 5)
    assert doubt_of([], fill, next_sequence=9) == Doubt(offset=100, sequence=9)
    assert doubt_of([], None, next_sequence=9) is None


@pytest.mark.parametrize(
    ("end", "last_sequence", "vouched"),
    [(100, 49, 107), (103, 52, 107), (107, 56, 107), (102, 49, 100), (105, 52, 100), (110, 59, 107), (101, -1, 100)],
    ids=["nothing came", "one batch came", "all came", "a stranger", "ours and a stranger", "a twin of ours", "forgotten"],
)
def test_offsets_and_sequences_that_do_not_add_up_are_somebody_elses(end: int, last_sequence: int, vouched: int) -> None:
    doubt = Doubt(offset=100, sequence=50)

    assert doubt.vouched_end(end, sent_end=107, producer=ProducerState(epoch=0, last_sequence=last_sequence)) == vouched

"""How far a source was read, as (leader epoch, end offset), across leaders, attempts and owners."""

import pytest

from linkengine.copyjob.values import ReadPosition, SourceOrigin
from linkengine.kafka.topicviews import Leader

ORIGIN = SourceOrigin(Leader(broker=0, epoch=7), b"topic")


def served(seen: tuple[int, int] | None = None) -> ReadPosition:
    read_position = ReadPosition(seen)
    read_position.proven = True
    return read_position


def test_leader_that_was_read_confirms_its_epoch() -> None:
    read_position = served()
    assert read_position.epoch_of(ORIGIN) == 7
    read_position.leave(ORIGIN, end=100)
    assert read_position.seen == (7, 100)
    assert read_position.epoch_of(ORIGIN) is None


def test_leader_that_was_not_read_changes_nothing() -> None:
    read_position = ReadPosition((5, 40))
    read_position.leave(ORIGIN, end=100)
    assert read_position.seen == (5, 40)


def test_records_read_but_not_sent_do_not_count_as_read() -> None:
    read_position = served()
    read_position.leave(ORIGIN, end=150)  # read up to here, sent up to 140 only
    read_position.end_attempt(None, end=140)
    assert read_position.seen == (7, 140)


def test_attempt_that_sent_nothing_changes_nothing() -> None:
    read_position = ReadPosition((5, 40))
    read_position.end_attempt(ORIGIN, end=None)
    assert read_position.seen == (5, 40)


@pytest.mark.parametrize(
    ("read_position", "origin", "expected"),
    [
        (served(), ORIGIN, (7, 60)),
        (ReadPosition((5, 40)), ORIGIN, (5, 60)),
        (ReadPosition(None), ORIGIN, None),
        (ReadPosition((5, 40)), None, (5, 60)),
    ],
    ids=["read", "nothing read in this hold", "nothing known", "no leader"],
)
def test_next_owner_gets_epoch_and_end_if_they_are_known(
    read_position: ReadPosition, origin: SourceOrigin | None, expected: tuple[int, int] | None
) -> None:
    assert read_position.handed_over(origin, end=60) == expected


def test_epoch_and_end_of_the_previous_owner_replace_those_of_reports() -> None:
    read_position = ReadPosition((5, 40))
    read_position.inherit((6, 50))
    assert read_position.seen == (6, 50)
    read_position.inherit(None)
    assert read_position.seen == (6, 50)

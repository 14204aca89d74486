"""How far a source was read, as (leader epoch, end offset), across leaders, attempts and owners."""

import pytest

from linkengine.copyjob.source.epoch_history import SourcePast
from linkengine.copyjob.values import Origin
from linkengine.kafka.topicviews import Leader

ORIGIN = Origin(Leader(broker=0, epoch=7), b"topic")


def served(seen: tuple[int, int] | None = None) -> SourcePast:
    past = SourcePast(seen)
    past.proven = True
    return past


def test_leader_that_was_read_confirms_its_epoch() -> None:
    past = served()
    assert past.epoch_of(ORIGIN) == 7
    past.leave(ORIGIN, end=100)
    assert past.seen == (7, 100)
    assert past.epoch_of(ORIGIN) is None


def test_leader_that_was_not_read_changes_nothing() -> None:
    past = SourcePast((5, 40))
    past.leave(ORIGIN, end=100)
    assert past.seen == (5, 40)


def test_records_read_but_not_sent_do_not_count_as_read() -> None:
    past = served()
    past.leave(ORIGIN, end=150)  # read up to here, sent up to 140 only
    past.end_attempt(None, end=140)
    assert past.seen == (7, 140)


def test_attempt_that_sent_nothing_changes_nothing() -> None:
    past = SourcePast((5, 40))
    past.end_attempt(ORIGIN, end=None)
    assert past.seen == (5, 40)


@pytest.mark.parametrize(
    ("past", "origin", "expected"),
    [
        (served(), ORIGIN, (7, 60)),
        (SourcePast((5, 40)), ORIGIN, (5, 60)),
        (SourcePast(None), ORIGIN, None),
        (SourcePast((5, 40)), None, (5, 60)),
    ],
    ids=["read", "nothing read in this hold", "nothing known", "no leader"],
)
def test_next_owner_gets_epoch_and_end_if_they_are_known(
    past: SourcePast, origin: Origin | None, expected: tuple[int, int] | None
) -> None:
    assert past.handed_over(origin, end=60) == expected


def test_epoch_and_end_of_the_previous_owner_replace_those_of_reports() -> None:
    past = SourcePast((5, 40))
    past.inherit((6, 50))
    assert past.seen == (6, 50)
    past.inherit(None)
    assert past.seen == (6, 50)

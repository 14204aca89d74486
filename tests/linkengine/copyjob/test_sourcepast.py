"""What is known of a source's past through leaders, attempts and owners."""

import pytest

from linkengine.copyjob.pieces import Origin
from linkengine.copyjob.sourcepast import SourcePast
from linkengine.kafka.topicviews import Leader

ORIGIN = Origin(Leader(broker=0, epoch=7), b"topic")


def served(seen: tuple[int, int] | None = None) -> SourcePast:
    past = SourcePast(seen)
    past.proven = True
    return past


def test_a_leader_that_served_vouches_for_what_was_read_from_it() -> None:
    past = served()
    assert past.epoch_of(ORIGIN) == 7
    past.leave(ORIGIN, end=100)
    assert past.seen == (7, 100)
    assert past.epoch_of(ORIGIN) is None


def test_one_that_did_not_serve_changes_nothing() -> None:
    past = SourcePast((5, 40))
    past.leave(ORIGIN, end=100)
    assert past.seen == (5, 40)


def test_what_was_read_and_thrown_away_needs_nobody_to_vouch_for_it() -> None:
    past = served()
    past.leave(ORIGIN, end=150)  # read up to here, sent up to 140 only
    past.end_attempt(None, end=140)
    assert past.seen == (7, 140)


def test_an_attempt_that_sent_nothing_changes_nothing() -> None:
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
def test_the_next_owner_hears_what_can_be_relied_on(
    past: SourcePast, origin: Origin | None, expected: tuple[int, int] | None
) -> None:
    assert past.handed_over(origin, end=60) == expected


def test_what_a_former_owner_left_is_newer_than_any_report() -> None:
    past = SourcePast((5, 40))
    past.inherit((6, 50))
    assert past.seen == (6, 50)
    past.inherit(None)
    assert past.seen == (6, 50)

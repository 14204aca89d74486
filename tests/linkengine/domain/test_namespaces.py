"""Namespaces: what is in them, and how well they follow."""

from __future__ import annotations

import pytest

from linkengine.domain.namespaces import Follower, ReplicationState, contains, overlap, replication_state
from linkengine.domain.states import LinkState, MirrorState

R = ReplicationState
ACTIVE = MirrorState.ACTIVE


GOOD = Follower(state=ACTIVE, lag=0, lag_ms=0)


def state(*mirrors: Follower, link: LinkState | None = LinkState.ACTIVE, unmirrored: int | None = 0) -> ReplicationState:
    return replication_state(link=link, mirrors=mirrors, unmirrored=unmirrored)


@pytest.mark.parametrize("unmirrored", [1, None], ids=["a topic without a mirror", "nobody knows the source's topics"])
def test_what_is_not_mirrored_at_all_is_not_in_sync(unmirrored: int | None) -> None:
    assert state(GOOD) is R.IN_SYNC
    assert state(GOOD, unmirrored=unmirrored) is state(unmirrored=unmirrored) is R.CATCHING_UP


@pytest.mark.parametrize(
    ("follower", "expected"),
    [
        (Follower(state=ACTIVE, lag=0, lag_ms=0), R.IN_SYNC),
        (Follower(state=ACTIVE, lag=5, lag_ms=900), R.FOLLOWING),
        (Follower(state=ACTIVE, lag=5, lag_ms=60_000), R.CATCHING_UP),
        (Follower(state=ACTIVE, lag=None, lag_ms=0), R.CATCHING_UP),
        (Follower(state=ACTIVE, lag=0, lag_ms=None), R.CATCHING_UP),
        (Follower(state=MirrorState.PENDING_SETUP, lag=None, lag_ms=None), R.CATCHING_UP),
        (Follower(state=MirrorState.PAUSED, lag=0, lag_ms=0), R.DISCONNECTED),
        (Follower(state=MirrorState.STOPPED, lag=0, lag_ms=0), R.DISCONNECTED),
        (Follower(state=MirrorState.FAILED, lag=0, lag_ms=0), R.DISCONNECTED),
    ],
)
def test_a_mirror_follows_as_well_as_was_measured(follower: Follower, expected: ReplicationState) -> None:
    assert state(follower) is expected


def test_the_worst_mirror_counts() -> None:
    good, bad = Follower(state=ACTIVE, lag=0, lag_ms=0), Follower(state=ACTIVE, lag=None, lag_ms=None)
    assert state(good, bad) is R.CATCHING_UP


@pytest.mark.parametrize("link", [None, LinkState.PAUSED, LinkState.UNAVAILABLE, LinkState.FAILED])
def test_nothing_follows_without_a_link_that_works(link: LinkState | None) -> None:
    assert state(Follower(state=ACTIVE, lag=0, lag_ms=0), link=link) is R.DISCONNECTED


def test_an_attached_namespace_without_topics_follows() -> None:
    assert state() is R.FOLLOWING


def test_the_namespace_of_everything_leaves_internal_topics_out() -> None:
    assert contains("", "orders")
    assert not contains("", "__consumer_offsets")
    assert contains("_x", "_xy")


def test_prefixes_overlap_where_one_begins_the_other() -> None:
    assert overlap("a", "ab")
    assert overlap("", "ab")
    assert not overlap("a.", "b.")

"""Namespaces: their topics, and how far they follow."""

from __future__ import annotations

import pytest

from linkengine.domain.names import Follower, ReplicationState, contains, overlap, replication_state
from linkengine.domain.states import LinkState, MirrorState

R = ReplicationState
ACTIVE = MirrorState.ACTIVE


GOOD = Follower(state=ACTIVE, lag=0, lag_ms=0)


def state(*mirrors: Follower, link: LinkState | None = LinkState.ACTIVE, unmirrored: int | None = 0) -> ReplicationState:
    return replication_state(link=link, mirrors=mirrors, unmirrored=unmirrored)


@pytest.mark.parametrize("unmirrored", [1, None], ids=["a topic without a mirror", "source's topics unknown"])
def test_a_namespace_with_unmirrored_topics_is_not_in_sync(unmirrored: int | None) -> None:
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
def test_the_state_of_a_mirror_follows_from_its_measured_lag(follower: Follower, expected: ReplicationState) -> None:
    assert state(follower) is expected


def test_the_state_of_a_namespace_is_that_of_its_worst_mirror() -> None:
    good, bad = Follower(state=ACTIVE, lag=0, lag_ms=0), Follower(state=ACTIVE, lag=None, lag_ms=None)
    assert state(good, bad) is R.CATCHING_UP


@pytest.mark.parametrize("link", [None, LinkState.PAUSED, LinkState.UNAVAILABLE, LinkState.FAILED])
def test_a_namespace_without_an_active_link_is_disconnected(link: LinkState | None) -> None:
    assert state(Follower(state=ACTIVE, lag=0, lag_ms=0), link=link) is R.DISCONNECTED


def test_an_empty_namespace_with_an_active_link_is_following() -> None:
    assert state() is R.FOLLOWING


def test_the_namespace_with_the_empty_prefix_contains_no_internal_topics() -> None:
    assert contains("", "orders")
    assert not contains("", "__consumer_offsets")
    assert contains("_x", "_xy")


def test_namespaces_overlap_if_one_prefix_begins_with_the_other() -> None:
    assert overlap("a", "ab")
    assert overlap("", "ab")
    assert not overlap("a.", "b.")

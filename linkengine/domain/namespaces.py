"""Namespaces: topics of a cluster with a common name prefix, and how far they follow another cluster (KIP-986).

The state of a namespace is derived from the measured lag of its mirrors. The worst mirror counts, and an unknown lag is never
treated as in sync. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from linkengine.domain.states import LinkState, MirrorState

CAUGHT_UP_MS = 10_000  # up to this time lag a namespace is FOLLOWING, above it CATCHING_UP
_PENDING = frozenset({MirrorState.PENDING_SETUP, MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR})


class ReplicationState(IntEnum):
    """Replication state of a namespace, worst first: the smallest of several counts."""

    DISCONNECTED = 0  # no link, or a mirror that is no longer copied to
    CATCHING_UP = 1  # behind, or a topic of the source has no mirror, or unknown
    FOLLOWING = 2  # at most a few seconds behind
    IN_SYNC = 3  # has everything that the source has


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """The part of a mirror's status that determines its namespace's state. Unknown is None, never 0."""

    state: MirrorState
    lag: int | None  # offsets in all partitions, including those behind open transactions
    lag_ms: int | None


def contains(prefix: str, topic: str) -> bool:
    """Return whether a topic is in the namespace; the empty prefix leaves out names that begin with an underscore."""
    return topic.startswith(prefix) if prefix else not topic.startswith("_")


def overlap(first: str, second: str) -> bool:
    """Return whether a topic could be in both namespaces."""
    return first.startswith(second) or second.startswith(first)


def replication_state(*, link: LinkState | None, mirrors: Iterable[Follower], unmirrored: int | None) -> ReplicationState:
    """Return the state of a namespace. An empty namespace with an active link is FOLLOWING: it has nothing to catch up with.

    ``unmirrored`` is the number of the source namespace's topics without a mirror, None if they could not be listed.
    """
    if link is not LinkState.ACTIVE:
        return ReplicationState.DISCONNECTED
    states = [_state_of(mirror) for mirror in mirrors]
    if unmirrored is None or unmirrored:
        states.append(ReplicationState.CATCHING_UP)
    return min(states, default=ReplicationState.FOLLOWING)


def _state_of(mirror: Follower) -> ReplicationState:
    if mirror.state in _PENDING:
        return ReplicationState.CATCHING_UP
    if mirror.state is not MirrorState.ACTIVE:
        return ReplicationState.DISCONNECTED
    if mirror.lag is None or mirror.lag_ms is None or mirror.lag_ms > CAUGHT_UP_MS:
        return ReplicationState.CATCHING_UP
    return ReplicationState.FOLLOWING if mirror.lag else ReplicationState.IN_SYNC

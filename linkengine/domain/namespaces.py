"""Namespaces: all topics of a cluster whose names begin alike, and how well such a group follows another cluster (KIP-986).

Pure. States are derived from measured lag of the mirrors in the namespace; the worst of them counts, and what is unknown is
never taken for caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from linkengine.domain.states import LinkState, MirrorState

CAUGHT_UP_MS = 10_000  # an older lag is catching up, a younger one follows
_PENDING = frozenset({MirrorState.PENDING_SETUP, MirrorState.PENDING_SYNCHRONIZE, MirrorState.PENDING_MIRROR})


class ReplicationState(IntEnum):
    """How well a namespace follows, worst first: the smallest of several counts."""

    DISCONNECTED = 0  # no link, or a mirror that is not fed any more
    CATCHING_UP = 1  # behind, a topic of the source has no mirror, or nobody knows
    FOLLOWING = 2  # a few seconds behind at most
    IN_SYNC = 3  # everything the source has


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A mirror as the state of its namespace needs it. Unknown is None, never 0."""

    state: MirrorState
    lag: int | None  # offsets, all partitions, those behind open transactions too
    lag_ms: int | None


def contains(prefix: str, topic: str) -> bool:
    """Tell whether a topic is in the namespace; the one without a prefix leaves out names that begin with an underscore."""
    return topic.startswith(prefix) if prefix else not topic.startswith("_")


def overlap(one: str, other: str) -> bool:
    """Tell whether a topic could be in both namespaces."""
    return one.startswith(other) or other.startswith(one)


def replication_state(*, link: LinkState | None, mirrors: Iterable[Follower], unmirrored: int | None) -> ReplicationState:
    """Answer the state of a namespace; an empty one that is attached has nothing to catch up with and follows.

    ``unmirrored`` counts topics of the source's namespace without a mirror, None where nobody could list them.
    """
    if link is not LinkState.ACTIVE:
        return ReplicationState.DISCONNECTED
    states = [_state_of(one) for one in mirrors]
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

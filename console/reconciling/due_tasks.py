"""The tasks that are due for mirrors and links, by task name. Computed each second, so a lost message is sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from console.models import ClusterLink, MirrorTopic
from console.reconciling import promote_backoff
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import BECOMING, MirrorState, StopReason

_ADVANCED_BY = {
    MirrorState.PENDING_SETUP: "setup_mirror",
    MirrorState.PENDING_STOPPED: "advance_stop",
    MirrorState.PENDING_SYNCHRONIZE: "advance_reversal",
    MirrorState.PENDING_MIRROR: "turn_into_mirror",
    MirrorState.PENDING_SETUP_FOR_RESTORE: "advance_restore",
    MirrorState.PENDING_RESTORE_MIRROR: "advance_restore",
}

# Created or deleted by the hundred at times, without urgency: a failover must find a free thread and a short queue at the same
# time. A failed task waits for its next attempt, so that the others get their turn.
_IN_TURN = frozenset({"setup_mirror", "delete_mirror"})
AT_A_TIME = 16  # of each kind per link; a worker has 64 threads

MANY = 20  # stops of a link; fewer are as fast singly
DueTask = tuple[str, int]  # name of the task, primary key of the mirror


def of_mirrors(*, mirrors: Iterable[MirrorTopic], now: datetime) -> Iterator[DueTask]:
    """Yield the tasks that are due; of those without urgency only the first ones."""
    found = Counter[str]()
    for mirror in mirrors:
        if mirror.deletion_requested_at is not None:
            task = "delete_mirror"
        elif mirror.state in _ADVANCED_BY:
            task = _ADVANCED_BY[MirrorState(mirror.state)]
        else:
            continue
        if promote_backoff.is_postponed(mirror, now=now):
            continue
        if task in _IN_TURN or promote_backoff.takes_turns(mirror):
            found[task] += 1
            if found[task] > AT_A_TIME:
                continue
        yield task, mirror.pk


def stopped_together(mirrors: Iterable[MirrorTopic]) -> frozenset[int]:
    """Return the mirrors (primary keys) that a single task fails over together: many whose fencing has not started."""
    fresh = [
        mirror.pk
        for mirror in mirrors
        if mirror.state == MirrorState.PENDING_STOPPED
        and mirror.stop_reason == StopReason.FAILOVER
        and mirror.fencing_at is None
        and mirror.deletion_requested_at is None
        and mirror.num_partitions
        and mirror.holds_copy
        and mirror.link.gap_filler == GapFiller.MARKERS  # other fences are transactions of each mirror
        and mirror.prior_state not in BECOMING  # the task that makes it a mirror has to give way first
    ]
    return frozenset(fresh) if len(fresh) >= MANY else frozenset()


def is_over(*, link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> bool:
    """Return whether a link that is to be deleted can be deleted now."""
    if link.deletion_requested_at is None:
        return False
    return all(mirror.state == MirrorState.STOPPED and mirror.deletion_requested_at is None for mirror in mirrors)

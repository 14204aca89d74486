"""What still has to be done for a mirror or a link, as names of tasks; asked every second, so that nothing is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from console.models import ClusterLink, MirrorTopic
from console.reconciling import waits
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

# Made or deleted by the hundred now and then, and nobody's recovery waits for them: a failover has to find a free thread and a
# short queue meanwhile. What fails waits for its next try, so that the others get their turn.
_IN_TURN = frozenset({"setup_mirror", "delete_mirror"})
AT_A_TIME = 16  # of each, for one link; a worker has 64 threads

MANY = 20  # stops of one link; below this, one by one is as quick
Chore = tuple[str, int]  # name of the task, primary key of the mirror


def chores_of(*, mirrors: Iterable[MirrorTopic], now: datetime) -> Iterator[Chore]:
    """List the tasks that are due, of those that can wait only the first ones."""
    found = Counter[str]()
    for mirror in mirrors:
        if mirror.deletion_requested_at is not None:
            task = "delete_mirror"
        elif mirror.state in _ADVANCED_BY:
            task = _ADVANCED_BY[MirrorState(mirror.state)]
        else:
            continue
        if waits.is_postponed(mirror, now=now):
            continue
        if task in _IN_TURN or waits.takes_turns(mirror):
            found[task] += 1
            if found[task] > AT_A_TIME:
                continue
        yield task, mirror.pk


def stopped_together(mirrors: Iterable[MirrorTopic]) -> frozenset[int]:
    """Pick the mirrors that one task fails over together: many that nobody has begun to fence."""
    fresh = [
        one.pk
        for one in mirrors
        if one.state == MirrorState.PENDING_STOPPED
        and one.stop_reason == StopReason.FAILOVER
        and one.fencing_at is None
        and one.deletion_requested_at is None
        and one.num_partitions
        and one.holds_copy
        and one.link.gap_filler == GapFiller.MARKERS  # the fence of others is a transaction of their own
        and one.prior_state not in BECOMING  # whoever is making it a mirror has to give way first
    ]
    return frozenset(fresh) if len(fresh) >= MANY else frozenset()


def is_over(*, link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> bool:
    """Tell whether a link that shall be deleted can go now."""
    if link.deletion_requested_at is None:
        return False
    return all(one.state == MirrorState.STOPPED and one.deletion_requested_at is None for one in mirrors)

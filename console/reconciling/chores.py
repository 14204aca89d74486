"""What still has to be done for a mirror or a link, as names of tasks; asked every second, so that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from console.models import ClusterLink, MirrorTopic
from linkengine.domain.states import MirrorState

_ADVANCED_BY = {
    MirrorState.PENDING_SETUP: "setup_mirror",
    MirrorState.PENDING_STOPPED: "advance_stop",
    MirrorState.PENDING_SYNCHRONIZE: "advance_reversal",
    MirrorState.PENDING_MIRROR: "turn_into_mirror",
    MirrorState.PENDING_SETUP_FOR_RESTORE: "advance_restore",
    MirrorState.PENDING_RESTORE_MIRROR: "advance_restore",
}

Chore = tuple[str, int]  # name of the task, primary key of the mirror


def chores_of(*, mirrors: Iterable[MirrorTopic], now: datetime) -> Iterator[Chore]:
    """List the tasks that are due."""
    for mirror in mirrors:
        if mirror.deletion_requested_at is not None:
            task = "delete_mirror"
        elif mirror.state in _ADVANCED_BY:
            task = _ADVANCED_BY[MirrorState(mirror.state)]
        else:
            continue
        if mirror.retry_at is None or mirror.retry_at <= now:
            yield task, mirror.pk


def is_over(*, link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> bool:
    """Tell whether a link that shall be deleted can go now."""
    if link.deletion_requested_at is None:
        return False
    return all(one.state == MirrorState.STOPPED and one.deletion_requested_at is None for one in mirrors)

"""What still has to be done for a mirror or a link, as names of tasks; asked every second, so that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from console.models import ClusterLink, MirrorTopic
from console.reconciling.plans import config_of
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.states import LinkState, MirrorState

SYNCED = {MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE}
SYNCS_PER_ROUND = 20  # of one link; about six requests each

Chore = tuple[str, int]  # name of the task, primary key of the mirror


def chores_of(*, link: ClusterLink, mirrors: Iterable[MirrorTopic], now: datetime) -> Iterator[Chore]:
    """List the tasks that are due."""
    to_sync = []
    for mirror in mirrors:
        if mirror.deletion_requested_at is not None:
            task = "delete_mirror"
        elif mirror.state == MirrorState.PENDING_SETUP:
            task = "setup_mirror"
        elif mirror.state == MirrorState.PENDING_STOPPED:
            task = "advance_stop"
        else:
            to_sync.append(mirror)
            continue
        if mirror.retry_at is None or mirror.retry_at <= now:
            yield task, mirror.pk
    yield from _syncs(link, to_sync, now=now)


def is_over(*, link: ClusterLink, mirrors: Iterable[MirrorTopic]) -> bool:
    """Tell whether a link that shall be deleted can go now."""
    if link.deletion_requested_at is None:
        return False
    return all(one.state == MirrorState.STOPPED and one.deletion_requested_at is None for one in mirrors)


def _syncs(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, now: datetime) -> list[Chore]:
    if link.state == LinkState.PAUSED:
        return []
    every_ms = int(config_of(link, "topic.config.sync.ms") or LINK_CONFIGS["topic.config.sync.ms"].default or 0)
    overdue = now - timedelta(milliseconds=every_ms)
    due = [one for one in mirrors if one.state in SYNCED and (one.synced_at is None or one.synced_at <= overdue)]
    due.sort(key=lambda one: (one.synced_at is not None, one.synced_at or now))
    return [("sync_mirror", one.pk) for one in due[:SYNCS_PER_ROUND]]

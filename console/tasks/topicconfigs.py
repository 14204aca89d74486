"""TopicConfigsSync: partitions and configs of mirror topics follow their sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import structlog
from django.utils import timezone

from console.models import ClusterLink, MirrorTopic
from console.tasks.mirrors import follow_source, load, note_failure
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TASKS, TaskError, TaskName, TaskOutcome
from linkengine.domain.states import MirrorState

SYNCED = (MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE)
MIRRORS_PER_RUN = 50
_FATAL = {
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
    ErrorCode.SOURCE_PARTITIONS_DECREASED,
    ErrorCode.MIRROR_TOPIC_MISSING,
}
_log = structlog.get_logger(__name__)


def follow_topics(link: ClusterLink) -> TaskOutcome:
    """Let partitions and configs of the mirrors that waited longest follow the source once."""
    due = _due(link)
    errors, changes = [], 0
    for mirror_id in due[:MIRRORS_PER_RUN]:
        mirror = load(mirror_id)
        if mirror is None or mirror.deletion_requested_at is not None or mirror.state not in SYNCED:
            continue
        MirrorTopic.objects.filter(pk=mirror_id).update(synced_at=timezone.now())
        try:
            changes += follow_source(mirror)
        except LinkEngineError as error:
            if error.code in _FATAL:
                note_failure(mirror, error, fatal=True, now=timezone.now())
            _log.info("sync.failed", mirror=mirror.name, link=link.name, code=error.code)
            errors.append(TaskError(code=error.code, message=f"{mirror.name}: {error.message}"))
    more = len(due) > MIRRORS_PER_RUN
    return TaskOutcome(errors=tuple(errors), changes=changes, more=more)


def _due(link: ClusterLink) -> Sequence[int]:
    """List the mirrors whose last round is older than half the interval: those that a bounded run has not come to yet."""
    every = timedelta(milliseconds=int(link.config(TASKS[TaskName.TOPIC_CONFIGS].interval_config)))
    mirrors = link.mirrors.filter(state__in=SYNCED, deletion_requested_at=None, num_partitions__gt=0)
    rows = mirrors.order_by("synced_at").values_list("pk", "synced_at")
    newest = timezone.now() - every / 2
    return [pk for pk, synced_at in rows if synced_at is None or synced_at <= newest]

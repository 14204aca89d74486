"""TopicConfigsSync: partitions and configs of mirror topics follow their sources."""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.db.models import F, Q
from django.utils import timezone

from console.models import ClusterLink, MirrorTopic
from console.presenters.numbers import plural
from console.reconciling import followers, plans
from console.tasks.mirrors import note_failure, note_synced
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TASKS, TaskError, TaskName, TaskOutcome
from linkengine.domain.states import MirrorState

SYNCED = (MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE)
MIRRORS_PER_RUN = 500  # one request per cluster and kind
_FATAL = {
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
    ErrorCode.SOURCE_PARTITIONS_DECREASED,
    ErrorCode.MIRROR_TOPIC_MISSING,
}
_log = structlog.get_logger(__name__)


def follow_topics(link: ClusterLink) -> TaskOutcome:
    """Let partitions and configs of the mirrors that waited longest follow the source once."""
    due = _due(link)
    chosen = due[:MIRRORS_PER_RUN]
    if not chosen:
        return TaskOutcome(summary="No mirror topic was due.")
    MirrorTopic.objects.filter(pk__in=[one.pk for one in chosen]).update(synced_at=timezone.now())
    keyless = plans.keyless(chosen)
    wanted = [plans.sync_of(mirror, keyless=mirror.pk in keyless) for mirror in chosen]
    outcomes = jobs.sync_mirrors(wanted, still_mirrors=followers.still_mirrors(link))
    errors, changes = [], 0
    for mirror, outcome in zip(chosen, outcomes, strict=True):
        if isinstance(outcome, LinkEngineError):
            errors.append(_note_error(mirror, outcome))
        else:
            note_synced(mirror, outcome, now=timezone.now())
            changes += len(outcome.changed)
            errors += [_note_error(mirror, outcome.ungrown)] if outcome.ungrown else []
    return TaskOutcome(
        errors=tuple(errors), summary=_summary(len(chosen), changes), changes=changes, more=len(due) > MIRRORS_PER_RUN
    )


def _summary(mirrors: int, changes: int) -> str:
    return f"{plural(mirrors, 'mirror topic')} compared with their sources; {plural(changes, 'config')} set by the last run."


def _note_error(mirror: MirrorTopic, error: LinkEngineError) -> TaskError:
    if error.code in _FATAL:
        note_failure(mirror, error, fatal=True, now=timezone.now())
    _log.info("sync.failed", mirror=mirror.name, link=mirror.link.name, code=error.code)
    return TaskError(code=error.code, message=f"{mirror.name}: {error.message}")


def _due(link: ClusterLink) -> list[MirrorTopic]:
    """List the mirrors whose last round is older than half the interval: those that a bounded run has not come to yet."""
    every = timedelta(milliseconds=int(link.config(TASKS[TaskName.TOPIC_CONFIGS].interval_config)))
    mirrors = link.mirrors.filter(state__in=SYNCED, deletion_requested_at=None, num_partitions__gt=0)
    newest = timezone.now() - every / 2
    waiting = mirrors.filter(Q(synced_at=None) | Q(synced_at__lte=newest)).order_by(F("synced_at").asc(nulls_first=True))
    found = list(waiting[: MIRRORS_PER_RUN + 1])
    for mirror in found:
        mirror.link = link
    return found

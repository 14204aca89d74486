"""The recurring task TopicConfigsSync: applies partition counts and configs of source topics to their mirrors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain

import structlog
from django.db.models import QuerySet
from django.utils import timezone

from console.models import ClusterLink, MirrorTopic
from console.presenters.numbers import plural
from console.reconciling import plans, tombstones, topic_configs
from console.workflows.mirrors import note_failure, note_synced
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskError, TaskOutcome
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import MirrorState

SYNCED = (MirrorState.ACTIVE, MirrorState.PENDING_SYNCHRONIZE)
MIRRORS_AT_ONCE = 500  # in a single request per cluster and kind
RUN_S = 60.0  # a longer run stops between two batches, since tasks of other links need the thread too
_FATAL = {
    ErrorCode.SOURCE_TOPIC_ID_CHANGED,
    ErrorCode.SOURCE_PARTITIONS_DECREASED,
    ErrorCode.MIRROR_TOPIC_MISSING,
    ErrorCode.MIRROR_WAS_STOPPED,
}
_log = structlog.get_logger(__name__)


def follow_topics(link: ClusterLink) -> TaskOutcome:
    """Sync partitions and configs of all mirrors once, starting after the last batch that the previous run began.

    If the time is over before the end, the outcome says so and the next run follows at once. The position is stored once per
    batch, before it: a run that ends early, fails or crashes does not keep the mirrors behind it from being synced. A run that
    finds no difference writes nothing else; what it did is in the row of the task (``LinkTask``).
    """
    waiting, deadline = _waiting(link), time.monotonic() + RUN_S
    batches = [waiting[start : start + MIRRORS_AT_ONCE] for start in range(0, len(waiting), MIRRORS_AT_ONCE)]
    parts: list[TaskOutcome] = []
    while len(parts) < len(batches) and not (parts and time.monotonic() > deadline):
        batch = batches[len(parts)]
        if len(batches) > 1:
            ClusterLink.objects.filter(pk=link.pk).update(config_sync_position=batch[-1])
        parts.append(_follow(link, batch))
    left = sum(len(batch) for batch in batches[len(parts) :])
    errors = [_unfinished(left)] if left else []
    changes = sum(part.changes for part in parts)
    return TaskOutcome(
        errors=tuple(chain(errors, *(part.errors for part in parts))),
        summary=_summary(len(waiting) - left, changes),
        changes=changes,
        more=left > 0,
    )


def _follow(link: ClusterLink, mirror_ids: Sequence[int]) -> TaskOutcome:
    chosen = list(_mirrors(link).filter(pk__in=mirror_ids))
    if not chosen:
        return TaskOutcome()
    keyless, late, asked_at = plans.keyless(chosen), tombstones.kept_late(chosen), timezone.now()
    wanted = [plans.sync_of(mirror, keyless=mirror.pk in keyless) for mirror in chosen]
    outcomes = jobs.sync_mirrors(wanted, still_mirrors=topic_configs.still_mirrors(link))
    errors, changes = [], 0
    for mirror, outcome in zip(chosen, outcomes, strict=True):
        if isinstance(outcome, LinkEngineError):
            errors.append(_note_error(mirror, outcome))
        else:
            note_synced(mirror, outcome, now=timezone.now(), asked_at=asked_at if mirror.pk in late else None)
            changes += len(outcome.changed)
            errors += [_note_error(mirror, outcome.ungrown)] if outcome.ungrown else []
            errors += [_refused(mirror, step) for step in outcome.refused]
    return TaskOutcome(errors=tuple(errors), changes=changes)


def _summary(mirrors: int, changes: int) -> str:
    return f"{plural(mirrors, 'mirror topic')} compared with their sources; {plural(changes, 'config')} set by the last run."


def _note_error(mirror: MirrorTopic, error: LinkEngineError) -> TaskError:
    if error.code in _FATAL:
        note_failure(mirror, error, fatal=True, now=timezone.now())
    _log.info("sync.failed", mirror=mirror.name, link=mirror.link.name, code=error.code)
    return TaskError(code=error.code, message=f"{mirror.name}: {error.message}")


def _refused(mirror: MirrorTopic, step: RefusedStep) -> TaskError:
    """Return what the destination refuses. It is retried with each run; a stop retries it too and reports it."""
    return TaskError(code=step.code, message=f"{mirror.name}: {step.name}={step.value or '(cluster default)'}: {step.message}")


def _unfinished(left: int) -> TaskError:
    message = (
        f"{plural(left, 'mirror topic')} not synced within {RUN_S:.0f} seconds. The next run follows at once, with them first."
    )
    return TaskError(code=ErrorCode.TIMEOUT_ERROR, message=message)


def _waiting(link: ClusterLink) -> list[int]:
    """Return the primary keys of the mirrors, beginning after the stored position."""
    keys, position = list(_mirrors(link).order_by("pk").values_list("pk", flat=True)), link.config_sync_position or 0
    return [key for key in keys if key > position] + [key for key in keys if key <= position]


def _mirrors(link: ClusterLink) -> QuerySet[MirrorTopic]:
    return link.mirrors.filter(state__in=SYNCED, deletion_requested_at=None, num_partitions__gt=0)

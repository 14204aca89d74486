"""Schedules the recurring tasks of links and stores the results of their runs."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F

from console.models import ClusterLink, LinkTask
from console.models.links import show_change
from linkengine.domain.linktasks import ERRORS_KEPT, TASKS, TaskName, TaskOutcome, TaskSpec, is_configured
from linkengine.domain.moments import is_due
from linkengine.domain.states import LinkState

MORE_AFTER = timedelta(milliseconds=500)  # pause before the next run if a run stopped at its limit


def due_tasks(*, link: ClusterLink, mirrors: bool, now: datetime) -> list[TaskName]:
    """Return the tasks to run now; ``mirrors``: whether the link has mirrors that are not stopped. Takes a query."""
    if link.state != LinkState.ACTIVE or link.deletion_requested_at is not None:
        return []
    rows = {row.name: row for row in link.tasks.all()}
    configured = [spec for spec in TASKS.values() if is_configured(spec, value_of=link.config, mirrors=mirrors)]
    return [spec.name for spec in configured if _is_due(rows.get(spec.name), longest=_interval(spec, link), now=now)]


def begin(*, link: ClusterLink, name: TaskName, mirrors: bool, now: datetime) -> LinkTask | None:
    """Store the start of a run and return its row, or None if it is no longer due. The caller must hold the task's lock."""
    if name not in due_tasks(link=link, mirrors=mirrors, now=now):
        return None
    row, _ = LinkTask.objects.get_or_create(link=link, name=name)
    # Schedule the next run now, so that a run whose worker crashes is not repeated immediately.
    values = {"started_at": now, "requested_at": None, "next_run_at": now + _interval(TASKS[name], link)}
    LinkTask.objects.filter(pk=row.pk).update(**values)
    for field, value in values.items():
        setattr(row, field, value)
    return row


def finish(*, row: LinkTask, outcome: TaskOutcome, now: datetime) -> None:
    """Store the result of a run."""
    errors = [{"code": error.code, "message": error.message} for error in outcome.errors[:ERRORS_KEPT]]
    changed = errors != row.errors or outcome.summary != row.summary or row.finished_at is None
    LinkTask.objects.filter(pk=row.pk).update(
        finished_at=now,
        succeeded_at=row.succeeded_at if errors else now,
        failing_since=(row.failing_since or now) if errors else None,
        errors=errors,
        error_count=len(outcome.errors),
        summary=outcome.summary,
        runs=F("runs") + 1,
        failures=F("failures") + int(bool(errors)),  # PostgreSQL cannot add a boolean
        changes=F("changes") + outcome.changes,
    )
    if outcome.more:
        LinkTask.objects.filter(pk=row.pk).update(next_run_at=now + MORE_AFTER)
    if changed or outcome.more:  # the new sequence ends the rest of the link (``tasks.resting``)
        show_change(row.link_id)


def _is_due(row: LinkTask | None, *, longest: timedelta, now: datetime) -> bool:
    return row is None or row.requested_at is not None or is_due(row.next_run_at, now=now, longest=longest)


def _interval(spec: TaskSpec, link: ClusterLink) -> timedelta:
    return timedelta(milliseconds=int(link.config(spec.interval_config)))

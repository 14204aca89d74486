"""What a link's tasks are doing: those that run again and again, and the two that never end, Copy and Verify.

A task that was never asked for is NOT_CONFIGURED. Copying and verifying have rows of their own and are told as tasks too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import prefetch_related_objects

from console.models import ClusterLink, LinkTask, MirrorTopic, StateTransitionError, VerifyRun
from console.models.mirrors import RECORDS_DIFFER
from console.policies import state_of_task, why_not_run
from console.queries.verification import is_continuous
from linkengine.domain.errors import ErrorCode
from linkengine.domain.linktasks import ERRORS_KEPT, TASKS, TaskError, TaskName, TaskState, is_configured, task_state
from linkengine.domain.states import WRITABLE, LinkState

COPY, VERIFY = "MirrorTopicCopy", "MirrorTopicVerify"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task as pages and REST show it; times are None where there was no such moment."""

    name: str
    state: TaskState
    errors: tuple[TaskError, ...] = ()
    error_count: int = 0
    summary: str = ""
    interval_ms: int | None = None  # None: not run by the clock
    started_at: datetime | None = None
    finished_at: datetime | None = None
    succeeded_at: datetime | None = None
    failing_since: datetime | None = None
    next_run_at: datetime | None = None
    requested_at: datetime | None = None
    requested_by: str = ""
    runs: int = 0
    failures: int = 0
    changes: int = 0
    can_run: bool = False  # "run now" exists for it
    why_not: str = ""  # it exists, but is not possible now


def list_tasks(*, link: ClusterLink) -> list[TaskView]:
    """List all tasks of a link, copying first; six queries."""
    prefetch_related_objects([link], "configs")
    copying = MirrorTopic.objects.filter(link=link).exclude(state__in=WRITABLE).exists()
    rows = {row.name: row for row in link.tasks.all()}
    recurring = [_recurring(link, name, rows.get(name), mirrors=copying) for name in TASKS]
    return [_copy(link, copying=copying), _verify(link, copying=copying), *recurring]


def failing_tasks(*, link: ClusterLink) -> list[tuple[str, int]]:
    """List (name, errors) of the recurring tasks whose last run left something undone; one query, two if there are some."""
    rows = list(link.tasks.filter(error_count__gt=0))
    if not rows:
        return []
    prefetch_related_objects([link], "configs")
    on = [row for row in rows if is_configured(TASKS[TaskName(row.name)], value_of=link.config, mirrors=True)]
    return [(row.name, row.error_count) for row in on]


def get_task(*, link: ClusterLink, name: str) -> TaskView | None:
    """Answer one task, None where there is none of the name."""
    return next((one for one in list_tasks(link=link) if one.name == name), None)


def _recurring(link: ClusterLink, name: TaskName, row: LinkTask | None, *, mirrors: bool) -> TaskView:
    state = state_of_task(link, name, row=row, mirrors=mirrors)
    off = state is TaskState.NOT_CONFIGURED
    why_not = why_not_run(link, name, state=state)
    interval_ms = int(link.config(TASKS[name].interval_config))
    if row is None:
        return TaskView(name=name, state=state, interval_ms=interval_ms, can_run=True, why_not=why_not)
    return TaskView(
        name=name,
        state=state,
        errors=() if off else tuple(TaskError(code=one["code"], message=one["message"]) for one in row.errors),
        error_count=0 if off else row.error_count,
        summary="" if off else row.summary,
        interval_ms=interval_ms,
        started_at=row.started_at,
        finished_at=row.finished_at,
        succeeded_at=row.succeeded_at,
        failing_since=None if off else row.failing_since,
        next_run_at=None if why_not else row.next_run_at,
        requested_at=row.requested_at,
        requested_by=row.requested_by,
        runs=row.runs,
        failures=row.failures,
        changes=row.changes,
        can_run=True,
        why_not=why_not,
    )


def _copy(link: ClusterLink, *, copying: bool) -> TaskView:
    errors = _copy_errors(link) if copying else []
    state = task_state(configured=copying, link_state=LinkState(link.state), has_run=True, errors=len(errors))
    return TaskView(name=COPY, state=state, errors=tuple(errors), error_count=len(errors))


def _copy_errors(link: ClusterLink) -> list[TaskError]:
    failed = MirrorTopic.objects.filter(link=link, drill=None).exclude(state__in=WRITABLE).exclude(error_code="")
    permanent = failed.values_list("name", "error_code", "error_message")[:ERRORS_KEPT]
    told = StateTransitionError.objects.filter(mirror__link=link, mirror__drill=None)
    pending = told.exclude(code=RECORDS_DIFFER)[:ERRORS_KEPT]
    found = [TaskError(code=code, message=f"{name}: {message}") for name, code, message in permanent]
    found += [TaskError(code=one.code, message=one.message) for one in pending]
    if link.engine_error:
        found.append(TaskError(code=ErrorCode.INTERNAL_ERROR, message=link.engine_error))
    return found


def _verify(link: ClusterLink, *, copying: bool) -> TaskView:
    latest = VerifyRun.objects.filter(mirror__link=link).select_related("mirror").order_by("mirror", "-requested_at", "-id")
    newest = {run.mirror_id: run for run in reversed(latest[:1000])}
    bad = {VerifyRun.Status.DIFFERENT, VerifyRun.Status.ERROR}
    found = {run.mirror_id: _verify_error(run) for run in newest.values() if run.status in bad}
    for alarm in StateTransitionError.objects.filter(mirror__link=link, code=RECORDS_DIFFER)[:ERRORS_KEPT]:
        found[alarm.mirror_id] = TaskError(code=alarm.code, message=alarm.message)
    errors = tuple(found.values())
    configured = bool(newest) or (copying and is_continuous(link=link))
    state = TaskState.IN_ERROR if errors else TaskState.ACTIVE if configured else TaskState.NOT_CONFIGURED
    return TaskView(name=VERIFY, state=state, errors=errors[:ERRORS_KEPT], error_count=len(errors))


def _verify_error(run: VerifyRun) -> TaskError:
    if run.status == VerifyRun.Status.ERROR:
        return TaskError(code=ErrorCode.INTERNAL_ERROR, message=f"{run.mirror.name}: {run.error_message}")
    what = "1 record differs" if run.differences == 1 else f"{run.differences} records differ"
    return TaskError(code=RECORDS_DIFFER, message=f"{run.mirror.name}: {what}.")

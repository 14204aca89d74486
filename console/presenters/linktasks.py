"""View models of the recurring tasks of a link: label, meaning, times and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from console.presenters import numbers
from console.presenters.badges import Badge, Family
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.queries.linktasks import COPY, VERIFY, TaskView
from linkengine.domain.linktasks import TaskName, TaskState

ERRORS_SHOWN = 10
_S = TaskState


def _look(code: TaskState, label: str, icon: str, family: Family, **words: str) -> Badge:
    return Badge(code=code, label=label, icon=icon, family=family, **words)


TASK_LOOKS: Mapping[TaskState, Badge] = MappingProxyType(
    {
        TaskState(look.code): look
        for look in (
            _look(_S.ACTIVE, "Active", "check-circle-fill", Family.OK, meaning="Last run succeeded."),
            _look(
                _S.IN_ERROR,
                "In error",
                "x-octagon-fill",
                Family.BAD,
                meaning="The last run had errors.",
                next_step="Fix the cause. The task is retried automatically.",
            ),
            _look(
                _S.NOT_CONFIGURED,
                "Not configured",
                "circle-half",
                Family.DONE,
                meaning="The task is turned off, or has nothing to do.",
                next_step="To turn it on, change the link's configuration.",
            ),
            _look(
                _S.UNKNOWN,
                "No run yet",
                "hourglass-split",
                Family.BUSY,
                meaning="The task is turned on. No run has finished yet.",
                next_step="Wait for the first run. If none starts, check that the worker is running.",
            ),
            _look(
                _S.LINK_PAUSED,
                "Link paused",
                "pause-circle-fill",
                Family.IDLE,
                meaning="The link is paused. Its tasks do not run.",
                next_step="Resume the link.",
            ),
            _look(
                _S.LINK_UNAVAILABLE,
                "Source unreachable",
                "plug-fill",
                Family.WARN,
                meaning="The source cluster does not respond. The task resumes automatically when it does.",
                next_step="Check the source cluster and the network.",
            ),
            _look(
                _S.LINK_FAILED,
                "Link failed",
                "link-45deg",
                Family.BAD,
                meaning="The source rejects the link's credentials, permissions or configuration.",
                next_step="Correct the link's configuration. The task then resumes automatically.",
            ),
        )
    }
)
_TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        COPY: ("Copy records", "Copies the records of all mirror topics that are not paused, continuously."),
        VERIFY: ("Verify records", "Compares mirror topics with their source topics, record by record."),
        TaskName.AUTO_CREATE: ("Auto-create mirror topics", "Creates mirror topics for source topics that match the filters."),
        TaskName.TOPIC_CONFIGS: ("Sync topic configs", "Applies configs and partition counts of source topics to mirrors."),
        TaskName.CONSUMER_OFFSETS: ("Sync consumer offsets", "Copies consumer group offsets from the source."),
        TaskName.ACLS: ("Sync ACLs", "Copies ACLs from the source."),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A recurring task."""

    name: str
    label: str
    explains: str
    look: Badge
    summary: str
    errors: Sequence[ErrorNote]
    more_errors: int  # not shown
    every: str  # interval, "" for continuous tasks
    started: Moment | None
    duration: str
    succeeded: Moment | None
    failing_since: Moment | None
    next_run: Moment | None
    due: bool  # the next run is due and has not started
    requested_by: str  # user who requested the next run, "" if none
    can_run: bool
    why_not: str


def task_row(task: TaskView, *, now: datetime) -> TaskRow:
    """Create the row of a task."""
    label, explains = _TEXTS[task.name]
    notes = [error_note(error.code, error.message, now=now) for error in task.errors[:ERRORS_SHOWN]]
    return TaskRow(
        name=task.name,
        label=label,
        explains=explains,
        look=TASK_LOOKS[task.state],
        summary=task.summary,
        errors=[note for note in notes if note],
        more_errors=max(0, task.error_count - ERRORS_SHOWN),
        every=numbers.duration(task.interval_ms) if task.interval_ms else "",
        started=moment(task.started_at, now=now),
        duration=_duration(task),
        succeeded=moment(task.succeeded_at, now=now),
        failing_since=moment(task.failing_since, now=now),
        next_run=moment(task.next_run_at, now=now),
        due=task.next_run_at is not None and task.next_run_at <= now,
        requested_by=task.requested_by if task.requested_at else "",
        can_run=task.can_run,
        why_not=task.why_not,
    )


def task_label(name: str) -> str:
    return _TEXTS[name][0]


def _duration(task: TaskView) -> str:
    if task.started_at is None:
        return ""
    if task.finished_at is None or task.finished_at < task.started_at:
        return "running"
    return numbers.duration((task.finished_at - task.started_at).total_seconds() * 1000)

"""The tasks of a link as people read them: label, meaning, times, errors with their way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.queries.linktasks import COPY, VERIFY, TaskView
from linkengine.domain.linktasks import TaskName, TaskState

ERRORS_SHOWN = 10
_S = TaskState


def _look(code: TaskState, label: str, icon: str, family: Family, **words: str) -> Look:
    return Look(code=code, label=label, icon=icon, family=family, **words)


TASK_LOOKS: Mapping[TaskState, Look] = MappingProxyType(
    {
        TaskState(one.code): one
        for one in (
            _look(_S.ACTIVE, "Active", "check-circle-fill", Family.OK, meaning="The last run did all there was to do."),
            _look(
                _S.IN_ERROR,
                "In error",
                "x-octagon-fill",
                Family.BAD,
                meaning="The last run left something undone; the errors say what.",
                next_step="Mend the cause; it is tried again by itself.",
            ),
            _look(
                _S.NOT_CONFIGURED,
                "Not configured",
                "circle-half",
                Family.DONE,
                meaning="The task is switched off, or has nothing to work on.",
                next_step="Switch it on in the link's configuration if you want it.",
            ),
            _look(
                _S.UNKNOWN,
                "No run yet",
                "hourglass-split",
                Family.BUSY,
                meaning="The task is switched on, but no run has ended yet.",
                next_step="Wait for the first run; if none comes, look whether the worker runs.",
            ),
            _look(
                _S.LINK_PAUSED,
                "Link paused",
                "pause-circle-fill",
                Family.IDLE,
                meaning="The link is paused, and its tasks with it.",
                next_step="Resume the link.",
            ),
            _look(
                _S.LINK_UNAVAILABLE,
                "Source unreachable",
                "plug-fill",
                Family.WARN,
                meaning="The source cluster does not answer; the task goes on by itself when it does.",
                next_step="Check the source cluster and the network.",
            ),
            _look(
                _S.LINK_FAILED,
                "Link failed",
                "link-45deg",
                Family.BAD,
                meaning="The source refuses the link's credentials, rights or settings.",
                next_step="Correct the link's configuration; the task then goes on by itself.",
            ),
        )
    }
)
_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        COPY: ("Copy records", "Copies the records of every mirror topic that is not paused, all the time."),
        VERIFY: ("Verify records", "Compares mirrors with their sources, record by record."),
        TaskName.AUTO_CREATE: ("Create mirror topics", "Mirrors the source topics that the link's filters choose."),
        TaskName.TOPIC_CONFIGS: ("Sync topic configs", "Lets configs and partitions of mirror topics follow their sources."),
        TaskName.CONSUMER_OFFSETS: ("Sync consumer offsets", "Carries the offsets of consumer groups over."),
        TaskName.ACLS: ("Sync ACLs", "Carries access rules over from the source."),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One task on the page."""

    name: str
    label: str
    explains: str
    look: Look
    summary: str
    errors: Sequence[ErrorNote]
    more_errors: int  # not shown
    every: str  # "" for tasks that never end
    started: Moment | None
    duration: str
    succeeded: Moment | None
    failing_since: Moment | None
    next_run: Moment | None
    due: bool  # its time has come, and nobody has begun yet
    requested_by: str  # of a run that is waited for
    can_run: bool
    why_not: str


def task_row(task: TaskView, *, now: datetime) -> TaskRow:
    """Present one task."""
    label, explains = _WORDS[task.name]
    notes = [error_note(one.code, one.message, now=now) for one in task.errors[:ERRORS_SHOWN]]
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
    return _WORDS[name][0]


def _duration(task: TaskView) -> str:
    if task.started_at is None:
        return ""
    if task.finished_at is None or task.finished_at < task.started_at:
        return "under way"
    return numbers.duration((task.finished_at - task.started_at).total_seconds() * 1000)

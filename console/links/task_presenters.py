"""View models of the recurring tasks and of the source topics of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from django.utils.translation import gettext, gettext_noop

from console.languages import translated
from console.links.task_queries import COPY, VERIFY, TaskView
from console.web import numbers
from console.web.badges import Badge, Family, mirror_badge
from console.web.errors import ErrorNote, error_note
from console.web.health_presenters import HealthView, health_view
from console.web.numbers import Moment, moment
from linkengine.domain.health import HealthStatus
from linkengine.domain.linktasks import TaskName, TaskState
from linkengine.domain.mirrorability import CheckCode, CheckedTopic, MirrorabilityStatus

# --- recurring tasks --------------------------------------------------------------------------------------------------


ERRORS_SHOWN = 10
_S = TaskState


def _badge(code: TaskState, label: str, icon: str, family: Family, **words: str) -> Badge:
    return Badge(code=code, label=label, icon=icon, family=family, **words)


TASK_BADGES: Mapping[TaskState, Badge] = MappingProxyType(
    {
        TaskState(badge.code): badge
        for badge in (
            _badge(
                _S.ACTIVE, gettext_noop("Active"), "check-circle-fill", Family.OK, meaning=gettext_noop("Last run succeeded.")
            ),
            _badge(
                _S.IN_ERROR,
                gettext_noop("In error"),
                "x-octagon-fill",
                Family.BAD,
                meaning=gettext_noop("The last run had errors."),
                next_step=gettext_noop("Fix the cause. The task is retried automatically."),
            ),
            _badge(
                _S.NOT_CONFIGURED,
                gettext_noop("Not configured"),
                "circle-half",
                Family.DONE,
                meaning=gettext_noop("The task is turned off, or has nothing to do."),
                next_step=gettext_noop("To turn it on, change the link's configuration."),
            ),
            _badge(
                _S.UNKNOWN,
                gettext_noop("No run yet"),
                "hourglass-split",
                Family.BUSY,
                meaning=gettext_noop("The task is turned on. No run has finished yet."),
                next_step=gettext_noop("Wait for the first run. If none starts, check that the worker is running."),
            ),
            _badge(
                _S.LINK_PAUSED,
                gettext_noop("Link paused"),
                "pause-circle-fill",
                Family.IDLE,
                meaning=gettext_noop("The link is paused. Its tasks do not run."),
                next_step=gettext_noop("Resume the link."),
            ),
            _badge(
                _S.LINK_UNAVAILABLE,
                gettext_noop("Source unreachable"),
                "plug-fill",
                Family.WARN,
                meaning=gettext_noop("The source cluster does not respond. The task resumes automatically when it does."),
                next_step=gettext_noop("Check the source cluster and the network."),
            ),
            _badge(
                _S.LINK_FAILED,
                gettext_noop("Link failed"),
                "link-45deg",
                Family.BAD,
                meaning=gettext_noop("The source rejects the link's credentials, permissions or configuration."),
                next_step=gettext_noop("Correct the link's configuration. The task then resumes automatically."),
            ),
        )
    }
)
_TEXTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        COPY: (
            gettext_noop("Copy records"),
            gettext_noop("Copies the records of all mirror topics that are not paused, continuously."),
        ),
        VERIFY: (
            gettext_noop("Verify records"),
            gettext_noop("Compares mirror topics with their source topics, record by record."),
        ),
        TaskName.AUTO_CREATE: (
            gettext_noop("Auto-create mirror topics"),
            gettext_noop("Creates mirror topics for source topics that match the filters."),
        ),
        TaskName.TOPIC_CONFIGS: (
            gettext_noop("Sync topic configs"),
            gettext_noop("Applies configs and partition counts of source topics to mirrors."),
        ),
        TaskName.CONSUMER_OFFSETS: (
            gettext_noop("Sync consumer offsets"),
            gettext_noop("Copies consumer group offsets from the source."),
        ),
        TaskName.ACLS: (gettext_noop("Sync ACLs"), gettext_noop("Copies ACLs from the source.")),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A recurring task."""

    name: str
    label: str
    explains: str
    badge: Badge
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
        label=gettext(label),
        explains=gettext(explains),
        badge=TASK_BADGES[task.state],
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
    return gettext(_TEXTS[name][0])


def _duration(task: TaskView) -> str:
    if task.started_at is None:
        return ""
    if task.finished_at is None or task.finished_at < task.started_at:
        return gettext("running")
    return numbers.duration((task.finished_at - task.started_at).total_seconds() * 1000)


# --- source topics ----------------------------------------------------------------------------------------------------


STANDING_BADGES: Mapping[MirrorabilityStatus, Badge] = MappingProxyType(
    {
        MirrorabilityStatus.MIRRORED: Badge(
            code=MirrorabilityStatus.MIRRORED,
            label=gettext_noop("Mirrored"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("The link has a mirror topic for it."),
        ),
        MirrorabilityStatus.WAITING: Badge(
            code=MirrorabilityStatus.WAITING,
            label=gettext_noop("Pending"),
            icon="hourglass-split",
            family=Family.BUSY,
            meaning=gettext_noop("The next auto-create run creates its mirror topic."),
            next_step=gettext_noop("Wait, or run the task AutoCreateMirror now."),
        ),
        MirrorabilityStatus.NOT_MIRRORED: Badge(
            code=MirrorabilityStatus.NOT_MIRRORED,
            label=gettext_noop("Not mirrored"),
            icon="circle-half",
            family=Family.DONE,
            meaning=gettext_noop("At least one check prevents it from being mirrored."),
        ),
    }
)
CHECK_LABELS: Mapping[CheckCode, str] = MappingProxyType(
    {
        CheckCode.SOURCE_TOPIC: gettext_noop("Source topic"),
        CheckCode.INTERNAL_TOPIC: gettext_noop("Internal topic"),
        CheckCode.AUTO_CREATE: gettext_noop("Auto-create"),
        CheckCode.INCLUDED: gettext_noop("Included"),
        CheckCode.NOT_EXCLUDED: gettext_noop("Not excluded"),
        CheckCode.MIRROR_NAME: gettext_noop("Mirror topic name"),
        CheckCode.STOPPED_MIRROR: gettext_noop("Stopped mirror"),
        CheckCode.RING: gettext_noop("Replication loop"),
        CheckCode.CHAIN: gettext_noop("Chained mirrors"),
        CheckCode.NAMESPACE: gettext_noop("Namespace"),
        CheckCode.MIRRORED_ELSEWHERE: gettext_noop("Other links"),
        CheckCode.NAME_FREE: gettext_noop("Name on destination"),
        CheckCode.LINK_STATE: gettext_noop("Link state"),
        CheckCode.LAST_TRY: gettext_noop("Last attempt"),
    }
)
# Failed checks with which a mirror topic cannot be added; the others are of auto-create or only warn.
_PREVENTING = frozenset(
    {
        CheckCode.SOURCE_TOPIC,
        CheckCode.INTERNAL_TOPIC,
        CheckCode.MIRROR_NAME,
        CheckCode.STOPPED_MIRROR,
        CheckCode.RING,
        CheckCode.NAMESPACE,
        CheckCode.MIRRORED_ELSEWHERE,
        CheckCode.NAME_FREE,
        CheckCode.LINK_STATE,
    }
)
_CHECK_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "PASSED": Badge(
            code="PASSED",
            label=gettext_noop("Passed"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("The check passed."),
        ),
        "FAILED": Badge(
            code="FAILED",
            label=gettext_noop("Blocking"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("The check prevents the topic from being mirrored."),
        ),
        "NOTED": Badge(
            code="NOTED",
            label=gettext_noop("Failed, will be retried"),
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning=gettext_noop("The last attempt failed. The next run of the task repeats it."),
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A check of a source topic."""

    label: str
    badge: Badge
    finding: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicRow:
    """A source topic. ``reason`` is the finding of the first failed check."""

    name: str
    badge: Badge
    reason: str
    mirror: str
    is_mirrored: bool
    state: Badge | None  # of the mirror topic
    health: HealthView | None  # of the mirror topic; None: not derived for this list
    mirrorable: bool  # a mirror topic can be added, whatever the auto-create filters say


def source_topic_row(checked: CheckedTopic, *, health: HealthStatus | None = None) -> SourceTopicRow:
    """Create the row of a source topic. ``health`` is that of its mirror topic."""
    failed = checked.failed
    mirrored = checked.standing is MirrorabilityStatus.MIRRORED
    return SourceTopicRow(
        name=checked.topic,
        badge=STANDING_BADGES[checked.standing],
        reason=translated(failed[0].finding) if failed else "",
        mirror=checked.mirror,
        is_mirrored=mirrored,
        state=mirror_badge(checked.mirror_state, checked.stop_reason) if checked.mirror_state else None,
        health=health_view(health) if health else None,
        mirrorable=is_mirrorable(checked),
    )


def is_mirrorable(checked: CheckedTopic) -> bool:
    """Return whether a mirror topic can be added for the topic, whatever the auto-create filters include."""
    return checked.standing is not MirrorabilityStatus.MIRRORED and not any(
        check.code in _PREVENTING for check in checked.failed
    )


def check_rows(checked: CheckedTopic) -> Sequence[CheckRow]:
    """Return the checks, failed checks first."""
    checks = sorted(checked.checks, key=lambda check: check.passed)
    return [
        CheckRow(
            label=gettext(CHECK_LABELS[check.code]),
            badge=_CHECK_BADGES["PASSED" if check.passed else "FAILED" if check.blocks else "NOTED"],
            finding=translated(check.finding),
            next_step=translated(check.next_step),
        )
        for check in checks
    ]

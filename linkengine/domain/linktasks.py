"""The recurring tasks of a link: which exist, what enables them, how often they run, and the result of a run.

Names and states are those that Confluent's Kafka REST v3 lists for a link (``include_tasks``). Its tasks ``Copy`` and
``Verify`` are not recurring tasks here and have no entry. The functions read neither clock nor database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from linkengine.domain.states import LinkMode, LinkState

ERRORS_KEPT = 50  # per run; the total number is kept as well


class TaskName(StrEnum):
    """A recurring task of a link."""

    CONSUMER_OFFSETS = "ConsumerOffsetSync"
    AUTO_CREATE = "AutoCreateMirror"
    ACLS = "AclSync"
    TOPIC_CONFIGS = "TopicConfigsSync"


class TaskState(StrEnum):
    """State of a task, as REST reports it."""

    UNKNOWN = "UNKNOWN"  # enabled, but no run has ended yet
    ACTIVE = "ACTIVE"
    IN_ERROR = "IN_ERROR"  # the last run had errors
    NOT_CONFIGURED = "NOT_CONFIGURED"
    LINK_FAILED = "LINK_FAILED"
    LINK_UNAVAILABLE = "LINK_UNAVAILABLE"
    LINK_PAUSED = "LINK_PAUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One row of the table."""

    name: TaskName
    interval_config: str  # in ms
    enable_config: str = ""  # "": always enabled while the link has mirrors
    other_configs: tuple[str, ...] = ()  # any change makes the task run at once

    @property
    def configs(self) -> frozenset[str]:
        """All configs that affect the task."""
        return frozenset({self.interval_config, self.enable_config, *self.other_configs} - {""})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskError:
    """Something that a run could not do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """Result of a run. Without errors, everything that was due is done."""

    errors: tuple[TaskError, ...] = ()
    summary: str = ""  # a sentence for users
    changes: int = 0  # number of topics created, configs set or offsets committed, depending on the task
    more: bool = False  # the run stopped at its limit; the next run is to follow at once


TASKS: Mapping[TaskName, TaskSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            TaskSpec(
                name=TaskName.CONSUMER_OFFSETS,
                interval_config="consumer.offset.sync.ms",
                enable_config="consumer.offset.sync.enable",
                other_configs=("consumer.offset.group.filters",),
            ),
            TaskSpec(
                name=TaskName.AUTO_CREATE,
                interval_config="metadata.max.age.ms",
                enable_config="auto.create.mirror.topics.enable",
                other_configs=("auto.create.mirror.topics.filters",),
            ),
            TaskSpec(
                name=TaskName.ACLS,
                interval_config="acl.sync.ms",
                enable_config="acl.sync.enable",
                other_configs=("acl.filters",),
            ),
            TaskSpec(
                name=TaskName.TOPIC_CONFIGS,
                interval_config="topic.config.sync.ms",
                other_configs=("topic.config.sync.include",),
            ),
        )
    }
)
_BY_LINK_STATE: Mapping[LinkState, TaskState] = MappingProxyType(
    {
        LinkState.PAUSED: TaskState.LINK_PAUSED,
        LinkState.FAILED: TaskState.LINK_FAILED,
        LinkState.UNAVAILABLE: TaskState.LINK_UNAVAILABLE,
    }
)
LINK_TROUBLES = frozenset(_BY_LINK_STATE.values())


def is_configured(spec: TaskSpec, *, value_of: Callable[[str], str], mirrors: bool) -> bool:
    """Return whether the task has work to do; ``mirrors``: the link has mirror topics that are not stopped.

    The source side of a source-initiated link has no tasks: the link at the destination runs them.
    """
    if value_of("link.mode") == LinkMode.SOURCE:
        return False
    return value_of(spec.enable_config) == "true" if spec.enable_config else mirrors


def task_state(*, configured: bool, link_state: LinkState, has_run: bool, errors: int) -> TaskState:
    """Return the state to show. A link that is paused, failed or unavailable determines the state of its tasks."""
    if not configured:
        return TaskState.NOT_CONFIGURED
    if link_state in _BY_LINK_STATE:
        return _BY_LINK_STATE[link_state]
    if errors:
        return TaskState.IN_ERROR
    return TaskState.ACTIVE if has_run else TaskState.UNKNOWN


def concerned_by(configs: Mapping[str, object]) -> list[TaskName]:
    """Return the tasks that a change of these configs affects."""
    return [spec.name for spec in TASKS.values() if spec.configs & set(configs)]


def switched_off_by(configs: Mapping[str, str | None]) -> list[TaskName]:
    """Return the tasks that these values switch off; errors of their last runs no longer matter."""
    return [spec.name for spec in TASKS.values() if spec.enable_config in configs and configs[spec.enable_config] != "true"]

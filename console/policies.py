"""What may be done with a mirror or a task of a link now, and if not, why not; one place for actions, REST and buttons."""

from __future__ import annotations

from collections.abc import Callable

from console.access import Permission
from console.models import ClusterLink, LinkTask, MirrorTopic, SourceTopic
from linkengine.domain.errors import ErrorCode, IllegalTransitionError
from linkengine.domain.filters import chooses, parse_filters
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TASKS, TaskName, TaskState, is_configured, task_state
from linkengine.domain.states import BIDIRECTIONAL_ONLY, OPERATIONS, LinkState, MirrorEvent, MirrorState, next_state

_E = MirrorEvent
# In the order of buttons. The others of the transition table need bidirectional links.
OFFERED = (_E.PAUSE, _E.RESUME, _E.PROMOTE, _E.FAILOVER, _E.DELETE)


def permission_for(operation: MirrorEvent) -> Permission:
    """Answer what an operation needs."""
    return Permission.MANAGE_MIRROR if operation is _E.DELETE else Permission.OPERATE_MIRROR


def why_not(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    """Answer why an operation is not possible now, "" if it is; the text is also the hint of a button that is greyed out."""
    for rule in _RULES:
        reason = rule(mirror, operation)
        if reason:
            return reason
    return ""


def state_of_task(link: ClusterLink, name: TaskName, *, row: LinkTask | None, mirrors: bool) -> TaskState:
    """Answer how a recurring task is; ``row`` is what its last run left, ``mirrors``: some are not stopped."""
    return task_state(
        configured=is_configured(TASKS[name], value_of=link.config, mirrors=mirrors),
        link_state=LinkState(link.state),
        has_run=row is not None and row.finished_at is not None,
        errors=row.error_count if row else 0,
    )


def why_not_run(link: ClusterLink, name: TaskName, *, state: TaskState) -> str:
    """Answer why a task in this state cannot run now, "" if it can."""
    if link.deletion_requested_at is not None:
        return f"Cluster link '{link.name}' is being deleted."
    if state is TaskState.NOT_CONFIGURED:
        needed = TASKS[name].enable_config
        return f"{name} is switched off. Set {needed} to true." if needed else "The link has no mirror topic that is mirroring."
    return f"Cluster link '{link.name}' {_TASK_WAYS_OUT[state]}" if state in _TASK_WAYS_OUT else ""


_TASK_WAYS_OUT = {
    TaskState.LINK_PAUSED: "is paused. Set cluster.link.paused to false first.",
    TaskState.LINK_FAILED: "is broken, so its source cannot be asked. Correct its configs first.",
    TaskState.LINK_UNAVAILABLE: "cannot reach its source at present. The task runs by itself once it can.",
}


def _is_operation(_mirror: MirrorTopic, operation: MirrorEvent) -> str:
    return "" if operation in OPERATIONS else f"{operation} is not an operation of people."


def _not_deleting(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    if mirror.deletion_requested_at is None or operation is _E.DELETE:
        return ""
    return f"Topic '{mirror.name}' is being deleted."


def _bidirectional(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    if operation not in BIDIRECTIONAL_ONLY or mirror.link.mode == "BIDIRECTIONAL":
        return ""
    return f"{operation} needs a bidirectional link; '{mirror.link.name}' has mode {mirror.link.mode}."


def _offered(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    if operation in OFFERED:
        return ""
    return f"{operation} is not offered by this version."


def _in_table(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    if mirror.state == MirrorState.STOPPED and operation is not _E.DELETE:
        return f"Topic '{mirror.name}' has already stopped its mirror from '{mirror.link.name}'."
    try:
        next_state(MirrorState(mirror.state), operation)
    except IllegalTransitionError as error:
        return error.message
    return ""


def _link_is_on(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    if operation is _E.RESUME and mirror.link.state == LinkState.PAUSED:
        return f"Cluster link '{mirror.link.name}' is paused. Set cluster.link.paused to false, then resume the topic."
    if operation is _E.PROMOTE and mirror.link.state == LinkState.PAUSED:
        return f"Cluster link '{mirror.link.name}' is paused, so the lag cannot drain. Resume the link or fail over."
    return ""


def _stays_deleted(mirror: MirrorTopic, operation: MirrorEvent) -> str:
    """Deleting what auto-create would make again is futile ; it stays gone where its source topic is gone."""
    link = mirror.link
    if operation is not _E.DELETE or link.deletion_requested_at is not None or mirror.deletion_requested_at is not None:
        return ""
    if link.config(AUTO_CREATE) != "true" or not chooses(parse_filters(link.config(AUTO_CREATE_FILTERS)), mirror.source_topic):
        return ""
    if mirror.error_code == ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED or _is_gone(mirror):
        return ""
    return (
        f"Topic '{mirror.name}' matches the auto-create filters of link '{link.name}', which would create it again. Delete the "
        "source topic first, or add an EXCLUDE filter for it, or set auto.create.mirror.topics.enable to false."
    )


def _is_gone(mirror: MirrorTopic) -> bool:
    listed = mirror.link.topics_at is not None
    return listed and not SourceTopic.objects.filter(link=mirror.link_id, name=mirror.source_topic).exists()


_RULES: tuple[Callable[[MirrorTopic, MirrorEvent], str], ...] = (
    _is_operation,
    _not_deleting,
    _bidirectional,
    _offered,
    _in_table,
    _link_is_on,
    _stays_deleted,
)

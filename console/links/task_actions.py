"""Runs a recurring task on request, resets consumer offsets, and sets the status of groups when their sync is switched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.clusters.live_queries import change, no_topic, run_query
from console.errors import ConflictError, NotFoundError
from console.links.rules import state_of_task, why_not_run
from console.models import ClusterLink, LinkTask, MirrorTopic, RoleBinding
from console.queue import dispatch
from linkengine.domain.groups import GroupStatus, shown, without_nul
from linkengine.domain.linktasks import TASKS, TaskName
from linkengine.domain.messages import gettext_lazy

# --- consumer groups --------------------------------------------------------------------------------------------------


ENABLE = TASKS[TaskName.CONSUMER_OFFSETS].enable_config
_SKIPPED = (GroupStatus.EXCLUDED, GroupStatus.UNSUPPORTED_TYPE, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC)
_OFF = gettext_lazy(
    "Consumer offset sync is off (%(enable)s is not true). The group keeps the offsets that it has on the destination.",
    enable=ENABLE,
)


def set_groups_waiting(link: ClusterLink) -> None:
    """Set the status of the link's groups to WAITING because the sync was switched off.

    The rows keep the offsets that are known, for the time when the sync is switched on again.
    """
    link.groups.exclude(status__in=_SKIPPED).update(status=GroupStatus.WAITING, message=_OFF)


def clear_waiting_reason(link: ClusterLink) -> None:
    """Remove the message "sync is off" from waiting groups: the sync was switched on, and they wait for its next run."""
    link.groups.filter(status=GroupStatus.WAITING).update(message="")


def reset_group(
    *, mirror: MirrorTopic, group: str, offsets: Sequence[tuple[int, int]], execute: bool, by: Actor, now: datetime
) -> list[dict[str, Any]]:
    """Set the offsets of a consumer group on a mirror topic; return the result per partition.

    ``offsets`` are pairs of partition and offset. With ``execute=False`` nothing is changed, and the result shows what would
    be. Needs the permission to manage the group. The audit log has the requested offsets, whether or not the cluster accepted
    them.
    """
    cluster, kind = mirror.link.destination, RoleBinding.ResourceType.GROUP
    check_permission(by, Permission.MANAGE_GROUP, cluster=cluster, resource_type=kind, resource_name=without_nul(group))
    arguments = {"topic": mirror.name, "group_id": group, "offsets": [list(pair) for pair in offsets], "execute": execute}
    if not execute:
        return _reset(run_query, mirror, arguments)
    resource = f"{audit.path_of(mirror)}/group/{shown(group)[1:-1]}"
    detail: dict[str, Any] = {"offsets": {str(partition): offset for partition, offset in offsets}}
    audited = partial(change, action="ResetGroup", resource=resource, detail=detail, by=by, now=now, response_key="partitions")
    return _reset(audited, mirror, arguments)


def _reset(query: Any, mirror: MirrorTopic, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return list(query(mirror.link.destination, "reset_group", **arguments))
    except NotFoundError as error:
        raise no_topic(mirror.name) from error


# --- run a recurring task now -----------------------------------------------------------------------------------------


def run_task(*, link: ClusterLink, name: str, by: Actor, now: datetime) -> LinkTask:
    """Request an immediate run of a task; if a run is in progress, another run follows it.

    Raises NotFoundError for an unknown task and ConflictError if the task cannot run, for example because it is switched off.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    task_name = _task_name(name)
    row = LinkTask.objects.filter(link=link, name=task_name).first()
    mirrors = link.mirrors.unstopped().exists()
    reason = why_not_run(link, task_name, state=state_of_task(link, task_name, row=row, mirrors=mirrors))
    if reason:
        raise ConflictError(reason, code="TASK_NOT_POSSIBLE")
    with transaction.atomic():
        row, _ = LinkTask.objects.update_or_create(
            link=link, name=task_name, defaults={"requested_at": now, "requested_by": by.name}
        )
        audit.record(by=by, action="RunLinkTask", resource=audit.path_of(link), now=now, detail={"task": task_name})
    dispatch.send("run_link_task", link_id=link.pk, task=task_name)
    return row


def _task_name(name: str) -> TaskName:
    if name not in set(TaskName):
        raise NotFoundError(
            gettext_lazy("Cluster links have no task '%(name)s'. Use one of %(names)s.", name=name, names=", ".join(TaskName)),
            code="UNKNOWN_TASK",
        )
    return TaskName(name)

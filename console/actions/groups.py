"""Consumer groups: what switching the offset sync of a link means for those it has listed; resetting offsets on a mirror."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.brokers import ask, change, no_topic
from console.errors import NotFoundError
from console.models import ClusterLink, MirrorTopic, RoleBinding
from linkengine.domain.groups import GroupStatus, shown, without_nul
from linkengine.domain.linktasks import TASKS, TaskName

ENABLE = TASKS[TaskName.CONSUMER_OFFSETS].enable_config
_SKIPPED = (GroupStatus.EXCLUDED, GroupStatus.UNSUPPORTED_TYPE, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC)
_OFF = f"The link does not carry offsets over: {ENABLE} is not true. Its offsets here stay as they are."


def let_wait(link: ClusterLink) -> None:
    """Say of all groups that they follow no more; what is known of their offsets stays, for when it is switched on again."""
    link.groups.exclude(status__in=_SKIPPED).update(status=GroupStatus.WAITING, message=_OFF)


def expect_run(link: ClusterLink) -> None:
    """Take the reason from groups that waited for the switch: now they wait for the next run."""
    link.groups.filter(status=GroupStatus.WAITING).update(message="")


def reset_group(
    *, mirror: MirrorTopic, group: str, offsets: Sequence[tuple[int, int]], execute: bool, by: Actor, now: datetime
) -> list[dict[str, Any]]:
    """Set a group's offsets on a mirror topic, or only show what that would do; return them per partition.

    Needs the right to manage the group. The audit has what was asked for, whether or not the cluster did it.
    """
    cluster, kind = mirror.link.destination, RoleBinding.ResourceType.GROUP
    check_permission(by, Permission.MANAGE_GROUP, cluster=cluster, resource_type=kind, resource_name=without_nul(group))
    asked = {"topic": mirror.name, "group_id": group, "offsets": [list(pair) for pair in offsets], "execute": execute}
    if not execute:
        return _asked(ask, mirror, asked)
    resource = f"{audit.path_of(mirror)}/group/{shown(group)[1:-1]}"
    detail: dict[str, Any] = {"offsets": {str(partition): offset for partition, offset in offsets}}
    door = partial(change, action="ResetGroup", resource=resource, detail=detail, by=by, now=now, answer_as="partitions")
    return _asked(door, mirror, asked)


def _asked(door: Any, mirror: MirrorTopic, asked: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return list(door(mirror.link.destination, "reset_group", **asked))
    except NotFoundError as error:
        raise no_topic(mirror.name) from error

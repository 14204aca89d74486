"""What switching the offset sync of a link on and off means for the groups it has listed."""

from __future__ import annotations

from console.models import ClusterLink
from linkengine.domain.groups import GroupStatus
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

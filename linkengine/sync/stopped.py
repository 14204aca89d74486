"""Detect a mirror that was stopped although its row does not say so, as after a restore of the console's database.

Applications use such a topic, so nothing about it is changed on behalf of a mirror.
"""

from __future__ import annotations

import time

from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.moments import SECOND_LOOK_AFTER_S
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin


def was_stopped(destination: ClusterAdmin, topic: TopicDescription, *, guard: bool, failed: bool = False) -> bool:
    """Return True if a topic has lost both signs of a mirror: its configs and, with ``guard``, its DENY WRITE.

    A user may remove either; a stop removes both. Configs and ACLs that the principal may not read are not lost. On a link
    without guards the configs alone count, once the mirror has ``failed``, which means that its copy worker found the fence.
    Sends requests only for topics without a mirror's configs.
    """
    if looks_like_mirror(topic.configs):
        return False
    if guard and destination.has_authorizer():
        return destination.lacks_deny_write(topic.name)
    return failed


def stopped_error(
    destination: ClusterAdmin, topic: TopicDescription, *, reread_after_s: float = SECOND_LOOK_AFTER_S
) -> LinkEngineError:
    """Return the error for a topic that ``was_stopped``: ``stopped_before``, which is permanent, only if no broker contradicts.

    A broker that has just started, or was cut off from the controllers, shows a topic as it was before a reversal made it a
    mirror. So the topic is described a second time, and no broker may have its DENY WRITE.
    """
    time.sleep(reread_after_s)
    again = destination.find(topic.name)
    unmarked = again is not None and again.topic_id == topic.topic_id and not looks_like_mirror(again.configs)
    if unmarked and destination.denies_writes_nowhere(topic.name):
        return stopped_before(topic.name)
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The brokers of the destination do not agree on whether topic {topic.name!r} is still a mirror: one of them returns "
        "old metadata. Retrying. If this stays, restart the broker that has lost its connection to the controllers.",
    )


def stopped_before(topic: str) -> LinkEngineError:
    """Return the error for a mirror that ``was_stopped``."""
    return LinkEngineError(
        ErrorCode.MIRROR_WAS_STOPPED,
        f"Topic {topic!r} has neither a mirror's configs nor the DENY WRITE of one any more: it was promoted or failed over "
        "earlier, and the console's database may have been restored from an older backup. Applications may use it, so it is "
        "not changed. Fail over to keep it as it is. Delete it and create the mirror again only if it is not needed.",
    )

"""Detect a mirror that was stopped although its row does not say so, as after a restore of the console's database.

Applications use such a topic, so nothing about it is changed on behalf of a mirror.
"""

from __future__ import annotations

from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin


def was_stopped(destination: ClusterAdmin, topic: TopicDescription, *, guard: bool, failed: bool = False) -> bool:
    """Return True if a topic has lost both signs of a mirror: its configs and, with ``guard``, its DENY WRITE.

    A user may remove either; a stop removes both. On a link without guards the configs alone count, once the mirror has
    ``failed``, which means that its copy worker found the fence. Sends a request only for topics without a mirror's configs.
    """
    if looks_like_mirror(topic.configs):
        return False
    if guard and destination.has_authorizer():
        return not destination.denies_writes(topic.name)
    return failed


def stopped_before(topic: str) -> LinkEngineError:
    """Return the error for a mirror that ``was_stopped``."""
    return LinkEngineError(
        ErrorCode.MIRROR_WAS_STOPPED,
        f"Topic {topic!r} has neither a mirror's configs nor the DENY WRITE of one any more: it was promoted or failed over "
        "earlier, and the console's database may have been restored from an older backup. Applications may use it, so it is "
        "not changed. Fail over to keep it as it is. Delete it and create the mirror again only if it is not needed.",
    )

"""Whether a mirror was stopped and nobody here remembers it, as after the console's database was put back to a backup.

Applications use such a topic: nothing of it is changed on behalf of a mirror.
"""

from __future__ import annotations

from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin


def was_stopped(destination: ClusterAdmin, topic: TopicDescription, *, guard: bool, failed: bool = False) -> bool:
    """Tell whether a topic has lost both signs of a mirror: its configs and, where there are ``guard``s, its DENY WRITE.

    A person may take one of them away, and a stop takes both. Where producers are never kept out, the configs count once the
    mirror has ``failed``: its copier has found the fence. One request, for topics without a mirror's configs.
    """
    if looks_like_mirror(topic.configs):
        return False
    if guard and destination.has_authorizer():
        return not destination.denies_writes(topic.name)
    return failed


def stopped_before(topic: str) -> LinkEngineError:
    """Answer the error for a mirror that ``was_stopped``."""
    return LinkEngineError(
        ErrorCode.MIRROR_WAS_STOPPED,
        f"Topic {topic!r} has neither a mirror's configs nor the DENY WRITE of one any more: it was promoted or failed over "
        "before; perhaps the console's database was put back to a backup since. Applications may use it, so nothing of it is "
        "changed. Fail over to keep it as it is. Delete it and begin again only if nobody needs it.",
    )

"""Delete a mirror topic and the rules that guarded it, or a topic that has to make room for a mirror."""

from __future__ import annotations

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import looks_like_mirror
from linkengine.jobs.reversing import open_topic
from linkengine.kafka.admin import ClusterAdmin, OffsetKind


def delete_mirror(*, destination: ClusterAddress, mirror_topic: str, guard: bool = True) -> bool:
    """Delete the topic, wait until it is gone, remove its rules; answer False if there was no topic. Safe to repeat.

    The rules go last: while the topic is there, nobody may write to it. Without ``guard`` there never were any.
    """
    deleted = ClusterAdmin(destination).delete_topic(mirror_topic)
    if guard:
        open_topic(destination, mirror_topic)
    return deleted


def delete_diverged(*, destination: ClusterAddress, topic: str, topic_id: str) -> bool:
    """Delete the topic of this id and wait until it is gone; one of the same name with another id stays.

    Only an empty one goes as well, unless it is a mirror: a client's look for the topic may have created it. Its rules stay.
    """
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        return False
    made_by_a_client = not looks_like_mirror(found.configs) and not any(admin.offsets(topic, OffsetKind.END).values())
    if found.topic_id != topic_id and not made_by_a_client:
        return False
    return admin.delete_topic_by_id(found)

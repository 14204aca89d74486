"""Delete a mirror topic with its ACLs, or a diverged topic that is to become a mirror again."""

from __future__ import annotations

from collections.abc import Callable

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.jobs.reversing import log_ranges, open_topic
from linkengine.kafka import deletion
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.newest_offsets import newest_ends
from linkengine.sync.topics import find_mirror


def delete_mirror(
    *, destination: ClusterAddress, mirror_topic: str, mirror_topic_id: str = "", guard: bool = True, contested: bool = False
) -> bool:
    """Delete the topic, wait until it is gone, remove its ACLs; return False if there was no topic. Safe to repeat.

    Only the mirror's own topic is deleted (``find_mirror``); from another topic of its name only the mirror's ACLs are removed.
    ACLs are removed last: while the topic exists, clients must not write to it. Without ``guard`` there never were any; on a
    ``contested`` name they guard another mirror.
    """
    admin = ClusterAdmin(destination)
    found = find_mirror(admin, mirror_topic, topic_id=mirror_topic_id, contested=contested)
    deleted = found is not None and admin.delete_topic_by_id(found)
    if guard and not contested:
        open_topic(destination, mirror_topic)
    return deleted


def delete_diverged(
    *, destination: ClusterAddress, topic: str, topic_id: str, check_ours: Callable[[], None] = lambda: None
) -> bool:
    """Delete the topic of this id and wait until it is gone; a topic of the same name with another id stays.

    Such a topic is deleted only if it is empty and not a mirror: a client's metadata request may have created it. ACLs stay.
    ``check_ours`` is called directly before the request and raises if the deletion was reverted.
    """
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        return False
    if found.topic_id != topic_id and (looks_like_mirror(found.configs) or not _is_empty(destination, found)):
        return False
    return admin.delete_topic_by_id(found, check_ours=check_ours)


def _is_empty(destination: ClusterAddress, topic: TopicDescription) -> bool:
    """Read the ends from the newest leaders: a leader that was cut off may not have what producers have written since.

    They are read twice, and the second time records that followers do not have yet count as well (``log_ranges`` raises).
    """
    found = newest_ends(destination, topic.name)
    same = found.topic_id == topic.topic_id
    return same and not any(found.ends.values()) and not any(part.end for part in log_ranges(destination, topic.name))


def deletes_topics(address: ClusterAddress) -> bool | None:
    """Return whether the cluster deletes topics (``delete.topic.enable``); None if that cannot be read."""
    try:
        return deletion.deletes_topics(address)
    except LinkEngineError:
        return None

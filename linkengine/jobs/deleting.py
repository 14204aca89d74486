"""Delete a mirror topic and the rules that guarded it."""

from __future__ import annotations

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.admin import ClusterAdmin


def delete_mirror(*, destination: ClusterAddress, mirror_topic: str) -> bool:
    """Delete the topic, wait until it is gone, remove its rules; answer False if there was no topic. Safe to repeat.

    The rules go last: while the topic is there, nobody may write to it.
    """
    admin = ClusterAdmin(destination)
    deleted = admin.delete_topic(mirror_topic)
    admin.allow_writes(mirror_topic)
    admin.allow_reads(mirror_topic)
    return deleted

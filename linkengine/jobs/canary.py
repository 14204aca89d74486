"""The canary of the migration gate: an ordinary consumer's view of a mirror, beside the source's."""

from __future__ import annotations

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.gates import CanaryRead
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.canary import read_canaries, write_canaries
from linkengine.sync.topics import missing_mirror


def read_canary(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, compacted: bool
) -> list[CanaryRead]:
    """Compare the newest record of every partition; raise LinkEngineError where a cluster or a topic cannot be read at all."""
    mirror = ClusterAdmin(destination).find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    return read_canaries(
        source=source,
        destination=destination,
        source_topic=source_topic,
        mirror_topic=mirror_topic,
        partitions=mirror.partitions,
        compacted=compacted,
    )


def try_writing(destination: ClusterAddress, topic: str) -> list[CanaryRead]:
    """Write one record to every partition of a scratch topic and read it back; one that still denies writes has a problem."""
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        raise missing_mirror(topic)
    if admin.has_authorizer() and admin.denies_writes(topic):  # passes us where we are a super user, and nobody else
        return [CanaryRead(partition=0, offset=None, problem="producers are still denied by an ACL")]
    return write_canaries(destination, topic, partitions=found.partitions)

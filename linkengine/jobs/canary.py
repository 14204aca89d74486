"""The canary of the migration gate: what an ordinary consumer reads from a mirror, compared with the source."""

from __future__ import annotations

from collections.abc import Mapping

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.jobs.record_sizes import heaviest_of
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.canary import read_canaries, write_canaries
from linkengine.kafka.committed import LOOK_BACK
from linkengine.sync.topics import missing_mirror

LARGEST = 128 << 20  # largest record read, in bytes; messages of 100 MB are read


def read_canary(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, compacted: bool
) -> list[CanaryRead]:
    """Compare the newest record of every partition; raise LinkEngineError if a cluster or a topic cannot be read at all."""
    mirror = ClusterAdmin(destination).find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    heavy = _too_heavy(destination, mirror_topic)
    read = read_canaries(
        source=source,
        destination=destination,
        source_topic=source_topic,
        mirror_topic=mirror_topic,
        partitions=[partition for partition in range(mirror.partitions) if partition not in heavy],
        compacted=compacted,
    )
    return sorted([*read, *heavy.values()], key=lambda canary: canary.partition)


def _too_heavy(destination: ClusterAddress, topic: str) -> dict[int, CanaryRead]:
    """Return partitions whose newest records are too large for the consumer, which decompresses whole batches (ADR 0031)."""
    ends = ClusterAdmin(destination).offsets(topic, OffsetKind.END)
    newest = {partition: (max(0, end - LOOK_BACK), end) for partition, end in ends.items() if end}
    try:
        rows = heaviest_of(destination, topic, newest)
    except LinkEngineError:  # the consumer then reports the problem with its partition
        return {}
    return {row["partition"]: _heavy(row) for row in rows if row["bytes"] > LARGEST}


def _heavy(row: Mapping[str, int]) -> CanaryRead:
    problem = f"the batch at offset {row['offset']} has a record of {row['bytes']:,} bytes, which is too large to be read"
    return CanaryRead(partition=row["partition"], offset=None, problem=problem)


def try_writing(destination: ClusterAddress, topic: str) -> list[CanaryRead]:
    """Write a record to every partition of a scratch topic and read it back; partitions that deny writes have a problem."""
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        raise missing_mirror(topic)
    if admin.has_authorizer() and admin.denies_writes(topic):  # DENY would not stop a super user's test write
        return [CanaryRead(partition=0, offset=None, problem="producers are still denied by an ACL")]
    return write_canaries(destination, topic, partitions=found.partitions)

"""Tail check from recorded ends: whether a mirror still ends with what its last copy worker wrote.

Equal ends of both sides do not show whose records they are. A copy worker that ends in an orderly way leaves, in its lease, the
mirror's end and the leader epoch of the source under which it had read everything below (``copyjob.source.epoch_history``). A
foreign write to a mirror that is not being copied to, or records that the source lost and replaced, can make the ends equal as
well; then either of the two numbers differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.newest_offsets import newest_view

Left = Mapping[int, tuple[int, int] | None]  # by partition: the source's leader epoch and the mirror's end; None: unknown


def failed_tail_checks(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, left: Left
) -> list[int]:
    """Return the partitions that fail the check: the mirror's end has moved since, or the source's leader has changed.

    Only for a time at which no copy worker is running. Raises if a leader does not respond.
    """
    with closing(Cluster(source)) as cluster:
        leaders = newest_view(cluster, source_topic).partitions
    ends = ClusterAdmin(destination).offsets(mirror_topic, OffsetKind.END, partitions=len(left))
    return [
        partition
        for partition, recorded in sorted(left.items())
        if partition not in leaders or recorded != (leaders[partition].epoch, ends[partition])
    ]

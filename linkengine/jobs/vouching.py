"""Whether a mirror ends with what its copier wrote. Ends of both sides that are equal do not tell whose records they are.

A copier that lets go in good order leaves the mirror's end in its lease, and the epoch of the source's leader under which it
had read everything below (``copyjob.sourcepast``). A stranger's write to a mirror that nobody copies to, or records that the
source lost and replaced, make the ends equal as well; then one of both numbers is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.newestends import newest_view

Left = Mapping[int, tuple[int, int] | None]  # by partition: the source's leader epoch and the mirror's end; None: nobody tells


def unvouched(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, left: Left
) -> list[int]:
    """List the partitions of which nobody vouches for the mirror's end: it has moved since, or the source's leader has changed.

    For a moment at which no copier is at work. Raises where a leader cannot be asked.
    """
    with closing(Cluster(source)) as cluster:
        leaders = newest_view(cluster, source_topic).partitions
    ends = ClusterAdmin(destination).offsets(mirror_topic, OffsetKind.END, partitions=len(left))
    return [
        partition
        for partition, told in sorted(left.items())
        if partition not in leaders or told != (leaders[partition].epoch, ends[partition])
    ]

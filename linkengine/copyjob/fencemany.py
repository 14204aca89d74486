"""Fences many mirror partitions at once: a few requests per broker, whatever the number of partitions.

The same fence as ``fence``, for mirrors that were not fenced before. Each is confirmed by a second reading: the log is
longer by exactly the fence, the leader remembers its epochs, and the high watermark covers it. Any partition that is not
confirmed is left to ``fence``, which reads the log itself. Blocking.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.copyjob.fence import MARKER_TIMEOUT_S, PAUSE_S
from linkengine.copyjob.tails import Tail, TailQuery, read_tails
from linkengine.copyjob.writer import epochs_above
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.markers import VERSION
from linkengine.kafka.offsets import LATEST, list_offsets

PER_REQUEST = 500
READINGS = 10  # readings to confirm the fences


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fence:
    assignment: PartitionAssignment
    tail: Tail  # as read before the fence was written
    epoch: int
    coordinator_epoch: int


def fence_many(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, generations: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Fence the partitions and return (mirrored end, leader epoch) by key of those that are confirmed.

    The others are left out. The leader epoch is the one under which the fence was read. ``generations`` is by key. Never
    raises for a single partition; raises LinkEngineError if the cluster does not respond at all.
    """
    cluster = Cluster(address)
    try:
        wanted = list(_planned(cluster, assignments, generations))
        for broker, group in _by_broker(wanted).items():
            for first in range(0, len(group), PER_REQUEST):
                _write(cluster, broker, group[first : first + PER_REQUEST])
        return _confirm_patiently(cluster, wanted)
    finally:
        cluster.close()


def _planned(cluster: Cluster, assignments: Sequence[PartitionAssignment], generations: Mapping[str, int]) -> Iterable[_Fence]:
    tails = read_tails(cluster, [TailQuery(assignment=assignment, clean=True) for assignment in assignments])
    for assignment in assignments:
        tail = tails[assignment.key]
        if isinstance(tail, LinkEngineError):
            continue
        epoch, coordinator_epoch = epochs_above(tail.producer, generation=generations[assignment.key], closes=True)
        yield _Fence(assignment=assignment, tail=tail, epoch=epoch, coordinator_epoch=coordinator_epoch)


def _by_broker(fences: Iterable[_Fence]) -> dict[int, list[_Fence]]:
    groups: dict[int, list[_Fence]] = defaultdict(list)
    for fence in fences:
        groups[fence.tail.leader.broker].append(fence)
    return groups


def _write(cluster: Cluster, broker: int, fences: Sequence[_Fence]) -> None:
    """Send the markers; which of them were written is read from the logs afterwards."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [
        marker(
            producer_id=fence.assignment.producer_id,
            producer_epoch=fence.epoch,
            transaction_result=True,
            topics=[
                marker.WritableTxnMarkerTopic(
                    name=fence.assignment.mirror_topic, partition_indexes=[fence.assignment.partition]
                )
            ],
            coordinator_epoch=fence.coordinator_epoch,
        )
        for fence in fences
    ]

    def build(_: Connection) -> Any:
        return WriteTxnMarkersRequest(version=VERSION, markers=markers)

    with suppress(LinkEngineError):
        cluster.call(
            broker,
            build,
            response=WriteTxnMarkersResponse,
            read=lambda _: None,
            timeout_s=MARKER_TIMEOUT_S,
            repeatable=False,
        )


def _confirm_patiently(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    """Read up to READINGS times: followers replicate the markers a little later than the leader appends them."""
    confirmed: dict[str, tuple[int, int]] = {}
    for _ in range(READINGS):
        unconfirmed = [fence for fence in fences if fence.assignment.key not in confirmed]
        if not unconfirmed:
            break
        confirmed |= _confirmed(cluster, unconfirmed)
        if len(confirmed) < len(fences):
            time.sleep(PAUSE_S)
    return confirmed


def _confirmed(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    tails = read_tails(cluster, [TailQuery(assignment=fence.assignment, clean=True) for fence in fences])
    confirmed: dict[str, tuple[int, int]] = {}
    for broker, group in _by_broker(fences).items():
        places = {(fence.assignment.mirror_topic, fence.assignment.partition): fence for fence in group}
        visible = list_offsets(cluster, broker, places, timestamp=LATEST)
        for place, fence in places.items():
            (error, high_watermark), after = visible.get(place, (1, 0)), tails[fence.assignment.key]
            if not error and isinstance(after, Tail) and _is_confirmed(fence, after, high_watermark):
                confirmed[fence.assignment.key] = fence.tail.end, after.leader.epoch
    return confirmed


def _is_confirmed(fence: _Fence, after: Tail, high_watermark: int) -> bool:
    remembered = (after.producer.epoch, after.producer.coordinator_epoch) == (fence.epoch, fence.coordinator_epoch)
    return remembered and after.end == fence.tail.end + 1 and high_watermark >= after.end

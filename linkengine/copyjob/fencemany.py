"""Fences many mirror partitions at once: a few requests per broker, however many there are.

The same fence as ``fence``, for mirrors nobody has tried to fence before. Each is proven by a second reading: the log is longer
by exactly our marker, whose epochs the leader remembers, and the high watermark covers it. Whatever does not look like that is
left to ``fence``, which reads the log. Blocking.
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
LOOKS = 10  # for the proof


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fence:
    assignment: PartitionAssignment
    tail: Tail  # before
    epoch: int
    coordinator_epoch: int


def fence_many(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, generations: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Fence the partitions and answer the mirrored ends, by key, of those that are proven; the others are left out.

    With each end comes the leader epoch under which its fence was seen. ``generations`` is by key. Never raises for one
    partition; raises LinkEngineError where the cluster does not answer at all.
    """
    cluster = Cluster(address)
    try:
        wanted = list(_planned(cluster, assignments, generations))
        for broker, group in _by_broker(wanted).items():
            for first in range(0, len(group), PER_REQUEST):
                _write(cluster, broker, group[first : first + PER_REQUEST])
        return _proven_in_time(cluster, wanted)
    finally:
        cluster.close()


def _planned(cluster: Cluster, assignments: Sequence[PartitionAssignment], generations: Mapping[str, int]) -> Iterable[_Fence]:
    tails = read_tails(cluster, [TailQuery(assignment=one, clean=True) for one in assignments])
    for one in assignments:
        tail = tails[one.key]
        if isinstance(tail, LinkEngineError):
            continue
        epoch, coordinator_epoch = epochs_above(tail.producer, generation=generations[one.key], closes=True)
        yield _Fence(assignment=one, tail=tail, epoch=epoch, coordinator_epoch=coordinator_epoch)


def _by_broker(fences: Iterable[_Fence]) -> dict[int, list[_Fence]]:
    groups: dict[int, list[_Fence]] = defaultdict(list)
    for one in fences:
        groups[one.tail.leader.broker].append(one)
    return groups


def _write(cluster: Cluster, broker: int, fences: Sequence[_Fence]) -> None:
    """Send the markers; what became of each is read from the logs afterwards."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [
        marker(
            producer_id=one.assignment.producer_id,
            producer_epoch=one.epoch,
            transaction_result=True,
            topics=[
                marker.WritableTxnMarkerTopic(name=one.assignment.mirror_topic, partition_indexes=[one.assignment.partition])
            ],
            coordinator_epoch=one.coordinator_epoch,
        )
        for one in fences
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


def _proven_in_time(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    """Look again for a moment: followers take the markers a little later than the leader."""
    proven: dict[str, tuple[int, int]] = {}
    for _ in range(LOOKS):
        rest = [one for one in fences if one.assignment.key not in proven]
        if not rest:
            break
        proven |= _proven(cluster, rest)
        if len(proven) < len(fences):
            time.sleep(PAUSE_S)
    return proven


def _proven(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    tails = read_tails(cluster, [TailQuery(assignment=one.assignment, clean=True) for one in fences])
    proven: dict[str, tuple[int, int]] = {}
    for broker, group in _by_broker(fences).items():
        places = {(one.assignment.mirror_topic, one.assignment.partition): one for one in group}
        visible = list_offsets(cluster, broker, places, timestamp=LATEST)
        for place, one in places.items():
            (error, high_watermark), after = visible.get(place, (1, 0)), tails[one.assignment.key]
            if not error and isinstance(after, Tail) and _is_proof(one, after, high_watermark):
                proven[one.assignment.key] = one.tail.end, after.leader.epoch
    return proven


def _is_proof(fence: _Fence, after: Tail, high_watermark: int) -> bool:
    ours = (after.producer.epoch, after.producer.coordinator_epoch) == (fence.epoch, fence.coordinator_epoch)
    return ours and after.end == fence.tail.end + 1 and high_watermark >= after.end

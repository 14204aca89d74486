"""Check whether a stopped mirror still has its fences. Everything below an existing fence is what was copied.

The log of a stopped mirror can lose its end like any log: by an unclean leader election, or when the cluster is restored from a
snapshot. Producers then continue from there, and the log soon is longer than before. The fence is gone, or another batch is at
its offset.

Compaction removes markers, too. So there is a second check: the leader's epoch history, which a log keeps without its batches.
A leader that lost the fence has a newer epoch that begins at or before it (KIP-101): the epoch of the stop ends there. If
applications can write batches that look like the fence, both checks have to pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from enum import Enum

import structlog

from linkengine.batches.records import is_commit
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import PRODUCER_ID_BASE
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import TopicPartition, common_end, newest_view, read_ends
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.single_reads import FEW_BYTES, read_batches
from linkengine.kafka.topicviews import TopicView

log = structlog.get_logger(__name__)


class _Found(Enum):
    """Content of the log at the offset of a fence."""

    FENCE = "a fence"
    ANOTHER = "another batch"
    REMOVED = "nothing, between other batches: compaction has removed it"
    BELOW_START = "nothing, with all before it: retention has removed it"


def lost_fences(
    address: ClusterAddress, topic: str, *, fences: Mapping[int, int], epochs: Mapping[int, int], by_markers: bool
) -> list[int]:
    """Return the partitions that no longer have the fence that was written at this offset, or for which that is unknown.

    ``epochs``: the leader epochs under which fences were seen, as far as known. ``by_markers``: a fence has a producer id that
    no coordinator assigns, so that an application's COMMIT marker is another batch. Without an epoch, a fence that retention
    has removed is not lost, but a fence that compaction has removed is. Raises if a partition has no leader, or a broker does
    not respond.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        ends = read_ends(cluster, topic, view).ends
        known = {number: offset for number, offset in sorted(fences.items()) if number in ends}
        gone = {number for number, at in known.items() if at >= ends[number]}
        found = {
            number: _check_fence(cluster, view, (topic, number), known[number], by_markers=by_markers)
            for number in known.keys() - gone
        }
        proven = {number for number, at_fence in found.items() if by_markers and at_fence is _Found.FENCE}
        kept = common_end(cluster, topic, view, epochs=_chosen(epochs, found.keys() - proven))
    lost = sorted(
        gone | {number for number in found.keys() - proven if _is_lost(found[number], known[number], kept.get(number))}
    )
    if lost:
        log.warning("stop.fences_lost", topic=topic, partitions=lost)
    return lost


def _chosen(epochs: Mapping[int, int], partitions: Collection[int]) -> dict[int, int]:
    return {number: epoch for number, epoch in epochs.items() if number in partitions}


def _is_lost(found: _Found, fence: int, kept_up_to: int | None) -> bool:
    """Decide by what is at the fence's offset and by the leader's epoch history, which is not available for an old stop."""
    if found is _Found.ANOTHER:
        return True
    return found is _Found.REMOVED if kept_up_to is None else kept_up_to <= fence


def _check_fence(cluster: Cluster, view: TopicView, where: TopicPartition, offset: int, *, by_markers: bool) -> _Found:
    """Return what is at an offset below the log's end."""
    (topic, partition), leader = where, view.partitions[where[1]]
    with closing(cluster.open(leader.broker)) as connection:
        place = (topic, view.topic_id, partition)
        error, records = read_batches(connection, topic=place, leader_epoch=leader.epoch, offset=offset, max_bytes=FEW_BYTES)
    if error == KafkaCode.OFFSET_OUT_OF_RANGE:
        return _Found.BELOW_START
    if error:
        raise BrokerError(error, f"The fence of {topic}-{partition} cannot be read")
    for at, batch in iter_batches(records):
        if batch.base_offset <= offset < batch.next_offset:
            return _Found.FENCE if _is_fence(batch, records[at : at + batch.size], by_markers=by_markers) else _Found.ANOTHER
    return _Found.REMOVED


def _is_fence(view: BatchView, batch: memoryview, *, by_markers: bool) -> bool:
    return is_commit(view, batch) and (not by_markers or view.producer_id >= PRODUCER_ID_BASE)

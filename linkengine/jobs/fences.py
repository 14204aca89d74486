"""Whether a copy that was stopped still has its fence: what stands below a fence that is there is what was copied.

The log of a copy can lose its end after the stop as any log can: by an unclean leader election, or a cluster that was set back.
Producers write on from there, and soon it is longer than it was. Its fence is gone then, or another batch stands in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import structlog

from linkengine.batches.control import is_commit
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import PRODUCER_ID_BASE
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.newestends import newest_view, read_ends
from linkengine.kafka.offsets import TopicPartition
from linkengine.kafka.reading import FEW_BYTES, read_batches
from linkengine.kafka.topicviews import TopicView

log = structlog.get_logger(__name__)


def lost_fences(address: ClusterAddress, topic: str, *, fences: Mapping[int, int], by_markers: bool) -> list[int]:
    """List the partitions that do not have the fence any more which was written at this offset.

    ``by_markers``: it has a producer id that no coordinator gives, so that an application's COMMIT is another batch. A fence
    that retention or compaction has removed is not missed. Raises while a partition has no leader, or a broker is silent.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        ends = read_ends(cluster, topic, view).ends
        known = {number: offset for number, offset in sorted(fences.items()) if number in ends}
        gone = {number for number, at in known.items() if at >= ends[number]}
        batches = {number: _batch_at(cluster, view, (topic, number), known[number]) for number in known.keys() - gone}
        replaced = {number for number, one in batches.items() if one and not _is_fence(*one, by_markers=by_markers)}
        lost = sorted(gone | replaced)
    if lost:
        log.warning("fences_lost", topic=topic, partitions=lost)
    return lost


def _batch_at(cluster: Cluster, view: TopicView, where: TopicPartition, offset: int) -> tuple[BatchView, memoryview] | None:
    """Answer the batch that holds an offset, None where retention or compaction has removed it."""
    (topic, partition), leader = where, view.partitions[where[1]]
    with closing(cluster.open(leader.broker)) as connection:
        place = (topic, view.topic_id, partition)
        error, records = read_batches(connection, topic=place, leader_epoch=leader.epoch, offset=offset, max_bytes=FEW_BYTES)
    if error == KafkaCode.OFFSET_OUT_OF_RANGE:  # below the log's start: its end is known to be behind it
        return None
    if error:
        raise BrokerError(error, f"The fence of {topic}-{partition} cannot be read")
    found = [(at, one) for at, one in iter_batches(records) if one.base_offset <= offset < one.next_offset]
    return next(((one, records[at : at + one.size]) for at, one in found), None)


def _is_fence(view: BatchView, batch: memoryview, *, by_markers: bool) -> bool:
    return is_commit(view, batch) and (not by_markers or view.producer_id >= PRODUCER_ID_BASE)

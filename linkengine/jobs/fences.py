"""Whether a copy that was stopped still has its fence: what stands below a fence that is there is what was copied.

The log of a copy can lose its end after the stop as any log can: by an unclean leader election, or a cluster that was set back.
Producers write on from there, and soon it is longer than it was. Its fence is gone then, or another batch stands in its place.

Compaction removes markers, too. So there is a second proof: the leader's history of epochs, which a log keeps without its
batches. A leader that lost the fence got a newer epoch, and begins that at or before it (KIP-101): what was under the epoch of
the stop ends there. Where the fence is one of an application's kind, both have to hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from enum import Enum

import structlog

from linkengine.batches.control import is_commit
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import PRODUCER_ID_BASE
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.newestends import kept_under, newest_view, read_ends
from linkengine.kafka.offsets import TopicPartition
from linkengine.kafka.reading import FEW_BYTES, read_batches
from linkengine.kafka.topicviews import TopicView

log = structlog.get_logger(__name__)


class _Look(Enum):
    """What stands at the offset of a fence."""

    FENCE = "a fence"
    ANOTHER = "another batch"
    REMOVED = "nothing, between other batches: compaction has removed it"
    BELOW_START = "nothing, with all before it: retention has removed it"


def lost_fences(
    address: ClusterAddress, topic: str, *, fences: Mapping[int, int], epochs: Mapping[int, int], by_markers: bool
) -> list[int]:
    """List the partitions that do not have the fence any more which was written at this offset, or of which nobody can tell.

    ``epochs``: the leader epochs under which fences were seen, as far as known. ``by_markers``: a fence has a producer id that
    no coordinator gives, so that an application's COMMIT is another batch. Without an epoch, a fence that retention has removed
    is not missed, but one that compaction has removed is. Raises while a partition has no leader, or a broker is silent.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        ends = read_ends(cluster, topic, view).ends
        known = {number: offset for number, offset in sorted(fences.items()) if number in ends}
        gone = {number for number, at in known.items() if at >= ends[number]}
        found = {
            number: _look(cluster, view, (topic, number), known[number], by_markers=by_markers)
            for number in known.keys() - gone
        }
        proven = {number for number, look in found.items() if by_markers and look is _Look.FENCE}
        kept = kept_under(cluster, topic, view, epochs=_chosen(epochs, found.keys() - proven))
    lost = sorted(
        gone | {number for number in found.keys() - proven if _is_lost(found[number], known[number], kept.get(number))}
    )
    if lost:
        log.warning("fences_lost", topic=topic, partitions=lost)
    return lost


def _chosen(epochs: Mapping[int, int], partitions: Collection[int]) -> dict[int, int]:
    return {number: epoch for number, epoch in epochs.items() if number in partitions}


def _is_lost(look: _Look, fence: int, kept_up_to: int | None) -> bool:
    """Decide by what stands at the fence's offset and by the leader's history, which is not known of a stop long ago."""
    if look is _Look.ANOTHER:
        return True
    return look is _Look.REMOVED if kept_up_to is None else kept_up_to <= fence


def _look(cluster: Cluster, view: TopicView, where: TopicPartition, offset: int, *, by_markers: bool) -> _Look:
    """Look what stands at an offset that the log has passed."""
    (topic, partition), leader = where, view.partitions[where[1]]
    with closing(cluster.open(leader.broker)) as connection:
        place = (topic, view.topic_id, partition)
        error, records = read_batches(connection, topic=place, leader_epoch=leader.epoch, offset=offset, max_bytes=FEW_BYTES)
    if error == KafkaCode.OFFSET_OUT_OF_RANGE:
        return _Look.BELOW_START
    if error:
        raise BrokerError(error, f"The fence of {topic}-{partition} cannot be read")
    for at, one in iter_batches(records):
        if one.base_offset <= offset < one.next_offset:
            return _Look.FENCE if _is_fence(one, records[at : at + one.size], by_markers=by_markers) else _Look.ANOTHER
    return _Look.REMOVED


def _is_fence(view: BatchView, batch: memoryview, *, by_markers: bool) -> bool:
    return is_commit(view, batch) and (not by_markers or view.producer_id >= PRODUCER_ID_BASE)

"""Finds how much of a stopped mirror was mirrored; its fence only marks where the log ended.

Two things below the fence do not come from the source:

* a foreign write that was not noticed, because nothing was copied after it;
* an earlier fence of the mirror that was not recorded. Fillers are ABORT markers, so a COMMIT marker of the mirror's producer
  is where it was stopped before, and applications may have written behind it.

Both are searched between the offset below which everything is known to come from the source, and the fence. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing

import structlog

from linkengine.batches.control import is_commit
from linkengine.batches.view import BatchView, check_crc
from linkengine.copyjob.destination.foreign_writes import batches_in
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import TopicView, locate
from linkengine.kafka.transactions import EmptyTransactions

TRIES = 4
PAUSE_S = 0.5
log = structlog.get_logger(__name__)


def foreign_starts(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, fences: Mapping[int, int], copied: Mapping[int, int]
) -> dict[int, int]:
    """Return, by partition, the first offset below its fence that was not mirrored: a foreign write or an earlier fence.

    Partitions without such an offset are left out. Everything below ``copied`` comes from the source. If a partition
    cannot be read, the stop does not wait for it: nothing from ``copied`` on counts as mirrored.
    """
    unchecked = [
        assignment
        for assignment in assignments
        if copied.get(assignment.partition, fences[assignment.partition]) < fences[assignment.partition]
    ]
    found: dict[int, int] = {}
    with closing(Cluster(address)) as cluster:
        views: dict[str, TopicView] = {}
        for assignment in unchecked:
            offsets = copied[assignment.partition], fences[assignment.partition]
            foreign = _search_patiently(cluster, assignment, views, offsets=offsets)
            if foreign is not None:
                found[assignment.partition] = foreign
    return found


def _search_patiently(
    cluster: Cluster, assignment: PartitionAssignment, views: dict[str, TopicView], *, offsets: tuple[int, int]
) -> int | None:
    """Search a partition; retry a leader that has just taken the fence and does not respond: it may have moved."""
    for left in reversed(range(TRIES)):
        try:
            views |= {} if views else cluster.newest_topics({assignment.mirror_topic})
            return _first_foreign(cluster, assignment, views, offsets=offsets)
        except LinkEngineError as error:
            views.clear()
            log.warning(
                "mirrored_end_not_seen",
                topic=assignment.mirror_topic,
                partition=assignment.partition,
                code=error.code,
                left=left,
            )
            time.sleep(PAUSE_S if left else 0)
    return offsets[0]


def _first_foreign(
    cluster: Cluster, assignment: PartitionAssignment, views: dict[str, TopicView], *, offsets: tuple[int, int]
) -> int | None:
    leader, topic_id = locate(views, assignment.mirror_topic, assignment.partition)
    producer_ids = {assignment.producer_id}
    if assignment.transactional_id:
        transactions = EmptyTransactions(cluster, assignment.transactional_id).idle_producer()
        producer_ids |= {transactions.producer_id} if transactions else set()
    place = (assignment.mirror_topic, topic_id, assignment.partition)
    with closing(batches_in(cluster, leader, topic=place, offsets=offsets)) as batches:
        end = _mirrored_end(batches, start=offsets[0], producer_ids=producer_ids)
    return end if end < offsets[1] else None


def _mirrored_end(batches: Iterable[tuple[BatchView, memoryview]], *, start: int, producer_ids: Container[int]) -> int:
    """Return the end of the mirrored part from ``start`` on; offsets behind it that were cleaned away do not count."""
    end = start
    for view, batch in batches:
        if view.producer_id not in producer_ids:
            check_crc(view, batch)  # the producer id may have been damaged in transit; then the batch is read again
            break
        if is_commit(view, batch):
            break
        end = view.next_offset
    return end

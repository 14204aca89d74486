"""How much of a stopped mirror was mirrored: a fence is where its log ended, whoever wrote the last of it.

A stranger's record that nobody has noticed, since nothing was copied after it, stands where the source may have another. It is
looked for between what is known to be the source's and the fence. So is a fence of our own that nobody remembers: fills abort,
so a COMMIT marker of ours is where the mirror was stopped before, and applications may have written behind it. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing

import structlog

from linkengine.batches.control import is_commit
from linkengine.batches.view import BatchView
from linkengine.copyjob.foreign import batches_in
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.topicviews import TopicView, locate
from linkengine.kafka.transactions import EmptyTransactions

LOOKS = 4
PAUSE_S = 0.5
log = structlog.get_logger(__name__)


def foreign_starts(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, fences: Mapping[int, int], copied: Mapping[int, int]
) -> dict[int, int]:
    """Answer, by partition, the first offset below its fence that no copier of ours wrote, or at which an earlier fence stands.

    Partitions without one are left out. All below ``copied`` is the source's. What cannot be looked at does not hold up a stop:
    nothing of it counts as mirrored.
    """
    doubtful = [one for one in assignments if copied.get(one.partition, fences[one.partition]) < fences[one.partition]]
    found: dict[int, int] = {}
    with closing(Cluster(address)) as cluster:
        views: dict[str, TopicView] = {}
        for one in doubtful:
            offsets = copied[one.partition], fences[one.partition]
            foreign = _look_patiently(cluster, one, views, offsets=offsets)
            if foreign is not None:
                found[one.partition] = foreign
    return found


def _look_patiently(
    cluster: Cluster, one: PartitionAssignment, views: dict[str, TopicView], *, offsets: tuple[int, int]
) -> int | None:
    """Look again where a leader, which has just taken the fence, does not answer: it may be another one by now."""
    for left in reversed(range(LOOKS)):
        try:
            views |= {} if views else cluster.newest_topics({one.mirror_topic})
            return _first_foreign(cluster, one, views, offsets=offsets)
        except LinkEngineError as error:
            views.clear()
            log.warning("mirrored_end_not_seen", topic=one.mirror_topic, partition=one.partition, code=error.code, left=left)
            time.sleep(PAUSE_S if left else 0)
    return offsets[0]


def _first_foreign(
    cluster: Cluster, one: PartitionAssignment, views: dict[str, TopicView], *, offsets: tuple[int, int]
) -> int | None:
    leader, topic_id = locate(views, one.mirror_topic, one.partition)
    ours = {one.producer_id}
    if one.transactional_id:
        transactions = EmptyTransactions(cluster, one.transactional_id).look()
        ours |= {transactions.producer_id} if transactions else set()
    place = (one.mirror_topic, topic_id, one.partition)
    with closing(batches_in(cluster, leader, topic=place, offsets=offsets)) as batches:
        end = _end_of_ours(batches, start=offsets[0], ours=ours)
    return end if end < offsets[1] else None


def _end_of_ours(batches: Iterable[tuple[BatchView, memoryview]], *, start: int, ours: Container[int]) -> int:
    """Answer where the mirrored part ends that begins at ``start``; what was cleaned away behind it is nobody's."""
    end = start
    for view, batch in batches:
        if view.producer_id not in ours or is_commit(view, batch):
            break
        end = view.next_offset
    return end

"""Fills gaps by empty transactions, for destinations that refuse WriteTxnMarkers: one offset, one transaction.

The same promises as ``filling.py`` keeps: everything before the gap is acknowledged, the lease is looked at right before, one
marker of a partition is under way at a time, and nothing follows before its transaction is complete and the log's end was seen
where it belongs. Here the coordinator fences as well: an owner that lost its lease is refused from the new owner's first step
on. What became of a transaction whose answer was lost is known after the next ``settle``, which the resume does first
(``tails.py``); what stands where only one marker was expected, is looked at by the resume, too.

Some milliseconds per offset and partition: enough for transactional sources, slow for long runs of compacted offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from linkengine.batches.steps import Fill
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.filling import FillEvents
from linkengine.copyjob.foreign import overtaken
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Chunk, FillInFlight
from linkengine.copyjob.tails import LostMarker, Tail
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.offsets import log_ends
from linkengine.kafka.transactions import EmptyTransactions, TransactionalProducer


class TransactionFiller:
    """The fills of all partitions that one destination broker leads; each runs in a thread of the background."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        *,
        events: FillEvents,
        finished: Callable[[MirrorPartition, Chunk | None], None],
    ) -> None:
        self._services = services
        self._cluster = cluster
        self._events = events
        self._finished = finished
        self._ready: dict[MirrorPartition, None] = {}
        self._transactions: dict[MirrorPartition, EmptyTransactions] = {}

    def wake(self, partition: MirrorPartition) -> None:
        """A partition stands before a gap."""
        self._ready[partition] = None

    def forget(self, partition: MirrorPartition) -> None:
        """Fill a partition no more."""
        self._ready.pop(partition, None)
        self._transactions.pop(partition, None)

    def pump(self) -> None:
        """Begin the fills that can begin."""
        if not self._ready:
            return
        for partition in [
            partition for partition in self._ready if self._events.may_write(partition)
        ]:  # the others may be allowed to again
            del self._ready[partition]
            step = partition.next_step()
            if isinstance(step, Fill):
                self._begin(partition, step)

    def _begin(self, partition: MirrorPartition, step: Fill) -> None:
        tail, producer = partition.tail, partition.transactions
        assert tail is not None
        assert producer is not None
        fill, attempt = partition.send_fill(step, most=1), partition.attempt
        known = self._transactions.setdefault(
            partition, EmptyTransactions(self._cluster, partition.assignment.transactional_id)
        )
        self._services.background.submit(
            lambda: _fill_one(self._cluster, known, producer, assignment=partition.assignment, tail=tail),
            done=lambda end: self._done(partition, attempt, fill, end),
            failed=lambda error: self._failed(partition, attempt, tail, error),
        )

    def _done(self, partition: MirrorPartition, attempt: int, fill: FillInFlight, end: int) -> None:
        if partition.attempt != attempt:
            return
        if end == fill.start + 1:
            self._finished(partition, partition.filled(now_ms=self._services.clock.now_ms()))
        else:
            self._events.interrupted(partition, overtaken(partition.assignment, fill.start))

    def _failed(self, partition: MirrorPartition, attempt: int, tail: Tail, error: LinkEngineError) -> None:
        if partition.attempt == attempt:
            partition.lost_marker = LostMarker(broker=tail.leader.broker, until=0.0)  # the resume settles it
            self._events.interrupted(partition, error)


def _fill_one(
    cluster: Cluster,
    transactions: EmptyTransactions,
    producer: TransactionalProducer,
    *,
    assignment: PartitionAssignment,
    tail: Tail,
) -> int:
    """Have one marker written and answer the log's end behind it."""
    place = assignment.mirror_topic, assignment.partition
    transactions.mark(producer, topic=place[0], partition=place[1], commit=False)
    error, end = log_ends(cluster, tail.leader.broker, {place: tail.leader.epoch})[place]
    if error:
        raise BrokerError(error, f"The end of mirror {place[0]}-{place[1]} cannot be read after a fill")
    return end

"""Fills gaps with empty transactions, for destinations that refuse WriteTxnMarkers: one transaction per offset.

A transaction that adds the partition, writes nothing and aborts leaves exactly one marker (``kafka.transactions``). The same
rules as in ``filling`` apply:

* a fill begins when everything before the gap is acknowledged, and the lease is checked right before it;
* one marker per partition is in flight at a time;
* nothing follows until the transaction is complete and the log end is right behind the marker.

The transaction coordinator fences as well: an owner that lost its lease is refused as soon as the new owner initializes its
producer. If a response was lost, the next resume settles the transaction first and then reads the log end (``tails``). It also
checks a log end that does not follow the marker.

This takes a few milliseconds per offset and partition: fast enough for transactional sources, slow for long compacted ranges.
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
    """The fills of all partitions that a destination broker leads; each runs in a background thread."""

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
        """Queue a partition whose next step is a gap fill."""
        self._ready[partition] = None

    def forget(self, partition: MirrorPartition) -> None:
        """Stop filling a partition."""
        self._ready.pop(partition, None)
        self._transactions.pop(partition, None)

    def pump(self) -> None:
        """Start fills for queued partitions with a valid lease."""
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
            lambda: _write_marker(self._cluster, known, producer, assignment=partition.assignment, tail=tail),
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


def _write_marker(
    cluster: Cluster,
    transactions: EmptyTransactions,
    producer: TransactionalProducer,
    *,
    assignment: PartitionAssignment,
    tail: Tail,
) -> int:
    """Write a marker and return the log end behind it."""
    place = assignment.mirror_topic, assignment.partition
    transactions.mark(producer, topic=place[0], partition=place[1], commit=False)
    error, end = log_ends(cluster, tail.leader.broker, {place: tail.leader.epoch})[place]
    if error:
        raise BrokerError(error, f"The log end of mirror {place[0]}-{place[1]} cannot be read after a gap fill")
    return end

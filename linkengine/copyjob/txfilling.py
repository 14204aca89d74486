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

    def wake(self, one: MirrorPartition) -> None:
        """A partition stands before a gap."""
        self._ready[one] = None

    def forget(self, one: MirrorPartition) -> None:
        """Fill a partition no more."""
        self._ready.pop(one, None)
        self._transactions.pop(one, None)

    def pump(self) -> None:
        """Begin the fills that can begin."""
        if not self._ready:
            return
        for one in [one for one in self._ready if self._events.may_write(one)]:  # the others may be allowed to again
            del self._ready[one]
            step = one.next_step()
            if isinstance(step, Fill):
                self._begin(one, step)

    def _begin(self, one: MirrorPartition, step: Fill) -> None:
        tail, producer = one.tail, one.transactions
        assert tail is not None
        assert producer is not None
        fill, attempt = one.send_fill(step, most=1), one.attempt
        known = self._transactions.setdefault(one, EmptyTransactions(self._cluster, one.assignment.transactional_id))
        self._services.background.submit(
            lambda: _fill_one(self._cluster, known, producer, assignment=one.assignment, tail=tail),
            done=lambda end: self._done(one, attempt, fill, end),
            failed=lambda error: self._failed(one, attempt, tail, error),
        )

    def _done(self, one: MirrorPartition, attempt: int, fill: FillInFlight, end: int) -> None:
        if one.attempt != attempt:
            return
        if end == fill.start + 1:
            self._finished(one, one.filled(now_ms=self._services.clock.now_ms()))
        else:
            self._events.interrupted(one, overtaken(one.assignment, fill.start))

    def _failed(self, one: MirrorPartition, attempt: int, tail: Tail, error: LinkEngineError) -> None:
        if one.attempt == attempt:
            one.lost_marker = LostMarker(broker=tail.leader.broker, until=0.0)  # the resume settles it
            self._events.interrupted(one, error)


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

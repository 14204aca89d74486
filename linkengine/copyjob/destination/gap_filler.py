"""Fills gaps of the partitions that a destination broker leads with transaction markers, and verifies each fill.

``Filler`` writes the markers directly (WriteTxnMarkers); ``TransactionFiller`` is for destinations that refuse that.

A marker append is not conditional: the broker writes it wherever the log ends. Therefore:

* fills use a connection of their own, with a single round (WriteTxnMarkers, then a request for the log ends) in flight;
* the lease records that markers may be in flight before the first is sent (``may_send_markers``);
* everything before the gap is acknowledged before its markers are sent;
* the lease is checked right before sending;
* the log ends are requested on the same connection behind the markers; the broker serves requests of a connection in order;
* the next step is sent only after the log was seen to end where the fill ends.

Markers whose response was lost are remembered (``LostMarker``): the resume waits until they can no longer be written late.

``TransactionFiller`` fills gaps with empty transactions, one per offset: a transaction that adds the partition, writes nothing
and aborts leaves exactly one marker (``kafka.transactions``). The same rules apply:

* a fill begins when everything before the gap is acknowledged, and the lease is checked right before it;
* one marker per partition is in flight at a time;
* nothing follows until the transaction is complete and the log end is right behind the marker.

The transaction coordinator fences as well: an owner that lost its lease is refused as soon as the new owner initializes its
producer. If a response was lost, the next resume first ends the transaction and then reads the log end (``resume.log_end``). If
the log ends elsewhere than right behind the marker, the partition resumes as well, which checks what was appended.

This takes a few milliseconds per offset and partition: fast enough for transactional sources, slow for long compacted ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from linkengine.batches.steps import Fill
from linkengine.copyjob.broker_link import BrokerLink, LinkEvents, Services
from linkengine.copyjob.errors import overtaken
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.producer_state import coordinator_epoch_for
from linkengine.copyjob.values import Chunk, FillInFlight, LogEnd, LostMarker, Overtaken
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.producers import TransactionalProducer
from linkengine.kafka.channel import Channel, SmallFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import log_ends
from linkengine.kafka.protocol import BrokerError, KafkaCode, MalformedResponseError
from linkengine.kafka.requests import MarkerFill, decode_log_ends, decode_markers, encode_log_ends, encode_markers
from linkengine.kafka.transactions import EmptyTransactions

ROUND_MARKERS = 1_000  # per request: takes the broker about 40 ms


class FillEvents(Protocol):
    """The part of ``ProducerEvents`` that fills use (``producer``)."""

    @property
    def may_write(self) -> Callable[[PartitionState], bool]: ...
    @property
    def announce_markers(self) -> Callable[[list[PartitionState]], None]: ...
    @property
    def interrupted(self) -> Callable[[PartitionState, LinkEngineError], None]: ...
    @property
    def failed(self) -> Callable[[PartitionState, LinkEngineError], None]: ...


@dataclass(slots=True)
class _Round:
    markers: int  # correlation id of WriteTxnMarkers
    ends: int  # and of the request for the log ends
    sent_at: float
    entries: list[tuple[PartitionState, int, FillInFlight, int]]  # partition, attempt, fill, end of the whole gap
    errors: dict[tuple[int, str, int], int] = field(default_factory=dict)


class Filler:
    """The marker connection of a destination broker."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        broker: int,
        *,
        events: FillEvents,
        finished: Callable[[PartitionState, Chunk | None], None],
        lost: Callable[[LinkEngineError], None],
    ) -> None:
        self._services = services
        self._events = events
        self._finished = finished
        self._on_lost = lost
        self._ready: dict[PartitionState, None] = {}
        self._round: _Round | None = None
        self._frames: SmallFrames | None = None
        link_events = LinkEvents(
            opened=self._opened,
            readable=self._readable,
            writable=_nothing,
            lost=self._lost,
            idle=lambda: self._round is None,
        )
        self._link = BrokerLink(services, cluster, broker, events=link_events)

    def ensure(self) -> None:
        """Open the connection before the first gap."""
        self._link.ensure()

    def wake(self, partition: PartitionState) -> None:
        """Add a partition whose next step is a gap."""
        self._ready[partition] = None

    def forget(self, partition: PartitionState) -> None:
        """Stop filling a partition; markers in flight are still awaited."""
        self._ready.pop(partition, None)

    def pump(self, now: float) -> None:
        """Send a round if none is in flight."""
        if self._round is not None or not self._ready:
            return
        self._announce_markers()
        channel = self._link.ensure()
        if channel is None:
            return
        waiting = [
            partition
            for partition in self._ready
            if partition.may_send_markers and partition.may_fill(now) and self._events.may_write(partition)
        ]
        for partition in waiting:
            del self._ready[partition]
            if partition.must_read_again(now):
                self._events.interrupted(partition, waited(partition))  # drops its steps: ``_begin`` sends nothing for it
        share = max(1, ROUND_MARKERS // max(1, len(waiting)))
        late_until = now + self._timeout_s
        entries = [entry for partition in waiting if (entry := self._begin(partition, share, late_until)) is not None]
        if entries:
            self._send(channel, entries, now)

    def check(self, now: float) -> None:
        """Close the connection if the broker does not respond in time; send a round if none is in flight.

        The latter is for partitions whose new owner had to wait for the previous owner: no event reports the end of that wait.
        """
        if self._round is None:
            self.pump(now)
        elif now > self._round.sent_at + self._timeout_s:
            self._link.lose(
                LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR,
                    "A destination broker did not respond to a gap fill in time. It may be frozen. Retrying.",
                )
            )

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    @property
    def _timeout_s(self) -> float:
        return self._services.tuning.request_timeout_ms / 1000

    def _begin(
        self, partition: PartitionState, share: int, late_until: float
    ) -> tuple[PartitionState, int, FillInFlight, int] | None:
        step = partition.next_step()
        if not isinstance(step, Fill):
            return None
        try:
            fill = partition.send_fill(step, most=share, late_until=late_until)
        except LinkEngineError as error:  # no epoch is left
            self._events.failed(partition, error)
            return None
        return partition, partition.attempt, fill, step.end

    def _announce_markers(self) -> None:
        """Record in the lease, once per grant and before the first marker, that later owners must expect markers."""
        unannounced = [partition for partition in self._ready if partition.may_send_markers is None]
        for partition in unannounced:
            partition.may_send_markers = False
        if unannounced:
            self._events.announce_markers(unannounced)

    def _send(self, channel: Channel, entries: list[tuple[PartitionState, int, FillInFlight, int]], now: float) -> None:
        fills = [_marker_fill(partition, fill) for partition, _, fill, _ in entries]
        places = [
            (partition.assignment.mirror_topic, partition.assignment.partition, partition.log_end.leader.epoch)
            for partition, _, _, _ in entries
            if partition.log_end
        ]
        self._round = _Round(channel.next_correlation(), channel.next_correlation(), now, entries)
        markers = encode_markers(fills, correlation_id=self._round.markers)
        channel.send([*markers, *encode_log_ends(places, correlation_id=self._round.ends)])
        self._link.watch()

    def _opened(self, channel: Channel) -> None:
        self._frames = SmallFrames(channel)
        self.pump(self._services.clock.monotonic())

    def _readable(self) -> None:
        assert self._frames is not None
        for correlation, body in self._frames.read():
            current = self._round
            if current is None or correlation not in (current.markers, current.ends):
                raise MalformedResponseError("WriteTxnMarkers", peer=self._link.channel.peer if self._link.channel else "")
            if correlation == current.markers:
                current.errors = decode_markers(body)
            else:
                self._round = None
                self._on_ends(current, decode_log_ends(body))
        self.pump(self._services.clock.monotonic())

    def _on_ends(self, finished: _Round, ends: dict[tuple[str, int], tuple[int, int]]) -> None:
        now_ms = self._services.clock.now_ms()
        for partition, attempt, fill, gap_end in finished.entries:
            partition.responded(fill)
            if partition.attempt != attempt:
                continue
            place = (partition.assignment.mirror_topic, partition.assignment.partition)
            error = finished.errors.get((partition.assignment.producer_id, *place), 0)
            end_error, end = ends.get(place, (0, -1))
            if not error and not end_error and end == fill.start + fill.count:
                self._finished(partition, partition.filled(now_ms=now_ms))
            elif not end_error and end > gap_end:
                partition.overtaken = Overtaken(fill.start, gap_end, end)
                self._events.interrupted(partition, overtaken(partition.assignment, gap_end))
            else:  # refused, or fewer or more offsets than were sent: the resume reads the log end again
                self._events.interrupted(
                    partition,
                    BrokerError(error or end_error, f"A gap of mirror {place[0]}-{place[1]} was not filled"),
                )

    def _lost(self, error: LinkEngineError) -> None:
        self._round, self._frames = None, None
        self._on_lost(error)  # ends the attempts; each partition remembers its unacknowledged markers


def _marker_fill(partition: PartitionState, fill: FillInFlight) -> MarkerFill:
    return MarkerFill(
        topic=partition.assignment.mirror_topic,
        partition=partition.assignment.partition,
        producer_id=partition.producer_state.producer_id,
        producer_epoch=fill.epoch,
        coordinator_epoch=coordinator_epoch_for(partition.producer_state.generation),
        count=fill.count,
    )


def waited(partition: PartitionState) -> LinkEngineError:
    """Return the error that makes a partition resume after its new owner has waited for the previous owner."""
    where = f"{partition.assignment.mirror_topic}-{partition.assignment.partition}"
    return BrokerError(
        KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"The previous owner of mirror {where} may have written to it",
    )


def _nothing() -> None:
    """Do nothing: marker requests are small and never wait for space in the socket."""


class TransactionFiller:
    """The fills of all partitions that a destination broker leads; each runs in a background thread."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        *,
        events: FillEvents,
        finished: Callable[[PartitionState, Chunk | None], None],
    ) -> None:
        self._services = services
        self._cluster = cluster
        self._events = events
        self._finished = finished
        self._ready: dict[PartitionState, None] = {}
        self._transactions: dict[PartitionState, EmptyTransactions] = {}

    def wake(self, partition: PartitionState) -> None:
        """Queue a partition whose next step is a gap fill."""
        self._ready[partition] = None

    def forget(self, partition: PartitionState) -> None:
        """Stop filling a partition."""
        self._ready.pop(partition, None)
        self._transactions.pop(partition, None)

    def pump(self) -> None:
        """Start fills for queued partitions with a valid lease."""
        if not self._ready:
            return
        for partition in [
            partition for partition in self._ready if self._events.may_write(partition)
        ]:  # the others stay queued: their leases may be renewed
            del self._ready[partition]
            step = partition.next_step()
            if isinstance(step, Fill):
                self._begin(partition, step)

    def _begin(self, partition: PartitionState, step: Fill) -> None:
        log_end, producer = partition.log_end, partition.transactions
        assert log_end is not None
        assert producer is not None
        fill, attempt = partition.send_fill(step, most=1), partition.attempt
        known = self._transactions.setdefault(
            partition, EmptyTransactions(self._cluster, partition.assignment.transactional_id)
        )
        self._services.background.submit(
            lambda: _write_marker(self._cluster, known, producer, assignment=partition.assignment, log_end=log_end),
            done=lambda end: self._done(partition, attempt, fill, end),
            failed=lambda error: self._failed(partition, attempt, log_end, error),
        )

    def _done(self, partition: PartitionState, attempt: int, fill: FillInFlight, end: int) -> None:
        if partition.attempt != attempt:
            return
        if end == fill.start + 1:
            self._finished(partition, partition.filled(now_ms=self._services.clock.now_ms()))
        else:
            self._events.interrupted(partition, overtaken(partition.assignment, fill.start))

    def _failed(self, partition: PartitionState, attempt: int, log_end: LogEnd, error: LinkEngineError) -> None:
        if partition.attempt == attempt:
            partition.lost_marker = LostMarker(broker=log_end.leader.broker, until=0.0)  # the resume settles it
            self._events.interrupted(partition, error)


def _write_marker(
    cluster: Cluster,
    transactions: EmptyTransactions,
    producer: TransactionalProducer,
    *,
    assignment: PartitionAssignment,
    log_end: LogEnd,
) -> int:
    """Write a marker and return the log end behind it."""
    place = assignment.mirror_topic, assignment.partition
    transactions.write_marker(producer, topic=place[0], partition=place[1], commit=False)
    error, end = log_ends(cluster, log_end.leader.broker, {place: log_end.leader.epoch})[place]
    if error:
        raise BrokerError(error, f"The log end of mirror {place[0]}-{place[1]} cannot be read after a gap fill")
    return end

"""Produces to all mirror partitions that a destination broker leads.

Several Produce requests are in flight, each with one batch per partition that has any. Batches are sent from the receive
buffers of the source side, without a copy. A buffer is released when the socket has accepted its last slice: a *pin* is the
buffer and the number of sent bytes to wait for. A buffer larger than ``BUDGET`` (a response with very large batches) is
released only when the response to its request has arrived, so that only one such buffer is in memory at a time.

Gap fills use a connection of their own (``gap_filler``), so that a marker never waits behind a Produce request.

How a Produce response is handled, by the returned base offset:

=================  ===========================================================================================================
equals the step's  appended at the right offset
greater            another record has the offset (possible foreign write): read the log end again and check it
smaller            response of an earlier batch with the same sequences; this batch was not written: resume, with a tail check
error code         resume after a backoff; ``side`` decides whether the error is shown
=================  ===========================================================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from linkengine.batches.steps import Append, Fill
from linkengine.copyjob.broker_link import BrokerLink, LinkEvents, Services
from linkengine.copyjob.buffers import BUDGET, Buffer
from linkengine.copyjob.destination.gap_filler import Filler, TransactionFiller, waited
from linkengine.copyjob.errors import LargestOnItsWay, overtaken, refusal, repeated, replaced_times, silence
from linkengine.copyjob.pacing import Throttle, due_before_burst
from linkengine.copyjob.partition_state import PartitionState, must_wait_like_marker
from linkengine.copyjob.producer_state import Unacknowledged
from linkengine.copyjob.values import Chunk, Overtaken, Stage, Trouble
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka import requests
from linkengine.kafka.channel import Channel, SmallFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import BATCH_ERRORS, Bytes, MalformedResponseError

REQUEST_BYTES = 16 << 20  # a broker's socket.request.max.bytes is 100 MB
UNRESPONSIVE_AFTER_S = (
    5.0  # without a response or sent bytes, until an error is shown; the request timeout then closes the connection
)
LATEST_TIME_MS = 1 << 47  # the year 6429: a flipped bit in the -1 of a topic with CreateTime gives a later time
BROKER_SHARE = 0.8  # of the request timeout is the broker's timeout for its followers; the rest is for the network


class BrokerProducer:
    """The Produce connection to a destination broker, with the partitions that it leads (``members``)."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: ProducerEvents) -> None:
        self.members: dict[PartitionState, None] = {}
        self._services = services
        self._events = events
        self._ready: dict[PartitionState, None] = {}  # may have a batch to send, in round-robin order
        self._held_up: dict[PartitionState, None] = {}  # have to wait for the previous owner, as found in this burst
        self._in_flight: deque[ProduceInFlight] = deque()
        self._pins: deque[tuple[int, Buffer]] = deque()  # with the count of sent bytes at which the buffer is released
        self._giants: deque[tuple[int, Buffer]] = deque()  # with the request whose response releases the buffer
        self._too_large = LargestOnItsWay()
        self._frames: SmallFrames | None = None
        self._version = requests.PRODUCE_BY_NAME
        self._throttle = Throttle()
        self._sent, self._moved_at = 0, 0.0  # bytes that the socket had accepted at the last check, and when that last grew
        link_events = LinkEvents(
            opened=self._opened, readable=self._readable, writable=self._unpin, lost=self._lost, idle=self._is_idle
        )
        self._link = BrokerLink(services, cluster, broker, events=link_events)
        self._filler = Filler(
            services,
            cluster,
            broker,
            events=events,
            finished=self._fill_finished,
            lost=lambda error: events.lost(list(self.members), error),
        )
        self._transactions = TransactionFiller(services, cluster, events=events, finished=self._fill_finished)

    def adopt(self, partition: PartitionState) -> None:
        """Start writing a partition."""
        self.members[partition] = None
        without_id = partition.log_end is None or not any(partition.log_end.topic_id)
        if without_id or len(self.members) == 1:
            self._choose_version()
        self.warm_up()

    def warm_up(self) -> None:
        """Open the connections before the first partition needs them."""
        self._link.ensure()
        self._filler.ensure()

    def forget(self, partition: PartitionState) -> None:
        """Stop writing a partition."""
        self.members.pop(partition, None)
        self._ready.pop(partition, None)
        self._filler.forget(partition)
        self._transactions.forget(partition)

    def wake(self, partition: PartitionState) -> None:
        """Check a partition for steps to send at the next ``pump``."""
        self._ready[partition] = None

    def pump(self, now: float) -> None:
        """Send the Produce requests and gap fills that may be sent now."""
        if self._ready and now >= self._throttle.until and self._due_responses() <= 0:
            channel = self._link.ensure()
            if channel is not None:
                self._send_burst(channel, now, most=self._services.tuning.produce_in_flight)
        if self._link.channel is not None:
            self._link.channel.wake_after(requests.low_water_mark(self._due_responses()))
        self._filler.pump(now)
        self._transactions.pump()

    def check(self, now: float) -> None:
        """Close a connection without responses after the request timeout; read responses too small to have woken the loop."""
        if self._in_flight:
            self._link.read_now()
        silent_s = self._silent_for(now)
        if silent_s > self._services.tuning.request_timeout_ms / 1000:
            self._link.lose(silence())
        elif silent_s > UNRESPONSIVE_AFTER_S:
            for partition, _, _ in self._in_flight[0].entries:
                partition.mirror_trouble = Trouble(
                    PartitionPhase.DESTINATION_UNREACHABLE, ErrorCode.TIMEOUT_ERROR, silence().message
                )
        if self.members:
            self._link.ensure()
        self._filler.check(now)

    def _silent_for(self, now: float) -> float:
        """Return the seconds without a response and without sent bytes. A large request takes long on a slow network."""
        sent = self._link.channel.sent_bytes if self._link.channel is not None else 0
        if sent != self._sent:
            self._sent, self._moved_at = sent, now
        return now - max(self._in_flight[0].sent_at, self._moved_at) if self._in_flight else 0.0

    def release_buffers(self, chunks: list[Chunk]) -> None:
        """Release the buffers of chunks once the socket has accepted what was queued from them."""
        channel = self._link.channel
        for chunk in chunks:
            if self._in_flight and len(chunk.buffer.data) > BUDGET:
                self._giants.append((self._in_flight[-1].correlation, chunk.buffer))
            elif channel is None or channel.sent_bytes >= channel.queued_bytes:
                chunk.buffer.release()
            else:
                self._pins.append((channel.queued_bytes, chunk.buffer))

    def own_unsent(self) -> None:
        """Copy what the socket has not accepted yet, and release the pinned receive buffers to the source side."""
        if self._giants:  # their buffers are kept until the response in any case
            return
        if self._link.channel is not None:
            self._link.channel.own_unsent()
        for _, buffer in self._pins:
            buffer.release()
        self._pins.clear()

    def close(self) -> None:
        """Close the connections."""
        self._link.close()
        self._filler.close()

    def _due_responses(self) -> int:
        """Return how many responses have to arrive before the next burst."""
        newest_bytes, most = self._in_flight[-1].size if self._in_flight else 0, self._services.tuning.produce_in_flight
        return due_before_burst(len(self._in_flight), most=most, newest_bytes=newest_bytes)

    def _send_burst(self, channel: Channel, now: float, *, most: int) -> None:
        """Pass all requests that may be sent to the socket in a single call: each call and each wake-up of the broker costs."""
        frames: list[Bytes] = []
        done: list[tuple[PartitionState, Chunk]] = []
        while self._ready and len(self._in_flight) < most and (entries := self._take_entries(done)):
            frames += self._request(channel, entries, now)
        if frames:
            channel.send(frames)
            if channel.wants_write:
                self._link.watch()
            self.release_buffers([chunk for _, chunk in done])  # only now: the last slice has to be queued before
            for partition, _ in done:
                self._events.advanced(partition)
        if self._held_up:
            self._interrupt_held_up(now)

    def _take_entries(self, done: list[tuple[PartitionState, Chunk]]) -> list[tuple[PartitionState, int, Append]]:
        """Take the next batch of every ready partition; append to ``done`` the chunks whose last batch it was."""
        entries: list[tuple[PartitionState, int, Append]] = []
        size = 0
        for partition in list(self._ready):
            step = partition.next_step()
            if not isinstance(step, Append):
                del self._ready[partition]
                if isinstance(step, Fill):
                    (self._transactions if partition.assignment.transactional_id else self._filler).wake(partition)
                continue
            if not self._events.may_write(partition):  # stays ready: the lease may still be renewed in time
                continue
            if must_wait_like_marker(partition, step, now_ms=self._services.clock.now_ms):
                self._held_up[partition] = None
                continue
            if entries and size + len(step.payload) > REQUEST_BYTES:
                break
            chunk = partition.send_append(step)
            entries.append((partition, partition.attempt, step))
            size += len(step.payload)
            self._ready[partition] = self._ready.pop(partition)  # to the end of the order
            if chunk is not None:
                done.append((partition, chunk))
        return entries

    def _interrupt_held_up(self, now: float) -> None:
        """Resume partitions whose wait for the previous owner is over.

        Only after what was taken of them in this burst is queued: until the socket has accepted it, it pins their buffers.
        """
        held_up, self._held_up = self._held_up, {}
        for partition in held_up:
            if partition in self.members and partition.must_read_again(now):
                self._ready.pop(partition, None)
                self._events.interrupted(partition, waited(partition))

    def _request(self, channel: Channel, entries: list[tuple[PartitionState, int, Append]], now: float) -> list[Bytes]:
        version = self._version
        batches: dict[bytes, list[tuple[int, Bytes]]] = {}
        for partition, _, step in entries:
            batches.setdefault(topic_of(partition, version), []).append((partition.assignment.partition, step.payload))
        correlation = channel.next_correlation()
        size = sum(len(step.payload) for _, _, step in entries)
        self._in_flight.append(ProduceInFlight(correlation, version, now, entries, size))
        timeout_ms = int(self._services.tuning.request_timeout_ms * BROKER_SHARE)
        return requests.encode_produce(batches, version=version, correlation_id=correlation, timeout_ms=timeout_ms)

    def _choose_version(self) -> None:
        """Use topic ids if the broker and all topics have them: the broker then refuses a mirror topic that was recreated."""
        channel = self._link.channel
        ids = all(partition.log_end is not None and any(partition.log_end.topic_id) for partition in self.members)
        by_id = ids and channel is not None and channel.connection.supports(requests.PRODUCE_API_KEY, requests.PRODUCE_BY_ID)
        self._version = requests.PRODUCE_BY_ID if by_id else requests.PRODUCE_BY_NAME

    def _opened(self, channel: Channel) -> None:
        self._choose_version()
        self._frames = SmallFrames(channel)
        self._throttle.until = 0.0

    def _readable(self) -> None:
        assert self._frames is not None
        for correlation, body in self._frames.read():
            request = self._in_flight.popleft() if self._in_flight else None
            if request is None or correlation != request.correlation:
                raise self._malformed()
            self._responded(request, body)
            while self._giants and self._giants[0][0] == correlation:
                self._giants.popleft()[1].release()

    def _responded(self, request: ProduceInFlight, body: memoryview) -> None:
        throttle_ms, found = requests.decode_produce(body, version=request.version)
        self._throttle_sending(throttle_ms)
        responses = {(part.topic, part.partition): part for part in found}
        for partition, attempt, step in request.entries:
            if partition.attempt != attempt:
                continue
            response = responses.get((topic_of(partition, request.version), partition.assignment.partition))
            if response is None or response.log_append_time > LATEST_TIME_MS:
                raise self._malformed()
            if response.error:
                if response.error in BATCH_ERRORS:
                    partition.refused_at = step.base_offset
                self._events.interrupted(partition, refusal(partition, step, response))
            elif response.base_offset == step.base_offset:
                self._appended(partition, step, response)
            elif response.base_offset > step.base_offset:
                partition.overtaken = Overtaken(step.base_offset, step.base_offset, step.base_offset + 1)
                self._events.interrupted(partition, overtaken(partition.assignment, step.base_offset))
            else:  # the response of an earlier batch with these sequences: this batch was not written, the log end is unknown
                partition.unacknowledged = Unacknowledged(
                    offset=response.base_offset, sequence=None, producer_id=partition.producer_state.producer_id
                )
                self._events.interrupted(partition, repeated(partition, step))

    def _malformed(self) -> LinkEngineError:
        return MalformedResponseError("Produce", peer=self._link.channel.peer if self._link.channel is not None else "")

    def _appended(self, partition: PartitionState, step: Append, response: requests.ProducedPartition) -> None:
        partition.acknowledged(step)
        if response.log_append_time >= 0 and partition.failure is None and (error := replaced_times(partition, step, response)):
            self._events.failed(partition, error)
        if partition.chunks:
            self._ready[partition] = None
        if partition.stage is Stage.STOPPING:
            self._events.advanced(partition)

    def _throttle_sending(self, throttle_ms: int) -> None:
        """Pause sending (KIP-219). The broker does not read requests in flight during the pause, so their timeout moves too."""
        now = self._services.clock.monotonic()
        if not self._throttle.update(now, throttle_ms):
            raise self._malformed()
        pause_s = self._throttle.until - now
        if throttle_ms > 0:
            self._in_flight = deque(request._replace(sent_at=request.sent_at + pause_s) for request in self._in_flight)

    def _is_idle(self) -> bool:
        """Return whether every request has its response, and no buffer is pinned by a byte count of this connection."""
        self._unpin()
        return not (self._in_flight or self._pins or self._giants)

    def _unpin(self) -> None:
        channel = self._link.channel
        while channel is not None and self._pins and self._pins[0][0] <= channel.sent_bytes:
            self._pins.popleft()[1].release()

    def _fill_finished(self, partition: PartitionState, chunk: Chunk | None) -> None:
        if chunk is not None:
            self.release_buffers([chunk])
        self._ready[partition] = None
        self._events.advanced(partition)

    def _lost(self, error: LinkEngineError) -> None:
        error = self._too_large.lost(
            [(partition, step) for sent in self._in_flight for partition, _, step in sent.entries], error
        )
        self._in_flight.clear()
        self._frames = None
        for _, buffer in (*self._pins, *self._giants):
            buffer.release()
        self._pins.clear()
        self._giants.clear()
        self._events.lost(list(self.members), error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEvents:
    """Callbacks of ``BrokerProducer`` and its fillers."""

    may_write: Callable[[PartitionState], bool]  # whether the lease is valid now
    announce_markers: Callable[[list[PartitionState]], None]  # record in the lease that markers will be sent, before they are
    advanced: Callable[[PartitionState], None]  # an append was acknowledged, or the next records can be fetched
    interrupted: Callable[[PartitionState, LinkEngineError], None]  # the partition has to resume
    failed: Callable[[PartitionState, LinkEngineError], None]  # permanently
    lost: Callable[[list[PartitionState], LinkEngineError], None]  # the connection to the broker


class ProduceInFlight(NamedTuple):
    """A Produce request in flight."""

    correlation: int
    version: int
    sent_at: float
    entries: list[tuple[PartitionState, int, Append]]  # with the partition's attempt
    size: int  # bytes of the batches


def topic_of(partition: PartitionState, version: int) -> bytes:
    """Return the mirror topic as requests and responses of that version name it: topic id, or name."""
    if version >= requests.PRODUCE_BY_ID:
        assert partition.log_end is not None
        return partition.log_end.topic_id
    return partition.assignment.mirror_topic.encode()

"""The source side of the loop: one Fetch at a time per source broker, always one stretch ahead of the writing.

Partitions of a broker share its requests. The next request goes out as soon as the last answer is planned, while its
batches are still being written. A partition that is written slowly is left out until it has room; as long as one is
expected back soon the broker is asked not to wait long, so that nobody's long poll delays another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from linkengine.batches.planning import AbortedTransaction, SegmentPlanner
from linkengine.batches.steps import Fill, Step
from linkengine.copyjob.brokerlink import BrokerLink, LinkEvents, Services
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import GapReason
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.fetch import (
    BY_ID,
    BY_NAME,
    FetchedPartition,
    FetchLimits,
    FetchPosition,
    decode_fetch,
    encode_fetch,
)

BUFFERS = 4  # per broker: two are enough for a steady stream, two more for slow destinations
RECEIVE_BUFFER = 4 << 20  # socket buffer: much of an answer arrives while the loop does something else
SHORT_WAIT_MS = 15  # long poll while a partition of the same broker is expected back soon
GRACE_S = 10.0  # beyond the long poll: a broker silent for longer is gone; a lost Fetch harms nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeEvents:
    """What the source side tells the loop."""

    planned: Callable[[MirrorPartition], None]
    refused: Callable[[MirrorPartition, LinkEngineError], None]  # this partition, by an error code
    lost: Callable[[list[MirrorPartition], LinkEngineError], None]  # the broker


@dataclass(frozen=True, slots=True)
class _Asked:
    correlation: int
    version: int
    deadline: float
    partitions: dict[tuple[bytes, int], tuple[MirrorPartition, int]]  # with their attempts
    first: tuple[bytes, int]  # the broker answers at least one batch of the first one that has any


class SourceBroker:
    """Reads all partitions that one source broker leads."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: IntakeEvents) -> None:
        self.members: dict[MirrorPartition, None] = {}
        self._services = services
        self._events = events
        self._pool = BufferPool(most=BUFFERS)
        self._frames: LargeFrames | None = None
        self._filling: Buffer | None = None
        self._asked: _Asked | None = None
        self._turn = 0
        self._starved_since: float | None = None
        link_events = LinkEvents(opened=self._opened, readable=self._readable, writable=_nothing, lost=self._lost)
        self._link = BrokerLink(services, cluster, broker, events=link_events, receive_buffer=RECEIVE_BUFFER)

    def pump(self, now: float) -> None:
        """Ask for the next stretches, if nothing is being asked and somebody has room."""
        channel = self._link.ensure()
        if channel is None or self._asked is not None:
            return
        ready = [one for one in self.members if one.may_fetch(now)]
        if ready:
            self._ask(channel, self._rotated(ready), now)

    def check(self, now: float) -> None:
        """Give up a broker that is silent for too long; go on reading when a buffer has become free."""
        if self._asked is not None and now > self._asked.deadline:
            self._link.lose(
                LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, "A source broker does not answer a Fetch in time. It may be frozen. Retrying."
                )
            )
        elif self._frames is not None and self._frames.starved:
            self._readable()

    def starved_for(self, now: float) -> float:
        """Answer for how many seconds an answer has been waiting for a free buffer."""
        return 0.0 if self._starved_since is None else now - self._starved_since

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _rotated(self, ready: list[MirrorPartition]) -> list[MirrorPartition]:
        self._turn = (self._turn + 1) % len(ready)
        return ready[self._turn :] + ready[: self._turn]

    def _ask(self, channel: Channel, ready: list[MirrorPartition], now: float) -> None:
        tuning = self._services.tuning
        wait_ms = SHORT_WAIT_MS if self._somebody_expected(ready) else tuning.fetch_wait_ms
        positions: dict[bytes, list[FetchPosition]] = {}
        partitions: dict[tuple[bytes, int], tuple[MirrorPartition, int]] = {}
        for one in ready:
            assert one.origin is not None
            assert one.position is not None
            number = one.assignment.partition
            position = FetchPosition(number, one.origin.leader.epoch, one.position, tuning.fetch_partition_max_bytes)
            positions.setdefault(one.origin.topic, []).append(position)
            partitions[one.origin.topic, number] = (one, one.attempt)
            one.fetching = True
        version = self._version(channel, positions)
        correlation = channel.next_correlation()
        limits = FetchLimits(max_bytes=tuning.fetch_max_bytes, max_wait_ms=wait_ms)
        deadline = now + wait_ms / 1000 + GRACE_S
        self._asked = _Asked(correlation, version, deadline, partitions, next(iter(partitions)))
        channel.send(encode_fetch(positions, version=version, correlation_id=correlation, limits=limits))
        self._link.watch()

    def _version(self, channel: Channel, positions: dict[bytes, list[FetchPosition]]) -> int:
        by_id = all(len(topic) == 16 for topic in positions)
        return channel.connection.version_for(1, highest=BY_ID if by_id else BY_NAME, lowest=BY_NAME)

    def _somebody_expected(self, ready: list[MirrorPartition]) -> bool:
        asked = set(ready)
        return any(one not in asked and _soon_back(one) for one in self.members)

    def _opened(self, channel: Channel) -> None:
        self._frames = LargeFrames(channel, allocate=self._allocate)
        self.pump(self._services.clock.monotonic())

    def _allocate(self, size: int) -> memoryview | None:
        self._filling = self._pool.take()
        if self._filling is None:
            self._starved_since = self._starved_since or self._services.clock.monotonic()
            return None
        self._starved_since = None
        return self._filling.view(size)

    def _readable(self) -> None:
        assert self._frames is not None
        frame = self._frames.read()
        if frame is not None:
            self._answered(*frame)
        self._link.watch(read=not (self._frames is not None and self._frames.starved))

    def _answered(self, correlation: int, body: memoryview) -> None:
        asked, buffer = self._asked, self._filling
        self._asked = self._filling = None
        assert asked is not None
        assert buffer is not None
        try:
            if correlation != asked.correlation:
                raise LinkEngineError(ErrorCode.INTERNAL_ERROR, f"Answer {correlation} came instead of {asked.correlation}.")
            error, answers = decode_fetch(body, version=asked.version)
            for one, attempt in asked.partitions.values():
                if one.attempt == attempt:
                    one.fetching = False
            if error:
                raise BrokerError(error, "A source broker refuses to be read")
            for answer in answers:
                self._take(asked, answer, buffer)
        finally:
            buffer.release()
        self.pump(self._services.clock.monotonic())

    def _take(self, asked: _Asked, answer: FetchedPartition, buffer: Buffer) -> None:
        place = (answer.topic, answer.partition)
        one, attempt = asked.partitions[place]
        if one.attempt != attempt or one.stage is not Stage.COPYING:
            return
        if answer.error:
            self._events.refused(one, BrokerError(answer.error, f"Source {_name(one)} cannot be read"))
            return
        now_ms = self._services.clock.now_ms()
        one.source_answered(start=answer.log_start, end=answer.last_stable_offset, now_ms=now_ms)
        try:
            steps = self._plan(one, answer)
        except LinkEngineError as error:
            self._events.refused(one, error)
            return
        if steps:
            buffer.users += 1
            one.planned(steps, buffer)
            self._events.planned(one)
        elif place == asked.first and not len(answer.records):
            self._nothing_there(one, answer, buffer)

    def _plan(self, one: MirrorPartition, answer: FetchedPartition) -> list[Step]:
        assert one.position is not None
        if not len(answer.records):
            return []
        return SegmentPlanner().plan(
            answer.records,
            next_offset=one.position,
            aborted=[AbortedTransaction(*entry) for entry in answer.aborted],
            high_end=answer.last_stable_offset,
            coalesce_bytes=max(1, int(self._services.tuning.coalesce_bytes * one.coalesce_share)),
        )

    def _nothing_there(self, one: MirrorPartition, answer: FetchedPartition, buffer: Buffer) -> None:
        """The first partition of a request got no batch: either it has none yet, or compaction emptied its end."""
        assert one.position is not None
        if answer.last_stable_offset > one.position:
            buffer.users += 1
            one.planned([Fill(one.position, answer.last_stable_offset, GapReason.COMPACTED)], buffer)
            self._events.planned(one)
        elif answer.last_stable_offset < one.position:
            self._events.refused(one, BrokerError(KafkaCode.OFFSET_OUT_OF_RANGE, f"Source {_name(one)} ends before its mirror"))

    def _lost(self, error: LinkEngineError) -> None:
        asked, self._asked, self._frames = self._asked, None, None
        self._starved_since = None
        if self._filling is not None:
            self._filling.release()
            self._filling = None
        if asked is not None:
            for one, attempt in asked.partitions.values():
                if one.attempt == attempt:
                    one.fetching = False
        self._events.lost(list(self.members), error)


def _soon_back(one: MirrorPartition) -> bool:
    active = one.stage in (Stage.COPYING, Stage.RESUMING, Stage.WAITING)
    return active and one.source_trouble is None and one.mirror_trouble is None


def _name(one: MirrorPartition) -> str:
    return f"{one.assignment.source_topic}-{one.assignment.partition}"


def _nothing() -> None:
    """Fetch requests are small: nothing waits for the socket to take more."""

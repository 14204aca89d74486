"""Staggered polls: more than one long poll outstanding at a distant source broker whose partitions are caught up.

Why. A record that arrives at the source while a Fetch waits there is on its way at once. When the broker has answered, the
answer needs half a round trip to come over and the next request another half, so a record may wait a whole round trip for the
next request, and then needs half a round trip itself: 120 ms at a round trip of 80 ms. With ``POLLS`` requests that reach the
broker evenly spread, it waits at most ``1 / POLLS`` of a round trip.

How. The fetch session is one of the polls; the others are outside of it and name all its partitions at the position they have
now. Their answers overlap: a request that was sent before an earlier answer had come asks for the same records again. Each is
planned from the position on (``stretches.Intake.join``), and what is there twice is skipped. When records are rare all polls
wait at the broker and answer at the same time; they are sent again one after the other, ``1 / POLLS`` of a round trip apart.

The overlap costs bandwidth, up to ``POLLS`` times what is written, so polls are staggered only while answers are small and the
link has no bandwidth limit; a backlog is read by the session, or ahead (``read_ahead``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.copyjob.extra_connection import ExtraConnection, Received
from linkengine.copyjob.pacing import DISTANT_S, Throttle
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Origin
from linkengine.copyjob.read_ahead import by_topic
from linkengine.copyjob.session import Place, Reading
from linkengine.copyjob.stretches import Intake
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.fetch import FetchLimits, FetchPosition

POLLS = 4  # outstanding requests, with that of the session
MOST_PARTITIONS = 64  # of a broker; each poll names all of them
POLL_BYTES = 128 << 10  # of an answer; the records of some round trips at a rate that is worth it
QUIET_BYTES = 64 << 10  # a larger answer of the session means a backlog, or a rate at which overlaps are too dear
MEMORY, SMALLEST = 2 << 20, 128 << 10  # of the answers of one broker
ACTIVE_S = 10.0  # without records for so long, the session is enough
CLOSE_S = 60.0  # without records for so long, the connections are closed

Subject = dict[Place, tuple[Reading, Origin]]  # where the request asked, by place


class StaggeredPolls:
    """The extra polls of one distant source broker."""

    def __init__(
        self, services: Services, cluster: Cluster, broker: int, *, intake: Intake, moved: Callable[[MirrorPartition], None]
    ) -> None:
        """``moved`` is called with a partition whose position has advanced."""
        self._services, self._cluster, self._broker = services, cluster, broker
        self._intake, self._moved = intake, moved
        self._connections: list[ExtraConnection[Subject]] = []
        self._memory = BufferPool(budget=MEMORY, smallest=SMALLEST)
        self._round_trip_s = 0.0
        self._throttle = Throttle()
        self._sent_at = self._active_at = self._open_at = 0.0
        self._quiet = False

    @property
    def connections(self) -> int:
        """How many extra connections there are, open or not yet."""
        return len(self._connections)

    def opened(self, round_trip_s: float) -> None:
        """Start with a new connection of the session."""
        self.close()
        self._round_trip_s = round_trip_s

    def session_sent(self, now: float) -> None:
        """Take note of a request of the session: the next poll keeps its distance from it."""
        self._sent_at = now

    def session_answered(self, now: float, *, size: int, news: bool) -> None:
        """Take note of an answer of the session."""
        self._quiet = size <= QUIET_BYTES
        if news:
            self._active_at = now

    def due(self, now: float) -> float | None:
        """Return when the next poll may be sent, None where no connection is free for one."""
        return self._ready_at if self._wanted(now) and self._free() is not None else None

    def pump(self, now: float, entries: Mapping[Place, Reading]) -> None:
        """Send a poll for the partitions of the session, if it is time."""
        if not self._wanted(now):
            return
        if len(self._connections) < POLLS - 1 and now >= self._open_at:
            self._connections.append(ExtraConnection(self._services, self._cluster, self._broker, owner=self))
        connection = self._free()
        if connection is None or now < self._ready_at:
            return
        self._sent_at = now  # also where there is nothing to ask for now
        subject = self._subject(entries, now) if len(entries) <= MOST_PARTITIONS else {}
        forms = {origin.by_id for _, origin in subject.values()}  # ids and names do not mix in one request
        if len(forms) == 1:
            connection.ask(
                by_topic((reading.one, origin, reading.position) for reading, origin in subject.values()),
                by_id=forms.pop(),
                limits=FetchLimits(max_bytes=POLL_BYTES, max_wait_ms=self._services.tuning.fetch_wait_ms),
                subject=subject,
                now=now,
            )

    def _subject(self, entries: Mapping[Place, Reading], now: float) -> Subject:
        subject: Subject = {}
        for place, reading in entries.items():
            partition = reading.one
            if partition.origin is not None and partition.position is not None and partition.may_fetch(now):
                epoch = partition.origin.leader.epoch
                position = FetchPosition(partition.assignment.partition, epoch, partition.position, POLL_BYTES)
                subject[place] = Reading(partition, partition.attempt, position), partition.origin
        return subject

    def check(self, now: float) -> None:
        """Close connections that are silent or not needed."""
        for connection in list(self._connections):
            connection.check(now)
        if self._connections and now > self._active_at + CLOSE_S:
            self.close()

    def close(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    @property
    def _ready_at(self) -> float:
        return max(self._sent_at + self._round_trip_s / POLLS, self._throttle.until)

    def _wanted(self, now: float) -> bool:
        distant = self._round_trip_s >= DISTANT_S
        return distant and self._quiet and now < self._active_at + ACTIVE_S and not self._services.bandwidth.bytes_per_s

    def _free(self) -> ExtraConnection[Subject] | None:
        return next((each for each in self._connections if each.open and not each.outstanding), None)

    # --- what connections report -------------------------------------------------------------------------------------

    def allocate(self, size: int, subject: Subject) -> Buffer | None:
        """Return a buffer for an answer, None while there is none."""
        return self._memory.take(size)

    def received(self, connection: ExtraConnection[Subject], subject: Subject, received: Received, now: float) -> None:
        """Plan what is new in an answer."""
        answer = received.answer
        self._throttle.heard(now, answer.throttle_ms)
        asked = {(_asked_as(reading, origin), place[1]): (reading, origin) for place, (reading, origin) in subject.items()}
        for part in answer.partitions:
            reading, origin = asked.get((part.topic, part.partition), (None, None))
            if reading is None or part.error or not joinable(reading, now) or reading.one.origin is not origin:
                continue
            if len(part.records):
                self._active_at = now
            asked_from = reading.position.offset
            if self._intake.join(reading.one, part, received.buffer, asked_from=asked_from, heard_ms=received.heard_ms):
                self._moved(reading.one)

    def near(self) -> None:
        """Stop: the round trip was long because the broker was busy for a moment."""
        self._round_trip_s = 0.0
        self.close()

    def lost(self, connection: ExtraConnection[Subject], unanswered: Sequence[Subject]) -> None:
        """Open another connection in a while."""
        if connection in self._connections:
            self._connections.remove(connection)
            connection.close()
        self._open_at = self._services.clock.monotonic() + 1.0


def joinable(reading: Reading, now: float) -> bool:
    """Return whether an answer for this reading may be joined: same attempt, same leader, at or before the position."""
    partition = reading.one
    return (
        partition.attempt == reading.attempt
        and partition.origin is not None
        and partition.origin.leader.epoch == reading.position.leader_epoch
        and partition.position is not None
        and reading.position.offset <= partition.position
        and partition.may_fetch(now)
    )


def _asked_as(reading: Reading, origin: Origin) -> bytes:
    return origin.topic if origin.by_id else reading.topic_name

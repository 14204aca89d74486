"""Staggered polls: several long polls in flight at a distant source broker whose partitions are in sync.

Why. A record that arrives at the source while a Fetch waits there is sent immediately. After a response the broker has no
request for a whole round trip: half of it until the response arrives here, half until the next request arrives there. A record
that arrives in this time waits up to a round trip for the request and then travels half a round trip: 120 ms at a round trip
of 80 ms. With ``POLLS`` requests that reach the broker at even intervals it waits at most ``1 / POLLS`` of a round trip.

How. The fetch session is one of the polls. The others are outside of it and name all its partitions at their current positions.
Responses overlap: a request that was sent before an earlier response had arrived fetches the same records again. Each response
is planned from the position on (``fetch_planner.FetchPlanner.join``), so duplicates are skipped. If records are rare, all polls
wait at the broker and return at the same time; they are sent again one after the other, ``1 / POLLS`` of a round trip apart.

The overlap costs bandwidth, up to ``POLLS`` times what is written. So polls are staggered only while responses are small and
the link has no bandwidth limit. A backlog is read by the session, or ahead (``read_ahead``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.copyjob.pacing import DISTANT_S, Throttle
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source.extra_connection import ExtraConnection, Received
from linkengine.copyjob.source.fetch_planner import FetchPlanner
from linkengine.copyjob.source.fetch_session import Place, Reading
from linkengine.copyjob.source.read_ahead import by_topic
from linkengine.copyjob.values import SourceOrigin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.requests import FetchLimits, FetchPosition

POLLS = 4  # requests in flight, including that of the session
MOST_PARTITIONS = 64  # of a broker; each poll names all of them
POLL_BYTES = 128 << 10  # of a response: the records of some round trips at rates where polls are staggered
QUIET_BYTES = 64 << 10  # a larger session response means a backlog, or a rate at which overlaps cost too much
MEMORY, SMALLEST = 2 << 20, 128 << 10  # for the responses of a broker, and of the smallest buffer
ACTIVE_S = 10.0  # after this time without records the session is enough
CLOSE_S = 60.0  # after this time without records the connections are closed

Subject = dict[Place, tuple[Reading, SourceOrigin]]  # what a request names, by place


class StaggeredPolls:
    """The extra polls of a distant source broker."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        broker: int,
        *,
        planner: FetchPlanner,
        moved: Callable[[PartitionState], None],
    ) -> None:
        """``moved`` is called with a partition whose position has advanced."""
        self._services, self._cluster, self._broker = services, cluster, broker
        self._planner, self._moved = planner, moved
        self._connections: list[ExtraConnection[Subject]] = []
        self._memory = BufferPool(budget=MEMORY, smallest=SMALLEST)
        self._round_trip_s = 0.0
        self._throttle = Throttle()
        self._sent_at = self._active_at = self._open_at = 0.0
        self._quiet = False

    @property
    def connections(self) -> int:
        """The number of extra connections, including those being opened."""
        return len(self._connections)

    def opened(self, round_trip_s: float) -> None:
        """Start with a new connection of the session."""
        self.close()
        self._round_trip_s = round_trip_s

    def session_sent(self, now: float) -> None:
        """Note a request of the session, so that the next poll keeps its distance from it."""
        self._sent_at = now

    def session_responded(self, now: float, *, size: int, news: bool) -> None:
        """Note a session response of ``size`` bytes; ``news``: with records."""
        self._quiet = size <= QUIET_BYTES
        if news:
            self._active_at = now

    def due(self, now: float) -> float | None:
        """Return when the next poll may be sent, None if polls are not staggered now or no connection is free."""
        return self._ready_at if self._wanted(now) and self._free() is not None else None

    def pump(self, now: float, entries: Mapping[Place, Reading]) -> None:
        """Send a poll for the partitions of the session, if it is due."""
        if not self._wanted(now):
            return
        if len(self._connections) < POLLS - 1 and now >= self._open_at:
            self._connections.append(ExtraConnection(self._services, self._cluster, self._broker, owner=self))
        connection = self._free()
        if connection is None or now < self._ready_at:
            return
        self._sent_at = now  # also if no partition can be fetched now
        subject = self._subject(entries, now) if len(entries) <= MOST_PARTITIONS else {}
        forms = {origin.by_id for _, origin in subject.values()}  # ids and names do not mix in one request
        if len(forms) == 1:
            connection.request(
                by_topic((reading.partition, origin, reading.position) for reading, origin in subject.values()),
                by_id=forms.pop(),
                limits=FetchLimits(max_bytes=POLL_BYTES, max_wait_ms=self._services.tuning.fetch_wait_ms),
                subject=subject,
                now=now,
            )

    def _subject(self, entries: Mapping[Place, Reading], now: float) -> Subject:
        subject: Subject = {}
        for place, reading in entries.items():
            partition = reading.partition
            if partition.origin is not None and partition.position is not None and partition.may_fetch(now):
                epoch = partition.origin.leader.epoch
                position = FetchPosition(partition.assignment.partition, epoch, partition.position, POLL_BYTES)
                subject[place] = Reading(partition, partition.attempt, position), partition.origin
        return subject

    def check(self, now: float) -> None:
        """Close connections that have timed out or are not needed."""
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

    # --- events of connections ---------------------------------------------------------------------------------------

    def allocate(self, size: int, subject: Subject) -> Buffer | None:
        """Return a buffer for a response, None while there is none."""
        return self._memory.take(size)

    def received(self, connection: ExtraConnection[Subject], subject: Subject, received: Received, now: float) -> None:
        """Plan the records of a response that are beyond the positions."""
        response = received.response
        self._throttle.update(now, response.throttle_ms)
        requested = {
            (_topic_in_request(reading, origin), place[1]): (reading, origin) for place, (reading, origin) in subject.items()
        }
        for part in response.partitions:
            reading, origin = requested.get((part.topic, part.partition), (None, None))
            if reading is None or part.error or not joinable(reading, now) or reading.partition.origin is not origin:
                continue
            if len(part.records):
                self._active_at = now
            requested_from = reading.position.offset
            if self._planner.join(
                reading.partition, part, received.buffer, requested_from=requested_from, responded_ms=received.responded_ms
            ):
                self._moved(reading.partition)

    def near(self) -> None:
        """Stop: the broker is not distant; its first round trip was long because it was busy."""
        self._round_trip_s = 0.0
        self.close()

    def lost(self, connection: ExtraConnection[Subject], in_flight: Sequence[Subject]) -> None:
        """Remove a lost connection; another may be opened after a second."""
        if connection in self._connections:
            self._connections.remove(connection)
            connection.close()
        self._open_at = self._services.clock.monotonic() + 1.0


def joinable(reading: Reading, now: float) -> bool:
    """Return whether a response for this reading may be joined: same attempt, same leader epoch, not beyond the position."""
    partition = reading.partition
    return (
        partition.attempt == reading.attempt
        and partition.origin is not None
        and partition.origin.leader.epoch == reading.position.leader_epoch
        and partition.position is not None
        and reading.position.offset <= partition.position
        and partition.may_fetch(now)
    )


def _topic_in_request(reading: Reading, origin: SourceOrigin) -> bytes:
    return origin.topic if origin.by_id else reading.topic_name

"""Fetches from a source broker: a single Fetch request at a time, always a response ahead of the writing.

The partitions of a broker share its requests and a fetch session (``fetch_session.py``, KIP-227), so that only partitions with
new records cost anything. The next request is sent as soon as the last response is planned, while its batches are still
being written.

A partition that is written slowly is left out until its chunks are written. While such a partition is expected back soon,
the request has a short ``max_wait_ms``, so that the wait for other partitions does not delay it. ``pacing.py`` decides
when the next request is sent and how much it may return.

How its partitions (``members``) are tracked:

| table | partitions in it |
|---|---|
| ``_session.entries`` | requested from the broker, or will be with the next request |
| ``_changed`` | may have changed: their entries are updated before the next request |
| ``_paused`` | wait until ``source_retry_at`` after an error |
| ``_ahead`` | have a backlog that is read over extra connections, outside the session |

From a distant broker, partitions with a backlog are read over extra connections (``read_ahead.py``), and partitions that
are caught up get more long polls than that of the session (``staggered_polls.py``).
"""

from __future__ import annotations

from linkengine.copyjob.broker_link import BrokerLink, LinkEvents, Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.pacing import Pace
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source.fetch_planner import FetchEvents, FetchPlanner
from linkengine.copyjob.source.fetch_session import (
    UNKNOWN_SESSION,
    FetchInFlight,
    Place,
    Reading,
    ReadSession,
    Request,
    SingleFetches,
)
from linkengine.copyjob.source.read_ahead import ReadAhead
from linkengine.copyjob.source.staggered_polls import StaggeredPolls, joinable
from linkengine.copyjob.values import Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import BrokerError, MalformedResponseError
from linkengine.kafka.requests import (
    FETCH_API_KEY,
    FETCH_BY_ID,
    FETCH_BY_NAME,
    FetchedPartition,
    FetchLimits,
    FetchPosition,
    FetchResponse,
    decode_fetch,
    encode_fetch,
)

SHORT_WAIT_MS = 15  # long poll while a partition of the same broker is expected back soon
GRACE_S = 10.0  # beyond the long poll, and between parts of a response: a broker that is silent for longer is given up
SWEEP_S = 1.0  # changes that no event reported are noticed after this time
KEEP_OPEN_S = 60.0  # brokers close connections that are idle for connections.max.idle.ms, 10 minutes by default


class BrokerFetcher:
    """Reads the partitions that a source broker leads, over a single connection."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: FetchEvents) -> None:
        self.members: dict[PartitionState, None] = {}
        self._services, self._events = services, events
        self._planner = FetchPlanner(services, events)
        self._ahead = ReadAhead(services, cluster, broker, planner=self._planner, left=self.note_change)
        self._polls = StaggeredPolls(services, cluster, broker, planner=self._planner, moved=self.note_change)
        self._complete_at_ms = 0  # when the broker last named every partition with a new high watermark
        self._session = ReadSession()
        self._pace = Pace(services.tuning, services.bandwidth)
        # partitions whose session entry may have to change before the next request
        self._changed: dict[PartitionState, None] = {}
        self._paused: dict[PartitionState, None] = {}  # partitions that wait for their ``source_retry_at``
        self._single_fetches = SingleFetches()
        self._frames: LargeFrames | None = None
        self._filling: Buffer | None = None
        self._in_flight: FetchInFlight | None = None
        self._sweep_at = self._response_began_at = self._moved_at = self._sent_at = 0.0
        self._received = 0  # bytes of the response when last checked
        self._starved_since: float | None = None
        link_events = LinkEvents(
            opened=self._opened,
            readable=self._readable,
            writable=_nothing,
            lost=self._lost,
            idle=lambda: self._in_flight is None,
        )
        self._link = BrokerLink(services, cluster, broker, events=link_events)

    def adopt(self, partition: PartitionState) -> None:
        """Start reading a partition."""
        self.members[partition] = None
        self._changed[partition] = None

    def forget(self, partition: PartitionState) -> None:
        """Stop reading a partition."""
        self.members.pop(partition, None)
        self._changed.pop(partition, None)
        self._paused.pop(partition, None)
        self._ahead.forget(partition)
        if partition.origin is not None:
            self._session.drop(_place(partition))

    def note_change(self, partition: PartitionState) -> None:
        """Note that the position or the readiness of a partition may have changed."""
        if partition in self.members:
            self._changed[partition] = None

    def due(self) -> float | None:
        """Return when the next request may be sent; None while a response is awaited or nothing is wanted."""
        if self._link.channel is None:
            return None
        poll_at = self._polls.due(self._services.clock.monotonic())
        if self._in_flight is not None or not (self._session.entries or self._changed):
            return poll_at
        return self._pace.ready_at if poll_at is None else min(poll_at, self._pace.ready_at)

    def pump(self, now: float) -> None:
        """Send the next Fetch if none is in flight."""
        if self._link.channel is not None:
            self._ahead.pump(now)
        self._pump_session(now)
        if self._link.channel is not None:
            self._polls.pump(now, self._session.entries)

    def _pump_session(self, now: float) -> None:
        if self._in_flight is not None or not self.members or now < self._pace.ready_at:
            return
        channel = self._link.ensure()
        if channel is None:
            return
        if self._changed:
            self._update_session(now)
        try:
            self._send_next(channel, now)
        except LinkEngineError as error:  # the broker is too old for this request
            self._link.lose(error)

    def check(self, now: float) -> None:
        """Close the connection to a silent broker; continue where a pause is over or a buffer has become free."""
        if self._paused:
            self._changed |= dict.fromkeys([partition for partition in self._paused if partition.source_retry_at <= now])
        self._ahead.check(now)
        self._polls.check(now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            self._changed |= self.members
        if self._in_flight is not None and self._is_silent(self._in_flight, now):
            self._link.lose(
                LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A source broker does not respond. It may be frozen. Retrying.")
            )
        elif self._frames is not None and self._frames.starved:
            self._link.read_now()

    def _is_silent(self, in_flight: FetchInFlight, now: float) -> bool:
        """Return whether no bytes arrive.

        A response of some megabytes takes its time on a slow network, and may wait for a free buffer.
        """
        frames = self._frames
        if frames is not None and (frames.starved or frames.received != self._received):
            self._received, self._moved_at = frames.received, now
        return now > max(in_flight.deadline, self._moved_at + GRACE_S)

    def starved_for(self, now: float) -> float:
        """Return for how many seconds a response has been waiting for a free buffer."""
        return 0.0 if self._starved_since is None else now - self._starved_since

    def close(self) -> None:
        """Close the connections."""
        self._ahead.close()
        self._polls.close()
        self._link.close()

    # --- requests ----------------------------------------------------------------------------------------------------

    def _update_session(self, now: float) -> None:
        """Update the session entries of the partitions that may have changed."""
        changed, self._changed = self._changed, {}
        for partition in changed:
            if partition.origin is None:
                continue
            place = _place(partition)
            self._paused.pop(partition, None)
            if partition in self._ahead:
                continue
            if not partition.may_fetch(now):
                self._session.drop(place)
                if partition.source_retry_at > now:
                    self._paused[partition] = None
                continue
            if self._ahead.admits(partition, now):
                self._session.drop(place)
                continue
            known = self._session.entries.get(place)
            if known is None or not known.current or known.position.leader_epoch != partition.origin.leader.epoch:
                self._session.want(place, self._reading(partition), by_id=partition.origin.by_id)

    def _reading(self, partition: PartitionState) -> Reading:
        assert partition.origin is not None
        assert partition.position is not None
        most = self._services.tuning.fetch_partition_max_bytes
        return Reading(
            partition,
            partition.attempt,
            FetchPosition(partition.assignment.partition, partition.origin.leader.epoch, partition.position, most),
        )

    def _send_next(self, channel: Channel, now: float) -> None:
        """Send a Fetch of the session, or a Fetch for a partition alone.

        The response to a request for a single partition holds at least one batch if there is any.
        """
        single = self._single_fetches.take(self._session)
        if single is not None:
            self._send(channel, self._session.probe(*single), now, wait_ms=0, probe=single)
        elif self._session.entries or now > self._sent_at + KEEP_OPEN_S:
            self._send(channel, self._session.request(), now, wait_ms=self._wait_ms())

    def _wait_ms(self) -> int:
        if self._single_fetches:
            return 0
        return SHORT_WAIT_MS if self._is_any_expected() else self._services.tuning.fetch_wait_ms

    def _send(
        self, channel: Channel, request: Request, now: float, *, wait_ms: int, probe: tuple[Place, Reading] | None = None
    ) -> None:
        version = FETCH_BY_ID if request.by_id else FETCH_BY_NAME
        channel.connection.version_for(FETCH_API_KEY, highest=version, lowest=version)
        correlation = channel.next_correlation()
        limits = FetchLimits(max_bytes=self._pace.max_bytes, max_wait_ms=wait_ms)
        self._in_flight = FetchInFlight(correlation, version, now, now + wait_ms / 1000 + GRACE_S, limits.max_bytes, probe)
        self._sent_at = now
        self._polls.session_sent(now)
        self._pace.requested(now, partitions=len(self._session.entries) if probe is None else 1)
        frame = encode_fetch(
            request.positions,
            version=version,
            correlation_id=correlation,
            limits=limits,
            step=request.step,
            forgotten=request.forgotten,
        )
        channel.send(frame)
        self._link.watch()

    def _is_any_expected(self) -> bool:
        entries = self._session.entries
        if len(entries) >= len(self.members):
            return False
        return any(
            _is_expected_soon(partition)
            for partition in self.members
            if _place(partition) not in entries and partition not in self._ahead
        )

    # --- responses ---------------------------------------------------------------------------------------------------

    def _opened(self, channel: Channel) -> None:
        self._frames = LargeFrames(channel, allocate=self._allocate)
        self._sent_at = self._services.clock.monotonic()
        round_trip_s = channel.connection.round_trip_s or 0.0
        self._pace.opened(round_trip_s=round_trip_s)
        self._ahead.opened(round_trip_s)
        self._polls.opened(round_trip_s)
        self._changed |= self.members

    def _allocate(self, size: int) -> memoryview | None:
        self._response_began_at = self._starved_since or self._services.clock.monotonic()
        self._filling = self._services.pool.take(size)
        if self._filling is None:
            self._starved_since = self._response_began_at
            return None
        self._starved_since = None
        return self._filling.view(size)

    def _readable(self) -> None:
        assert self._frames is not None
        frame = self._frames.read()
        if frame is not None:
            self._on_response(*frame)
        self._link.watch_unless(starved=self._frames is not None and self._frames.starved)

    def _on_response(self, correlation: int, body: memoryview) -> None:
        in_flight, buffer = self._in_flight, self._filling
        self._in_flight = self._filling = None
        assert buffer is not None
        try:
            if in_flight is None or correlation != in_flight.correlation:
                raise self._malformed()
            response = decode_fetch(body, version=in_flight.version)
            now = self._services.clock.monotonic()
            if not self._pace.throttle.update(now, response.throttle_ms):
                raise self._malformed()
            self._pace.responded(
                now, took_s=self._response_began_at - in_flight.sent_at, came_s=now - self._response_began_at, size=len(body)
            )
            self._polls.session_responded(
                now, size=len(body), news=any(len(fetched.records) for fetched in response.partitions)
            )
            # the broker read the log before it began to send; the transfer may have taken long
            responded_ms = self._services.clock.now_ms() - int((now - self._response_began_at) * 1000)
            self._take_partitions(in_flight, response, buffer, responded_ms=responded_ms)
        finally:
            buffer.release()

    def _malformed(self) -> LinkEngineError:
        return MalformedResponseError("Fetch", peer=self._link.channel.peer if self._link.channel is not None else "")

    def _take_partitions(self, in_flight: FetchInFlight, response: FetchResponse, buffer: Buffer, *, responded_ms: int) -> None:
        if response.error in UNKNOWN_SESSION:
            self._session.restart()
            return
        if response.error:
            raise BrokerError(response.error, "A source broker refused a Fetch request")
        if in_flight.probe is None:
            self._session.responded(response.session, complete=not response.throttle_ms)
        news = False
        for fetched in response.partitions:
            news |= bool(fetched.error or len(fetched.records))
            reading = self._reading_of(in_flight, (fetched.topic, fetched.partition))
            if reading is not None:
                self._changed[reading.partition] = None
                self._take_partition(reading, fetched, buffer, responded_ms=responded_ms, alone=in_flight.probe is not None)
        if not response.throttle_ms and in_flight.probe is None:
            self._complete_at_ms = responded_ms  # a full response, too, names each partition whose high watermark has moved
            if not news:
                self._single_fetches.note(self._session)

    def _take_partition(
        self, reading: Reading, fetched: FetchedPartition, buffer: Buffer, *, responded_ms: int, alone: bool
    ) -> None:
        partition, requested_from = reading.partition, reading.position.offset
        if reading.current:
            self._planner.take(partition, fetched, buffer, responded_ms=responded_ms, alone=alone)
            if self._ahead.distant:
                self._ahead.note(partition, requested_from=requested_from, records=fetched.records)
        elif joinable(reading, self._services.clock.monotonic()):  # another poll's response has moved the position
            self._planner.join(partition, fetched, buffer, requested_from=requested_from, responded_ms=responded_ms)
        else:
            self._planner.observe(partition, fetched, responded_ms=responded_ms)

    def _reading_of(self, in_flight: FetchInFlight, place: Place) -> Reading | None:
        """Return the reading that a partition's data was requested for, or None.

        None if the partition is read from another leader by now, which may have other records at these offsets.
        """
        if in_flight.probe is None:
            return self._session.entries.get(place) or self._session.named(place)
        probed, reading = in_flight.probe
        return reading if self._session.entries.get(probed) is reading else None

    def note_unchanged(self, partition: PartitionState) -> None:
        """Note that a partition was unchanged at the broker if the broker left it out of its last responses."""
        place = _place(partition)
        reading = self._session.entries.get(place)
        if reading is not None and reading.partition is partition and reading.current and self._session.was_complete(place):
            partition.counters.unchanged(self._complete_at_ms)

    def _lost(self, error: LinkEngineError) -> None:
        self._in_flight = self._frames = self._starved_since = None
        self._single_fetches.clear()
        self._ahead.close()
        self._polls.close()
        self._pace.lost()
        self._session.forget_all()
        if self._filling is not None:
            self._filling.release()
            self._filling = None
        self._services.pool.expect_none()
        self._events.lost(list(self.members), error)


def _place(partition: PartitionState) -> Place:
    assert partition.origin is not None
    return partition.origin.topic, partition.assignment.partition


def _is_expected_soon(partition: PartitionState) -> bool:
    active = partition.stage in (Stage.COPYING, Stage.RESUMING, Stage.WAITING)
    return active and partition.source_trouble is None and partition.mirror_trouble is None


def _nothing() -> None:
    """Do nothing: Fetch requests are small and never wait for space in the socket."""

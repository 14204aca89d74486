"""The source side of the loop: one Fetch at a time per source broker, always one stretch ahead of the writing.

Partitions of a broker share its requests and a fetch session (``session.py``): only partitions with news cost anything. The
next request goes out as soon as the last answer is planned, while its batches are still being written. A partition that is
written slowly is left out until it has room; as long as one is expected back soon the broker is asked not to wait long, so
that nobody's long poll delays another. How soon and how much to ask is told by ``pacing.py``.

From a distant broker partitions with a backlog are read over other connections (``read_ahead.py``), and those that are caught
up by more polls than that of the session (``staggered_polls.py``).
"""

from __future__ import annotations

from linkengine.copyjob.brokerlink import BrokerLink, LinkEvents, Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.pacing import Pace
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Stage
from linkengine.copyjob.read_ahead import ReadAhead
from linkengine.copyjob.session import UNKNOWN_SESSION, Asked, Place, Reading, ReadSession, Request
from linkengine.copyjob.staggered_polls import StaggeredPolls, joinable
from linkengine.copyjob.stretches import Intake, IntakeEvents
from linkengine.copyjob.suspects import Suspects
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.fetch import (
    API_KEY,
    BY_ID,
    BY_NAME,
    FetchAnswer,
    FetchedPartition,
    FetchLimits,
    FetchPosition,
    decode_fetch,
    encode_fetch,
)
from linkengine.kafka.wire import MalformedAnswerError

SHORT_WAIT_MS = 15  # long poll while a partition of the same broker is expected back soon
GRACE_S = 10.0  # beyond the long poll, and between pieces of an answer: a broker silent for longer is gone
SWEEP_S = 1.0  # whatever an event did not tell is noticed after this time
KEEP_OPEN_S = 60.0  # brokers close connections that are idle for connections.max.idle.ms, 10 minutes by default


class SourceBroker:
    """Reads all partitions that one source broker leads."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: IntakeEvents) -> None:
        self.members: dict[MirrorPartition, None] = {}
        self._services, self._events = services, events
        self._intake = Intake(services, events)
        self._ahead = ReadAhead(services, cluster, broker, intake=self._intake, left=self.stir)
        self._polls = StaggeredPolls(services, cluster, broker, intake=self._intake, moved=self.stir)
        self._heard_ms = 0  # when the broker last told all that is new
        self._session = ReadSession()
        self._pace = Pace(services.tuning, services.bandwidth)
        self._stirred: dict[MirrorPartition, None] = {}  # to be looked at before the next request
        self._asleep: dict[MirrorPartition, None] = {}  # wait for a time, after a trouble
        self._suspects = Suspects()
        self._frames: LargeFrames | None = None
        self._filling: Buffer | None = None
        self._asked: Asked | None = None
        self._sweep_at = self._began_at = self._moved_at = self._sent_at = 0.0
        self._received = 0  # of an answer, when last looked
        self._starved_since: float | None = None
        link_events = LinkEvents(
            opened=self._opened,
            readable=self._readable,
            writable=_nothing,
            lost=self._lost,
            idle=lambda: self._asked is None,
        )
        self._link = BrokerLink(services, cluster, broker, events=link_events)

    def adopt(self, one: MirrorPartition) -> None:
        """Read a partition from now on."""
        self.members[one] = None
        self._stirred[one] = None

    def forget(self, one: MirrorPartition) -> None:
        """Read a partition no more."""
        self.members.pop(one, None)
        self._stirred.pop(one, None)
        self._asleep.pop(one, None)
        self._ahead.forget(one)
        if one.origin is not None:
            self._session.drop(_place(one))

    def stir(self, one: MirrorPartition) -> None:
        """What a partition wants may have changed."""
        if one in self.members:
            self._stirred[one] = None

    def due(self) -> float | None:
        """Answer when the next request may go out, None while an answer is awaited or nothing is wanted."""
        if self._link.channel is None:
            return None
        poll_at = self._polls.due(self._services.clock.monotonic())
        if self._asked is not None or not (self._session.entries or self._stirred):
            return poll_at
        return self._pace.ready_at if poll_at is None else min(poll_at, self._pace.ready_at)

    def pump(self, now: float) -> None:
        """Ask for the next stretches, if nothing is being asked and somebody has room."""
        if self._link.channel is not None:
            self._ahead.pump(now)
        self._pump_session(now)
        if self._link.channel is not None:
            self._polls.pump(now, self._session.entries)

    def _pump_session(self, now: float) -> None:
        if self._asked is not None or not self.members or now < self._pace.ready_at:
            return
        channel = self._link.ensure()
        if channel is None:
            return
        if self._stirred:
            self._look(now)
        try:
            self._ask(channel, now)
        except LinkEngineError as error:  # the broker is too old for what is to be asked
            self._link.lose(error)

    def check(self, now: float) -> None:
        """Give up a broker that is silent for too long; go on where a pause is over or a buffer has become free."""
        if self._asleep:
            self._stirred |= dict.fromkeys([one for one in self._asleep if one.source_retry_at <= now])
        self._ahead.check(now)
        self._polls.check(now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            self._stirred |= self.members
        if self._asked is not None and self._is_silent(self._asked, now):
            self._link.lose(LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A source broker is silent. It may be frozen. Retrying."))
        elif self._frames is not None and self._frames.starved:
            self._link.look()

    def _is_silent(self, asked: Asked, now: float) -> bool:
        """Tell whether nothing comes. Megabytes take their time on a narrow way, and may wait for a buffer of ours."""
        frames = self._frames
        if frames is not None and (frames.starved or frames.received != self._received):
            self._received, self._moved_at = frames.received, now
        return now > max(asked.deadline, self._moved_at + GRACE_S)

    def starved_for(self, now: float) -> float:
        """Answer for how many seconds an answer has been waiting for a free buffer."""
        return 0.0 if self._starved_since is None else now - self._starved_since

    def close(self) -> None:
        """Close the connections."""
        self._ahead.close()
        self._polls.close()
        self._link.close()

    # --- asking ------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Take what partitions want now over into the session."""
        stirred, self._stirred = self._stirred, {}
        for one in stirred:
            if one.origin is None:
                continue
            place = _place(one)
            self._asleep.pop(one, None)
            if one in self._ahead:
                continue
            if not one.may_fetch(now):
                self._session.drop(place)
                if one.source_retry_at > now:
                    self._asleep[one] = None
                continue
            if self._ahead.admits(one, now):
                self._session.drop(place)
                continue
            known = self._session.entries.get(place)
            if known is None or not known.current or known.position.leader_epoch != one.origin.leader.epoch:
                self._session.want(place, self._reading(one), by_id=one.origin.by_id)

    def _reading(self, one: MirrorPartition) -> Reading:
        assert one.origin is not None
        assert one.position is not None
        most = self._services.tuning.fetch_partition_max_bytes
        return Reading(one, one.attempt, FetchPosition(one.assignment.partition, one.origin.leader.epoch, one.position, most))

    def _ask(self, channel: Channel, now: float) -> None:
        """Ask for everybody, or for one partition alone: its answer has at least one batch, unless there is none at all."""
        suspect = self._suspects.take(self._session)
        if suspect is not None:
            self._send(channel, self._session.probe(*suspect), now, wait_ms=0, probe=suspect)
        elif self._session.entries or now > self._sent_at + KEEP_OPEN_S:
            self._send(channel, self._session.request(), now, wait_ms=self._wait_ms())

    def _wait_ms(self) -> int:
        if self._suspects:
            return 0
        return SHORT_WAIT_MS if self._somebody_expected() else self._services.tuning.fetch_wait_ms

    def _send(
        self, channel: Channel, request: Request, now: float, *, wait_ms: int, probe: tuple[Place, Reading] | None = None
    ) -> None:
        version = BY_ID if request.by_id else BY_NAME
        channel.connection.version_for(API_KEY, highest=version, lowest=version)
        correlation = channel.next_correlation()
        limits = FetchLimits(max_bytes=self._pace.max_bytes, max_wait_ms=wait_ms)
        self._asked = Asked(correlation, version, now, now + wait_ms / 1000 + GRACE_S, limits.max_bytes, probe)
        self._sent_at = now
        self._polls.session_sent(now)
        self._pace.asked(now, partitions=len(self._session.entries) if probe is None else 1)
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

    def _somebody_expected(self) -> bool:
        entries = self._session.entries
        if len(entries) >= len(self.members):
            return False
        return any(_soon_back(one) for one in self.members if _place(one) not in entries and one not in self._ahead)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _opened(self, channel: Channel) -> None:
        self._frames = LargeFrames(channel, allocate=self._allocate)
        self._sent_at = self._services.clock.monotonic()
        round_trip_s = channel.connection.round_trip_s or 0.0
        self._pace.opened(round_trip_s=round_trip_s)
        self._ahead.opened(round_trip_s)
        self._polls.opened(round_trip_s)
        self._stirred |= self.members

    def _allocate(self, size: int) -> memoryview | None:
        self._began_at = self._starved_since or self._services.clock.monotonic()
        self._filling = self._services.pool.take(size)
        if self._filling is None:
            self._starved_since = self._began_at
            return None
        self._starved_since = None
        return self._filling.view(size)

    def _readable(self) -> None:
        assert self._frames is not None
        frame = self._frames.read()
        if frame is not None:
            self._answered(*frame)
        starved = self._frames is not None and self._frames.starved
        if starved and self._link.channel is not None:
            self._link.channel.check_open()
        self._link.watch(read=not starved)

    def _answered(self, correlation: int, body: memoryview) -> None:
        asked, buffer = self._asked, self._filling
        self._asked = self._filling = None
        assert buffer is not None
        try:
            if asked is None or correlation != asked.correlation:
                raise self._malformed()
            answer = decode_fetch(body, version=asked.version)
            now = self._services.clock.monotonic()
            if not self._pace.throttle.heard(now, answer.throttle_ms):
                raise self._malformed()
            self._pace.answered(now, took_s=self._began_at - asked.sent_at, came_s=now - self._began_at, size=len(body))
            self._polls.session_answered(now, size=len(body), news=any(len(part.records) for part in answer.partitions))
            # its broker looked at the log before it began to answer; to come over it may have taken long
            heard_ms = self._services.clock.now_ms() - int((now - self._began_at) * 1000)
            self._take_all(asked, answer, buffer, heard_ms=heard_ms, roomy=len(body) < asked.max_bytes / 2)
        finally:
            buffer.release()

    def _malformed(self) -> LinkEngineError:
        return MalformedAnswerError("Fetch", peer=self._link.channel.peer if self._link.channel is not None else "")

    def _take_all(self, asked: Asked, answer: FetchAnswer, buffer: Buffer, *, heard_ms: int, roomy: bool) -> None:
        if answer.error in UNKNOWN_SESSION:
            self._session.restart()
            return
        if answer.error:
            raise BrokerError(answer.error, "A source broker refuses to be read")
        if asked.probe is None:
            self._session.answered(answer.session, told=not answer.throttle_ms)
        news = False
        for part in answer.partitions:
            news |= bool(part.error or len(part.records))
            reading = self._reading_of(asked, (part.topic, part.partition))
            if reading is not None:
                self._stirred[reading.one] = None
                self._take(reading, part, buffer, heard_ms=heard_ms, alone=asked.probe is not None)
        if not answer.throttle_ms and asked.probe is None:
            if roomy or not news:  # nobody was left out for lack of room
                self._heard_ms = heard_ms
            if not news:
                self._suspects.note(self._session)

    def _take(self, reading: Reading, part: FetchedPartition, buffer: Buffer, *, heard_ms: int, alone: bool) -> None:
        one, asked_from = reading.one, reading.position.offset
        if reading.current:
            self._intake.take(one, part, buffer, heard_ms=heard_ms, alone=alone)
            if self._ahead.distant:
                self._ahead.note(one, asked_from=asked_from, records=part.records)
        elif joinable(reading, self._services.clock.monotonic()):  # another poll has moved the position
            self._intake.join(one, part, buffer, asked_from=asked_from, heard_ms=heard_ms)
        else:
            self._intake.overhear(one, part, heard_ms=heard_ms)

    def _reading_of(self, asked: Asked, place: Place) -> Reading | None:
        """Answer for whom a part is, None where it is read elsewhere by now: another leader may have other records."""
        if asked.probe is None:
            return self._session.entries.get(place) or self._session.named(place)
        probed, reading = asked.probe
        return reading if self._session.entries.get(probed) is reading else None

    def note_unchanged(self, one: MirrorPartition) -> None:
        """Tell a partition that the broker left out of its last answers that it was still where it is."""
        place = _place(one)
        reading = self._session.entries.get(place)
        if reading is not None and reading.one is one and reading.current and self._session.heard(place):
            one.account.unchanged(self._heard_ms)

    def _lost(self, error: LinkEngineError) -> None:
        self._asked = self._frames = self._starved_since = None
        self._suspects.clear()
        self._ahead.close()
        self._polls.close()
        self._pace.lost()
        self._session.forget_all()
        if self._filling is not None:
            self._filling.release()
            self._filling = None
        self._services.pool.expect_none()
        self._events.lost(list(self.members), error)


def _place(one: MirrorPartition) -> Place:
    assert one.origin is not None
    return one.origin.topic, one.assignment.partition


def _soon_back(one: MirrorPartition) -> bool:
    active = one.stage in (Stage.COPYING, Stage.RESUMING, Stage.WAITING)
    return active and one.source_trouble is None and one.mirror_trouble is None


def _nothing() -> None:
    """Fetch requests are small: nothing waits for the socket to take more."""

"""Fills gaps of the partitions that one destination broker leads with transaction markers, and verifies each fill.

A marker append is not conditional, hence: a connection of its own with one round in flight; the lease knows that markers may be
on their way; everything before the gap is acknowledged; the lease is looked at right before sending; the log ends are asked for
on the same connection behind the markers, which the broker serves in that order. Nothing follows a fill before its end was seen
where it belongs. Markers whose answer was lost are remembered: the resume waits until they cannot come late any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from linkengine.batches.steps import Fill
from linkengine.copyjob.brokerlink import BrokerLink, LinkEvents, Services
from linkengine.copyjob.foreign import overtaken
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Chunk, FillInFlight, Overtaken
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import coordinator_epoch_for
from linkengine.kafka.channel import Channel, SmallFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.markers import MarkerFill, decode_log_ends, decode_markers, encode_log_ends, encode_markers
from linkengine.kafka.wire import MalformedAnswerError

ROUND_MARKERS = 1_000  # per request: about 40 ms of the broker's time


class FillEvents(Protocol):
    """The part of OutletEvents that fills need (see ``outlet.py``)."""

    @property
    def may_write(self) -> Callable[[MirrorPartition], bool]: ...
    @property
    def arm(self) -> Callable[[list[MirrorPartition]], None]: ...
    @property
    def interrupted(self) -> Callable[[MirrorPartition, LinkEngineError], None]: ...
    @property
    def failed(self) -> Callable[[MirrorPartition, LinkEngineError], None]: ...


@dataclass(slots=True)
class _Round:
    markers: int  # correlation ids
    ends: int
    sent_at: float
    entries: list[tuple[MirrorPartition, int, FillInFlight, int]]  # with attempt and the end of the whole gap
    errors: dict[tuple[int, str, int], int] = field(default_factory=dict)


class Filler:
    """The marker connection of one destination broker."""

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        broker: int,
        *,
        events: FillEvents,
        finished: Callable[[MirrorPartition, Chunk | None], None],
        lost: Callable[[LinkEngineError], None],
    ) -> None:
        self._services = services
        self._events = events
        self._finished = finished
        self._on_lost = lost
        self._ready: dict[MirrorPartition, None] = {}
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
        """Open the connection ahead of the first gap."""
        self._link.ensure()

    def wake(self, one: MirrorPartition) -> None:
        """A partition stands before a gap."""
        self._ready[one] = None

    def forget(self, one: MirrorPartition) -> None:
        """Fill a partition no more; what is in flight is answered or lost."""
        self._ready.pop(one, None)

    def pump(self, now: float) -> None:
        """Send a round, if none is in flight and somebody stands before a gap."""
        if self._round is not None or not self._ready:
            return
        self._arm()
        channel = self._link.ensure()
        if channel is None:
            return
        waiting = [one for one in self._ready if one.armed and one.may_fill(now) and self._events.may_write(one)]
        for one in waiting:
            del self._ready[one]
            if one.must_look_again(now):
                self._events.interrupted(one, waited(one))  # its step is gone then: nothing is sent for it now
        share = max(1, ROUND_MARKERS // max(1, len(waiting)))
        late_until = now + self._timeout_s
        entries = [entry for one in waiting if (entry := self._begin(one, share, late_until)) is not None]
        if entries:
            self._send(channel, entries, now)

    def check(self, now: float) -> None:
        """Give up a broker that does not answer in time; fill where a new owner had to wait first."""
        if self._round is None:
            self.pump(now)
        elif now > self._round.sent_at + self._timeout_s:
            self._link.lose(
                LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, "A destination broker does not answer a gap fill in time. It may be frozen."
                )
            )

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    @property
    def _timeout_s(self) -> float:
        return self._services.tuning.request_timeout_ms / 1000

    def _begin(
        self, one: MirrorPartition, share: int, late_until: float
    ) -> tuple[MirrorPartition, int, FillInFlight, int] | None:
        step = one.next_step()
        if not isinstance(step, Fill):
            return None
        try:
            fill = one.send_fill(step, most=share, late_until=late_until)
        except LinkEngineError as error:  # no epoch is left
            self._events.failed(one, error)
            return None
        return one, one.attempt, fill, step.end

    def _arm(self) -> None:
        """Ask once per hold, ahead of its first marker: who comes after us has to know that there may be some."""
        unarmed = [one for one in self._ready if one.armed is None]
        for one in unarmed:
            one.armed = False
        if unarmed:
            self._events.arm(unarmed)

    def _send(self, channel: Channel, entries: list[tuple[MirrorPartition, int, FillInFlight, int]], now: float) -> None:
        fills = [_marker_fill(one, fill) for one, _, fill, _ in entries]
        places = [
            (one.assignment.mirror_topic, one.assignment.partition, one.tail.leader.epoch)
            for one, _, _, _ in entries
            if one.tail
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
                raise MalformedAnswerError("WriteTxnMarkers", peer=self._link.channel.peer if self._link.channel else "")
            if correlation == current.markers:
                current.errors = decode_markers(body)
            else:
                self._round = None
                self._settle(current, decode_log_ends(body))
        self.pump(self._services.clock.monotonic())

    def _settle(self, done: _Round, ends: dict[tuple[str, int], tuple[int, int]]) -> None:
        now_ms = self._services.clock.now_ms()
        for one, attempt, fill, gap_end in done.entries:
            one.answered(fill)
            if one.attempt != attempt:
                continue
            place = (one.assignment.mirror_topic, one.assignment.partition)
            error = done.errors.get((one.assignment.producer_id, *place), 0)
            end_error, end = ends.get(place, (0, -1))
            if not error and not end_error and end == fill.start + fill.count:
                self._finished(one, one.filled(now_ms=now_ms))
            elif not end_error and end > gap_end:
                one.overtaken = Overtaken(fill.start, gap_end, end)
                self._events.interrupted(one, overtaken(one.assignment, gap_end))
            else:  # part of it was written, or more than we sent: the resume looks closely
                self._events.interrupted(
                    one, BrokerError(error or end_error, f"A gap of mirror {place[0]}-{place[1]} is not filled")
                )

    def _lost(self, error: LinkEngineError) -> None:
        self._round, self._frames = None, None
        self._on_lost(error)  # ends the attempts; each remembers markers without an answer


def _marker_fill(one: MirrorPartition, fill: FillInFlight) -> MarkerFill:
    return MarkerFill(
        topic=one.assignment.mirror_topic,
        partition=one.assignment.partition,
        producer_id=one.writer.producer_id,
        producer_epoch=fill.epoch,
        coordinator_epoch=coordinator_epoch_for(one.writer.generation),
        count=fill.count,
    )


def waited(one: MirrorPartition) -> LinkEngineError:
    """Answer why a partition is resumed whose new owner had to wait first."""
    where = f"{one.assignment.mirror_topic}-{one.assignment.partition}"
    return BrokerError(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"The former owner of mirror {where} may have written")


def _nothing() -> None:
    """Marker requests are small: nothing waits for the socket to take more."""

"""An extra connection to a source broker for Fetch requests without a fetch session, several of them in flight.

Responses arrive in the order of the requests. The fetch session of a source broker has a connection of its own
(``fetcher``). Extra connections exist for distant brokers only (``read_ahead``, ``staggered_polls``). Requests without a
session (KIP-227) take no slot of ``max.incremental.fetch.session.cache.slots`` at the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from linkengine.copyjob.broker_link import BrokerLink, LinkEvents, Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.pacing import DISTANT_S
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import Channel, LargeFrames
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import BrokerError, MalformedResponseError
from linkengine.kafka.requests import (
    FETCH_API_KEY,
    FETCH_BY_ID,
    FETCH_BY_NAME,
    NO_SESSION,
    FetchLimits,
    FetchPosition,
    FetchResponse,
    decode_fetch,
    encode_fetch,
)

SILENT_S = 10.0  # beyond the long poll: a connection on which nothing arrives for this long is closed
STARVED_S = 5.0  # a connection whose response finds no buffer for this long is closed; its records are fetched again later

T = TypeVar("T")


class _Outstanding(NamedTuple, Generic[T]):
    correlation: int
    version: int
    wait_s: float
    subject: T


class Received(NamedTuple):
    """A response, the buffer it lies in, and when the broker began to send it, by this machine's clock."""

    response: FetchResponse
    buffer: Buffer
    size: int
    responded_ms: int


class Owner(Protocol[T]):
    """The owner of extra connections. A subject is what a request was sent for."""

    def allocate(self, size: int, subject: T) -> Buffer | None:
        """Return a buffer for a response, counted as used once; None if there is none."""

    def received(self, connection: ExtraConnection[T], subject: T, received: Received, now: float) -> None:
        """Use a response. The buffer is released afterwards, unless it was counted as used once more."""

    def near(self) -> None:
        """Close all extra connections: the broker turned out to be near."""

    def lost(self, connection: ExtraConnection[T], in_flight: Sequence[T]) -> None:
        """Forget a connection that was lost or could not be opened."""


class ExtraConnection(Generic[T]):
    """One extra connection."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, owner: Owner[T]) -> None:
        self._services, self._owner = services, owner
        self._outstanding: deque[_Outstanding[T]] = deque()
        self._frames: LargeFrames | None = None
        self._filling: Buffer | None = None
        self._moved_at, self._received, self._began_at = 0.0, 0, 0.0
        self._starved_since: float | None = None
        events = LinkEvents(
            opened=self._on_open,
            readable=self._on_readable,
            writable=_nothing,
            lost=self._on_lost,
            idle=lambda: not self._outstanding,
        )
        self._link = BrokerLink(services, cluster, broker, events=events)
        self._link.ensure()

    @property
    def open(self) -> bool:
        """Whether requests can be sent. A connection whose session is about to end is replaced (KIP-368)."""
        return self._link.ensure() is not None

    @property
    def filling(self) -> bool:
        """Whether the response to the first outstanding request has a buffer."""
        return self._filling is not None

    @property
    def outstanding(self) -> int:
        """Number of requests without a response."""
        return len(self._outstanding)

    def request(
        self,
        positions: Mapping[bytes, Sequence[FetchPosition]],
        *,
        by_id: bool,
        limits: FetchLimits,
        subject: T,
        now: float,
    ) -> None:
        """Send a Fetch request."""
        channel = self._link.channel
        assert channel is not None
        if not self._outstanding:
            self._moved_at = now
        version = FETCH_BY_ID if by_id else FETCH_BY_NAME
        correlation = channel.next_correlation()
        self._outstanding.append(_Outstanding(correlation, version, limits.max_wait_ms / 1000, subject))
        try:
            channel.connection.version_for(FETCH_API_KEY, highest=version, lowest=version)
        except LinkEngineError as error:  # the broker was replaced by an older one
            self._link.lose(error)
            return
        channel.send(encode_fetch(positions, version=version, correlation_id=correlation, limits=limits, step=NO_SESSION))
        self._link.watch()

    def check(self, now: float) -> None:
        """Close the connection if it is silent or finds no buffer for a response; continue if a buffer has become free."""
        frames = self._frames
        if frames is None:
            return
        if frames.starved:
            self._moved_at = now
            if self._starved_since is not None and now > self._starved_since + STARVED_S:
                self._link.lose(
                    LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No memory was free for a response of a source broker. Retrying.")
                )
            else:
                self._link.read_now()
        elif frames.received != self._received:
            self._received, self._moved_at = frames.received, now
        elif self._outstanding and now > self._moved_at + self._outstanding[0].wait_s + SILENT_S:
            self._link.lose(
                LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A source broker does not respond. It may be frozen. Retrying.")
            )

    def close(self) -> None:
        """Close the socket; outstanding requests are dropped."""
        self._link.close()
        self._reset()
        self._outstanding.clear()

    def _on_open(self, channel: Channel) -> None:
        self._frames = LargeFrames(channel, allocate=self._allocate)
        if (channel.connection.round_trip_s or 0.0) < DISTANT_S / 2:
            self._owner.near()

    def _allocate(self, size: int) -> memoryview | None:
        if not self._outstanding:
            raise self._malformed()
        now = self._services.clock.monotonic()
        self._began_at = self._starved_since or now
        self._filling = self._owner.allocate(size, self._outstanding[0].subject)
        self._starved_since = self._began_at if self._filling is None else None
        return None if self._filling is None else self._filling.view(size)

    def _on_readable(self) -> None:
        while self._frames is not None and (frame := self._frames.read()) is not None:
            self._on_response(*frame)
        self._link.watch_unless(starved=self._frames is not None and self._frames.starved)

    def _on_response(self, correlation: int, body: memoryview) -> None:
        request = self._outstanding.popleft()
        buffer, self._filling = self._filling, None
        now = self._moved_at = self._services.clock.monotonic()
        assert buffer is not None
        try:
            if correlation != request.correlation:
                raise self._malformed()
            response = decode_fetch(body, version=request.version)
            if response.error:
                raise BrokerError(response.error, "A source broker refused a Fetch request")
            responded_ms = self._services.clock.now_ms() - int((now - self._began_at) * 1000)
            self._owner.received(self, request.subject, Received(response, buffer, len(body), responded_ms), now)
        finally:
            buffer.release()

    def _malformed(self) -> LinkEngineError:
        return MalformedResponseError("Fetch", peer=self._link.channel.peer if self._link.channel is not None else "")

    def _on_lost(self, error: LinkEngineError) -> None:
        outstanding, self._outstanding = self._outstanding, deque()
        self._owner.lost(self, [request.subject for request in outstanding])
        self._reset()

    def _reset(self) -> None:
        self._frames = self._starved_since = None
        if self._filling is not None:
            self._filling.release()
            self._filling = None


def _nothing() -> None:
    """Do nothing: Fetch requests are small and never wait for space in the socket."""

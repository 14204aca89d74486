"""A data connection to a broker: opened in the background, watched by the loop, opened again after a loss.

A broker limits how long a connection may be used after it was authenticated (KIP-368): to the token's life with
OAUTHBEARER, and to ``connections.max.reauth.ms`` with every mechanism. It closes a connection that is used longer. Kafka's
own clients authenticate again on the same connection. Here the connection is replaced: its successor is opened and
authenticated at 80 % of the session's life, then no request is sent until all responses have arrived, and then the
successor takes its place. So no request is lost, and mechanisms with a single step and with several are treated alike. If no
successor can be opened before the session ends, the connection is lost. A lost connection is opened again after a growing
pause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import structlog

from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.event_loop import GuardedPoller, LinkThreads
from linkengine.copyjob.pacing import Backoff, Bandwidth, Clock
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyTuning
from linkengine.kafka.channel import Channel
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection

_log = structlog.get_logger(__name__)


def stagger_of(name: str) -> float:
    """Return a number in [0, 1) that depends on ``name`` only, by which periodic work of many links is spread over time."""
    return crc32(name.encode()) / (1 << 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that every part of a link's copy uses."""

    background: LinkThreads
    poller: GuardedPoller
    clock: Clock
    tuning: CopyTuning
    pool: BufferPool
    ahead: AheadMemory  # shared by the whole worker
    bandwidth: Bandwidth
    stagger: float = 0.0  # share of an interval by which the first periodic checks of this link are earlier

    def first_due(self, now: float, *, every_s: float) -> float:
        """Return when to do periodic work for the first time: links that begin together do not check together."""
        return now + every_s * (1.0 - self.stagger)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvents:
    """The callbacks of a connection's owner."""

    opened: Callable[[Channel], None]
    readable: Callable[[], None]
    writable: Callable[[], None]
    lost: Callable[[LinkEngineError], None]  # also when it could not be opened
    idle: Callable[[], bool]  # whether no response is due and nothing waits to be sent


class BrokerLink:
    """A connection to a broker that is kept open."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: LinkEvents) -> None:
        self.channel: Channel | None = None
        self._successor: Connection | None = None
        self.broker = broker
        self._services = services
        self._cluster = cluster
        self._events = events
        self._connecting = False
        self._retry_at = 0.0
        self._backoff = Backoff()
        self._closed = False
        self._reading = True

    def ensure(self) -> Channel | None:
        """Return the channel if requests may be sent on it, else None; open it, or its successor, if it is time."""
        now = self._services.clock.monotonic()
        if self._successor is None and not self._connecting and now >= max(self._retry_at, self._needed_at()):
            self._connecting = True
            self._services.background.submit(
                lambda: self._cluster.open(self.broker),
                done=self._opened,
                failed=self._failed if self.channel is None else self._not_renewed,
            )
        return self.channel if self._successor is None and now < self._usable_until() else None

    def _needed_at(self) -> float:
        """Return when another connection has to be opened (monotonic seconds)."""
        return 0.0 if self.channel is None else self.channel.connection.renew_at

    def _usable_until(self) -> float:
        return 0.0 if self.channel is None else self.channel.connection.ends_at

    def watch(self, *, read: bool = True) -> None:
        """Register with the poller what the channel waits for now."""
        if self.channel is not None:
            self._reading = read
            self._services.poller.watch(self.channel, self._ready, read=read, write=self.channel.wants_write)

    def watch_unless(self, *, starved: bool) -> None:
        """Continue to read, or pause while there is no free buffer (``starved``).

        Raises ChannelClosedError if the connection was reset, which the poller does not report while reading is paused.
        """
        if starved and self.channel is not None:
            self.channel.check_open()
        self.watch(read=not starved)

    def read_now(self) -> None:
        """Read what has arrived, even if it is less than the poller wakes the loop for."""
        self._ready(readable=True, writable=False)

    def lose(self, error: LinkEngineError) -> None:
        """Close the connection after an error; the outcome of all requests in flight is unknown."""
        if self.channel is None:
            return
        _log.info("connection.lost", broker=self.channel.peer, reason=error.message)
        self._close_now()
        self._failed(error)

    def close(self) -> None:
        """Close the connection permanently."""
        self._closed = True
        self._close_now()

    def _close_now(self) -> None:
        if self._successor is not None:
            self._successor.close()
            self._successor = None
        if self.channel is not None:
            self._services.poller.forget(self.channel)
            self.channel.close()
            self.channel = None

    def _opened(self, connection: Connection) -> None:
        self._connecting = False
        if self._closed or self._successor is not None:
            connection.close()
            return
        self._backoff.reset()
        if self.channel is None:
            self._use(connection)
        else:
            self._successor = connection
            self._replace_if_idle()

    def _use(self, connection: Connection) -> None:
        self.channel = Channel(connection)
        self.watch()
        try:
            self._events.opened(self.channel)
        except LinkEngineError as error:
            self.lose(error)

    def _replace_if_idle(self) -> None:
        if self._successor is not None and self._events.idle():
            successor, self._successor = self._successor, None
            self._close_now()
            _log.debug("connection.renewed", broker=successor.peer)
            self._use(successor)

    def _not_renewed(self, error: LinkEngineError) -> None:
        """Retry after a pause when the successor could not be opened; the present connection stays in use."""
        now = self._services.clock.monotonic()
        if self.channel is None or now >= self._usable_until():
            self._close_now()
            self._failed(error)
            return
        self._connecting = False
        self._retry_at = now + self._backoff.next_pause()
        _log.warning("connection.not_renewed", broker=self.broker, code=error.code, reason=error.message)

    def _failed(self, error: LinkEngineError) -> None:
        self._connecting = False
        self._retry_at = self._services.clock.monotonic() + self._backoff.next_pause()
        if not self._closed:
            self._events.lost(error)

    def _ready(self, readable: bool, writable: bool) -> None:  # noqa: FBT001 - the poller calls it so
        try:
            if writable and self.channel is not None:
                self.channel.flush()
                self._events.writable()
                self.watch(read=self._reading)
            if readable and self.channel is not None:
                self._events.readable()
            self._replace_if_idle()
        except LinkEngineError as error:
            self.lose(error)

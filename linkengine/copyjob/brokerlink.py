"""One data connection to one broker: opened in the background, watched by the loop, opened again after a pause when lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from linkengine.copyjob.background import Room
from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.poller import GuardedPoller
from linkengine.copyjob.ports import Clock
from linkengine.copyjob.retry import Backoff
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyTuning
from linkengine.kafka.channel import Channel
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What every part of a link's copy uses."""

    background: Room
    poller: GuardedPoller
    clock: Clock
    tuning: CopyTuning
    pool: BufferPool
    ahead: AheadMemory  # of the whole worker
    bandwidth: Bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvents:
    """What the owner of a link wants to hear."""

    opened: Callable[[Channel], None]
    readable: Callable[[], None]
    writable: Callable[[], None]
    lost: Callable[[LinkEngineError], None]  # also when it could not be opened


class BrokerLink:
    """Keeps one connection open."""

    def __init__(self, services: Services, cluster: Cluster, broker: int, *, events: LinkEvents) -> None:
        self.channel: Channel | None = None
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
        """Answer the open channel; else begin to open it, if it is time, and answer None."""
        if self.channel is None and not self._connecting and self._services.clock.monotonic() >= self._retry_at:
            self._connecting = True
            self._services.background.submit(
                lambda: self._cluster.open(self.broker),
                done=self._opened,
                failed=self._failed,
            )
        return self.channel

    def watch(self, *, read: bool = True) -> None:
        """Tell the poller what this channel waits for now."""
        if self.channel is not None:
            self._reading = read
            self._services.poller.watch(self.channel, self._ready, read=read, write=self.channel.wants_write)

    def look(self) -> None:
        """Read what is there, even if it was not worth being woken for."""
        self._ready(readable=True, writable=False)

    def lose(self, error: LinkEngineError) -> None:
        """Close the connection after an error; everything asked on it has an unknown outcome."""
        if self.channel is None:
            return
        _log.info("connection.lost", broker=self.channel.peer, reason=error.message)
        self._services.poller.forget(self.channel)
        self.channel.close()
        self.channel = None
        self._failed(error)

    def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self.channel is not None:
            self._services.poller.forget(self.channel)
            self.channel.close()
            self.channel = None

    def _opened(self, connection: Connection) -> None:
        self._connecting = False
        if self._closed:
            connection.close()
            return
        self._backoff.reset()
        self.channel = Channel(connection)
        self.watch()
        self._events.opened(self.channel)

    def _failed(self, error: LinkEngineError) -> None:
        self._connecting = False
        self._retry_at = self._services.clock.monotonic() + self._backoff.next_pause()
        if not self._closed:
            self._events.lost(error)

    def _ready(self, readable: bool, writable: bool) -> None:  # noqa: FBT001 - the poller's order
        try:
            if writable and self.channel is not None:
                self.channel.flush()
                self._events.writable()
                self.watch(read=self._reading)
            if readable and self.channel is not None:
                self._events.readable()
        except LinkEngineError as error:
            self.lose(error)

"""Kombu's Redis transport, less one way to die and one to lose tasks silently.

When Redis goes away, Celery closes its broken connection and later acknowledges tasks that came over it. Kombu (5.7) then
asks a closed connection for its host name and fails with an AttributeError, which nobody expects: the worker ends. Told as the
connection error that it is, both are logged and the worker connects again.

A message expires at a time of its sender's clock, and Celery compares it with the worker's: a round of the reconciler lives for
two seconds, so a worker whose clock was that much ahead of the beat's threw all of them away. In the queue the time is told by
Redis' clock, and each side translates between that and its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import Transport as RedisTransport
from kombu.transport.virtual import Message as VirtualMessage


class Message(VirtualMessage):
    """A message whose expiry was translated into this machine's time; what is put back into the queue keeps Redis' time."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        super().__init__(payload, channel=channel, **kwargs)
        if _expiry(self.headers) is not None:
            self.headers = _expiring_later(self.headers, by=-channel.clock_ahead())


class Channel(RedisChannel):
    """A channel that knows that its connection may be gone, and that clocks differ."""

    Message = Message

    def clock_ahead(self) -> timedelta:
        """Answer how much Redis' clock is ahead of this machine's; raise redis.RedisError. One request."""
        with self.conn_or_acquire() as client:
            seconds, micros = client.time()
        return datetime.fromtimestamp(seconds, tz=UTC) + timedelta(microseconds=micros) - datetime.now(tz=UTC)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        if _expiry(message.get("headers")) is not None:
            message = message | {"headers": _expiring_later(message["headers"], by=self.clock_ahead())}
        super()._put(queue, message, **kwargs)

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        if self.connection is None or self.connection.client is None:
            raise redis.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)  # type: ignore[misc]  # its type hints leave it out


class Transport(RedisTransport):
    """The transport behind redis:// and rediss:// in the console's processes."""

    Channel = Channel


def _expiry(headers: Mapping[str, Any] | None) -> str | None:
    return (headers or {}).get("expires")


def _expiring_later(headers: Mapping[str, Any], *, by: timedelta) -> dict[str, Any]:
    return {**headers, "expires": (datetime.fromisoformat(headers["expires"]) + by).isoformat()}

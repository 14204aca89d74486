"""Kombu's Redis transport, less one way to die.

When Redis goes away, Celery closes its broken connection and later acknowledges tasks that came over it. Kombu (5.7) then
asks a closed connection for its host name and fails with an AttributeError, which nobody expects: the worker ends. Told as the
connection error that it is, both are logged and the worker connects again.
"""

from __future__ import annotations

from typing import Any

import redis
from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import Transport as RedisTransport


class Channel(RedisChannel):
    """A channel that knows that its connection may be gone."""

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        if self.connection is None or self.connection.client is None:
            raise redis.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)  # type: ignore[misc]  # its type hints leave it out


class Transport(RedisTransport):
    """The transport behind redis:// and rediss:// in the console's processes."""

    Channel = Channel

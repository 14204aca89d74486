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
from ssl import CERT_REQUIRED
from typing import Any
from urllib.parse import quote, urlsplit

import redis
from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import SentinelChannel as KombuSentinelChannel
from kombu.transport.redis import SentinelTransport as KombuSentinelTransport
from kombu.transport.redis import Transport as RedisTransport
from kombu.transport.virtual import Message as VirtualMessage

from linkengine.redisaddress import SENTINEL_SCHEMES, parse_sentinel, sentinel_options

SENTINEL_TIMEOUT_S = 1.0  # then the next sentinel is asked


class Message(VirtualMessage):
    """A message whose expiry was translated into this machine's time; what is put back into the queue keeps Redis' time."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        super().__init__(payload, channel=channel, **kwargs)
        if _expiry(self.headers) is not None:
            self.headers = _expiring_later(self.headers, by=-channel.clock_ahead())


class _Steady(RedisChannel):
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


class Channel(_Steady):
    """The channel to one Redis server."""


class SentinelChannel(_Steady, KombuSentinelChannel):
    """The channel to the primary that Redis Sentinel names."""


class Transport(RedisTransport):
    """The transport behind redis:// and rediss:// in the console's processes."""

    Channel = Channel


class SentinelTransport(KombuSentinelTransport):
    """The transport behind sentinel://, into which ``broker_settings`` translates ``CLUSTERLINK_REDIS_URL``."""

    Channel = SentinelChannel


def broker_settings(url: str) -> tuple[str, dict[str, Any] | bool, dict[str, Any]]:
    """Return Celery's ``broker_url``, ``broker_use_ssl`` and additional ``broker_transport_options`` for a Redis address."""
    scheme = urlsplit(url).scheme
    # Where the address says nothing of certificates (``?ssl_…``) kombu takes any; what it says is taken instead of this.
    checked = {"ssl_cert_reqs": CERT_REQUIRED, "ssl_check_hostname": True}
    if scheme not in SENTINEL_SCHEMES:
        return url, checked if scheme == "rediss" else False, {}
    address = parse_sentinel(url)
    names = [quote(name or "", safe="") for name in (address.username, address.password)]
    user_info = f"{':'.join(names)}@" if any(names) else ""
    hosts = [(f"[{host}]" if ":" in host else host, port) for host, port in address.sentinels]
    alternatives = [f"sentinel://{user_info}{host}:{port}/{address.database}" for host, port in hosts]
    tls = {**checked, **{name: value for name, value in address.options.items() if name.startswith("ssl_")}}
    timeouts = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    kwargs = sentinel_options(address, {**timeouts, **(tls if address.tls else {})})
    options = {"master_name": address.service, "sentinel_kwargs": kwargs}
    return ";".join(alternatives), tls if address.tls else False, options


def _expiry(headers: Mapping[str, Any] | None) -> str | None:
    return (headers or {}).get("expires")


def _expiring_later(headers: Mapping[str, Any], *, by: timedelta) -> dict[str, Any]:
    return {**headers, "expires": (datetime.fromisoformat(headers["expires"]) + by).isoformat()}

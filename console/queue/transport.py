"""Kombu's Redis transport with signed messages, a fix for closed connections, and expiry by Redis's clock.

**Signatures.** Write access to Redis must not be enough to make a worker run a task. So each message has an HMAC
(``console.config.signing_keys``) over all of it: content type, body (the arguments), headers (task name, id, expiry),
properties, the destination queue and the time of sending. A Celery serializer would cover the body only. An invalid message is
dropped before it is decoded: it has been removed from its list and is not in ``unacked`` yet, so it is neither executed nor
redelivered. It is logged and counted (``clusterlink_refused_messages_total``).

| the message | is refused because |
|---|---|
| was not signed, was altered | no key verifies its signature |
| was copied into another queue | the destination is signed |
| is older than its ``expires`` | Celery discards it; the header is signed, at most ``LONGEST_S`` after the sending |
| has no ``expires`` (Celery's remote control) and is old | the time of sending is signed, at most ``LONGEST_S`` ago |

Kombu marks redelivered messages as ``redelivered``; these two flags are the only content outside the signature. A copy of a
message in its own queue before its expiry is executed again: tasks are idempotent, and a change of a cluster has an audit row
that can be written only once (``console.tasks.clusters``).

**Closed connections.** When Redis disconnects, Celery closes its broken connection and later acknowledges tasks that arrived
on it. Kombu (5.7) then reads the host name of a closed connection and fails with an AttributeError, which Celery does not
handle: the worker exits. Raised as a connection error instead, it is logged and the worker reconnects.

**Expiry.** A message expires at a time of its sender's clock, which Celery compares with the worker's clock. The ``reconcile``
task expires after two seconds, so a worker whose clock was ahead of beat's by that much discarded all of them. In the queue
the expiry is a time of Redis's clock, and each side converts between that and its own clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ssl import CERT_REQUIRED
from typing import Any, cast
from urllib.parse import quote, urlsplit

import redis
import structlog
from kombu.transport.redis import Channel as RedisChannel
from kombu.transport.redis import QoS as RedisQoS
from kombu.transport.redis import SentinelChannel as KombuSentinelChannel
from kombu.transport.redis import SentinelTransport as KombuSentinelTransport
from kombu.transport.redis import Transport as RedisTransport
from kombu.transport.virtual import Message as VirtualMessage
from kombu.utils.json import dumps

from console.config import signing_keys
from console.redis import redis_client
from linkengine.domain.signatures import REFUSED_COUNTS
from linkengine.redisaddress import SENTINEL_SCHEMES, parse_sentinel, sentinel_options

SENTINEL_TIMEOUT_S = 1.0  # then the next sentinel is tried
SIGNATURE = "signature"  # the header
LONGEST_S = 2 * 3600  # longer than the visibility timeout and the longest expiry, after which nothing is redelivered
_PURPOSE = "message"
_REDELIVERED = "redelivered"
# exceptions of JSON and of code that expects a message, for any other content
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
_log = structlog.get_logger(__name__)


class RefusedError(Exception):
    """A message that no process with the credentials key sent to this queue, or that is too old."""


def sign(message: Mapping[str, Any], *, to: str, at: datetime) -> dict[str, Any]:
    """Return the message with a signature for the destination; ``at`` is a time of Redis's clock."""
    signature = {"to": to, "at": at.timestamp()}
    text = _signed_text(message)
    mac = signing_keys.queue_signer().sign(_PURPOSE, to, repr(signature["at"]), text)
    return {**message, "headers": {**(message.get("headers") or {}), SIGNATURE: {**signature, "mac": mac}}}


def check_signature(message: Any, *, destinations: set[str]) -> None:
    """Raise RefusedError unless the message is signed for a given destination and expires in time."""
    try:
        signature = message["headers"][SIGNATURE]
        to, at, mac = signature["to"], float(signature["at"]), signature["mac"]
        valid = signing_keys.queue_signer().verifies(mac, _PURPOSE, str(to), repr(at), _signed_text(message))
        expiry = _expiry(message["headers"])
    except _UNREADABLE:
        raise RefusedError("is not signed") from None
    if not valid:
        raise RefusedError("has a signature that is not valid")
    if to not in destinations:
        raise RefusedError(f"was sent to {to}")
    if expiry is not None and (datetime.fromisoformat(expiry) - datetime.fromtimestamp(at, tz=UTC)).total_seconds() > LONGEST_S:
        raise RefusedError("expires too late")


class Message(VirtualMessage):
    """A message with its expiry converted to this machine's clock. A message that is returned to the queue keeps Redis's."""

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        super().__init__(payload, channel=channel, **kwargs)
        if _expiry(self.headers) is not None:
            self.headers = _expiring_later(self.headers, by=-channel.clock_ahead())


class QoS(RedisQoS):
    """The unacknowledged messages. A malformed entry is dropped, so that it does not prevent the redelivery of others."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Return a message to its queue."""
        try:
            super().restore_by_tag(tag, client=client, leftmost=leftmost)
        except _UNREADABLE as error:
            _refuse("unacked", f"cannot be read ({type(error).__name__})")
            self._remove_from_indices(tag).execute()  # type: ignore[attr-defined]  # as above


class _SignedChannel(RedisChannel):
    """A channel that signs and verifies messages, handles closed connections, and allows for clock skew."""

    Message = Message
    QoS = QoS

    def clock_ahead(self) -> timedelta:
        """Return how much Redis's clock is ahead of this machine's. One request; raises redis.RedisError."""
        return self.redis_time() - datetime.now(tz=UTC)

    def redis_time(self) -> datetime:
        """Return the time of Redis's clock. One request; raises redis.RedisError."""
        with self.conn_or_acquire() as client:
            seconds, micros = client.time()
        return datetime.fromtimestamp(seconds, tz=UTC) + timedelta(microseconds=micros)

    def accepts(self, message: Any, queue: str, *, destinations: set[str]) -> bool:
        """Return whether a message may be delivered. Logs and counts a refused message."""
        try:
            check_signature(message, destinations=destinations)
            self._check_age(message["headers"])
        except RefusedError as error:
            _refuse(queue, str(error), message)
            return False
        return True

    def _check_age(self, headers: Mapping[str, Any]) -> None:
        """Raise RefusedError for an old message without an expiry of its own."""
        if _expiry(headers) is None and self.redis_time().timestamp() - headers[SIGNATURE]["at"] > LONGEST_S:
            raise RefusedError("is too old")

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        super()._put(queue, self._signed(message, to=f"queue:{queue}"), **kwargs)

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        signed = self._signed(message, to=f"fanout:{exchange}")
        super()._put_fanout(exchange, signed, routing_key, **kwargs)  # type: ignore[misc]  # its type hints leave it out

    def _signed(self, message: dict[str, Any], *, to: str) -> dict[str, Any]:
        at = self.redis_time()
        if _expiry(message.get("headers")) is not None:
            message = message | {"headers": _expiring_later(message["headers"], by=at - datetime.now(tz=UTC))}
        return sign(message, to=to, at=at)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        while True:
            try:
                message = super()._get(queue)  # raises Empty in the end
            except _UNREADABLE as error:
                _refuse(queue, f"cannot be read ({type(error).__name__})")
                continue
            if self.accepts(message, queue, destinations={f"queue:{queue}"}):
                return message

    def _brpop_read(self, **options: Any) -> Any:
        """Read a message. Content that is not JSON is dropped; errors of the code that handles the message are raised."""
        transport: Any = self.connection
        transport.delivering = False
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # its type hints leave it out
        except _UNREADABLE as error:
            if transport.delivering:
                raise
            _refuse("", f"cannot be read ({type(error).__name__})")
            return True

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        if self.connection is None or self.connection.client is None:
            raise redis.ConnectionError("the connection to Redis was closed")
        return super()._connparams(asynchronous)  # type: ignore[misc]  # its type hints leave it out


class Channel(_SignedChannel):
    """The channel to a single Redis server."""


class SentinelChannel(_SignedChannel, KombuSentinelChannel):
    """The channel to the primary that Redis Sentinel reports."""


class _VerifyingTransport(RedisTransport):
    """A transport that delivers only what its channel accepts."""

    channels: list[Any]
    delivering = False  # a message was readable and is being delivered

    def _deliver(self, message: Any, queue: str | None) -> None:
        self.delivering = True
        channel = next(channel for channel in self.channels if channel is not None)
        name = queue or ""
        if channel.accepts(message, name, destinations=self._destinations(name)):
            super()._deliver(message, queue)

    def _destinations(self, queue: str) -> set[str]:
        """Return the signed destinations whose messages arrive through a queue: the queue and its broadcasts."""
        broadcast = {
            f"fanout:{exchange}"
            for channel in self.channels
            for exchange, its_queue in channel._fanout_to_queue.items()  # noqa: SLF001 - our own channel
            if its_queue == queue
        }
        return {f"queue:{queue}", *broadcast}


class Transport(_VerifyingTransport):
    """The transport behind redis:// and rediss:// in the console's processes."""

    Channel = Channel


def _refuse(queue: str, why: str, message: Any = None) -> None:
    headers = message.get("headers") if isinstance(message, Mapping) else None
    task = headers.get("task") if isinstance(headers, Mapping) else None
    _log.error("queue.message_refused", queue=queue, task=str(task)[:100], why=why)
    count_refused("task")


def count_refused(kind: str) -> None:
    """Count a message with an invalid signature, for Prometheus. Does nothing while Redis is not available."""
    with suppress(redis.RedisError):
        redis_client().hincrby(REFUSED_COUNTS, kind, 1)


def refused_counts() -> dict[str, int]:
    """Return the number of refused messages by kind. Raises redis.RedisError if Redis is not available."""
    found = cast("dict[str, str]", redis_client().hgetall(REFUSED_COUNTS))
    return {kind: int(count) for kind, count in found.items() if count.isdecimal()}


def _signed_text(message: Mapping[str, Any]) -> str:
    """Serialize a message without the signature and kombu's two flags, in a canonical form."""
    headers = {name: value for name, value in (message.get("headers") or {}).items() if name not in (SIGNATURE, _REDELIVERED)}
    properties = dict(message["properties"])
    info = {name: value for name, value in properties["delivery_info"].items() if name != _REDELIVERED}
    return str(dumps({**message, "headers": headers, "properties": {**properties, "delivery_info": info}}, sort_keys=True))


class SentinelTransport(_VerifyingTransport, KombuSentinelTransport):
    """The transport behind sentinel://, into which ``broker_settings`` translates ``CLUSTERLINK_REDIS_URL``."""

    Channel = SentinelChannel


def broker_settings(url: str) -> tuple[str, dict[str, Any] | bool, dict[str, Any]]:
    """Return Celery's ``broker_url``, ``broker_use_ssl`` and additional ``broker_transport_options`` for a Redis address."""
    scheme = urlsplit(url).scheme
    # Without certificate options in the address (``?ssl_…``) kombu accepts any certificate; such options replace these.
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
    """Return when a task expires; None if it does not, and for remote control, which has a number there."""
    expiry = (headers or {}).get("expires")
    return expiry if isinstance(expiry, str) else None


def _expiring_later(headers: Mapping[str, Any], *, by: timedelta) -> dict[str, Any]:
    return {**headers, "expires": (datetime.fromisoformat(headers["expires"]) + by).isoformat()}

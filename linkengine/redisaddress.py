"""Addresses of Redis: one server, or a primary found through Redis Sentinel.

``redis://``, ``rediss://`` and ``unix://`` are redis-py's own. Sentinel::

    redis+sentinel://user:password@sentinel1:26379,sentinel2:26379,sentinel3:26379/service/database?options

``rediss+sentinel`` uses TLS to the sentinels and to the servers; ``sentinel`` is another spelling of ``redis+sentinel``. User
and password are those of the servers. ``sentinel_username`` and ``sentinel_password`` are options for the sentinels, which have
their own credentials or none. All other options are redis-py's, for example ``ssl_ca_certs``.

A client gets the primary from the sentinels whenever it opens a connection, so it follows a failover automatically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS
from redis.retry import Retry
from redis.sentinel import Sentinel

SENTINEL_SCHEMES = {"sentinel": False, "redis+sentinel": False, "rediss+sentinel": True}  # whether with TLS
SENTINEL_PORT = 26379
_EXAMPLE = "redis+sentinel://:password@host1:26379,host2:26379/service/0"


class BadRedisAddressError(ValueError):
    """The address cannot be parsed; the message says which part, and contains no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """A parsed Sentinel address."""

    sentinels: Sequence[tuple[str, int]]
    service: str
    database: int
    tls: bool
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client; no connection is opened. ``options`` are redis-py's, and those of the address win."""
    if urlsplit(url).scheme not in SENTINEL_SCHEMES:
        return redis.Redis.from_url(url, **options)
    address = parse_sentinel(url)
    found = {**options, **address.options}
    servers = found | {"username": address.username, "password": address.password, "db": address.database}
    make: Any = Sentinel  # without type hints
    manager = make(list(address.sentinels), sentinel_kwargs=sentinel_options(address, found), **tls_options(address))
    client: redis.Redis = manager.master_for(address.service, redis_class=redis.Redis, **servers)
    return client


def tls_options(address: SentinelAddress) -> dict[str, Any]:
    """Return redis-py's option for TLS."""
    return {"ssl": True} if address.tls else {}


def sentinel_options(address: SentinelAddress, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of connections to the sentinels: timeouts and TLS as for the servers, but separate credentials.

    Without retries: the next sentinel is tried instead, and redis-py's default retries would take 7 s if none responds.
    """
    kept = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))}
    return {**kept, **address.sentinel_credentials, **tls_options(address), "retry": Retry(NoBackoff(), 0)}


def parse_sentinel(url: str) -> SentinelAddress:
    """Parse a Sentinel address; raise BadRedisAddressError."""
    parts = urlsplit(url)
    user_info, _, hosts = parts.netloc.rpartition("@")
    username, has_password, password = user_info.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise BadRedisAddressError(f"The Sentinel address has no service name. Use the form {_EXAMPLE}.")
    if database and not database.isdigit():
        raise BadRedisAddressError(
            f"The database of the Sentinel address is {database!r}, not a number. Use the form {_EXAMPLE}."
        )
    options = dict(parse_qsl(parts.query))
    credentials = {name: options.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in options}
    return SentinelAddress(
        sentinels=[_host_and_port(host) for host in hosts.split(",")],
        service=unquote(service),
        database=int(database or 0),
        tls=SENTINEL_SCHEMES[parts.scheme],
        username=unquote(username) or None,
        password=unquote(password) if has_password else None,
        sentinel_credentials=credentials,
        options={name: _typed(name, value) for name, value in options.items()},
    )


def with_password(url: str, password: str) -> str:
    """Return the address with the password, unless it has one."""
    parts = urlsplit(url)
    user_info, _, hosts = parts.netloc.rpartition("@")
    username, has_password, _ = user_info.partition(":")
    if has_password or not password or not hosts:
        return url
    return urlunsplit(parts._replace(netloc=f"{username}:{quote(password, safe='')}@{hosts}"))


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text.strip()}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise BadRedisAddressError(f"{text!r} in the Sentinel address is not a host and port. Use the form {_EXAMPLE}.")
    return host, port or SENTINEL_PORT


def _typed(name: str, value: str) -> Any:
    parser: Any = URL_QUERY_ARGUMENT_PARSERS.get(name)
    try:
        return value if parser is None else parser(value)
    except (TypeError, ValueError):
        raise BadRedisAddressError(f"The option {name} of the Sentinel address has an invalid value.") from None

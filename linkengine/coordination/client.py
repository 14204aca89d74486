"""Redis connections with short timeouts, and a common exception for all kinds of outages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.redisaddress import connect

SOCKET_TIMEOUT_S = 0.5  # local round trips take 0.1 ms; with the retry the slowest call blocks for 2 s, half a lease
RETRIES = 1  # a pooled connection that broke when the server restarted fails once; the retry connects again
# Redis responds, but refuses: disk or memory full, a replica, a primary without replicas, a cluster during an election, a
# script that does not end. For some of these errors redis-py has classes, which drop the error word from the text unless it is
# a script's error.
_REFUSALS = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
_REFUSING = re.compile(r"\b(MISCONF|OOM|READONLY|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING|BUSY)\b")

# Beginning of a script that needs Redis' own clock: ``now`` in Unix milliseconds, and ``stamp``, the same as stored text.
NOW_MS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
"""


def client_for(url: str) -> redis.Redis:
    """Return this process's thread-safe client of ``url``; a forked child gets a new client."""
    return _client_for(url, os.getpid())


@lru_cache(maxsize=16)
def _client_for(url: str, _pid: int) -> redis.Redis:
    return connect(
        url,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=SOCKET_TIMEOUT_S,
        socket_keepalive=True,
        decode_responses=True,
        retry=Retry(NoBackoff(), RETRIES),
    )


def clock_ms(url: str) -> int:
    """Return Redis' clock in Unix milliseconds, the common clock of all machines that take part in a copy."""
    with redis_answers("return the time"):
        seconds, micros = client_for(url).time()
    return int(seconds) * 1000 + int(micros) // 1000


@contextmanager
def redis_answers(what: str) -> Iterator[None]:
    """Convert every outage (down, timeout, loading, election, full) to CoordinationUnavailableError. Other errors are bugs."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise CoordinationUnavailableError(f"Redis did not {what}: {type(error).__name__}.") from error
    except redis.ResponseError as error:
        if not isinstance(error, _REFUSALS) and not _REFUSING.search(str(error)):
            raise
        raise CoordinationUnavailableError(f"Redis did not {what}: {error}") from error

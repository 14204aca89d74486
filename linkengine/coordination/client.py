"""Redis connections with short deadlines, and one exception for every way in which Redis can be away."""

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

SOCKET_TIMEOUT_S = 0.5  # local round trips take 0.1 ms; with the one retry the worst call blocks for 2 s, half a lease
RETRIES = 1  # a pooled connection that died with a restarted server fails once, the retry connects anew
# It is there and refuses: a full disk or memory, a replica, a primary without replicas, a cluster that is electing, a script
# that goes on and on. Some of it has classes, whose text lacks the word, unless a script tells it.
_REFUSALS = (
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
_REFUSING = re.compile(r"\b(MISCONF|OOM|READONLY|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|LOADING|BUSY)\b")

# The beginning of a script that needs Redis' own clock: ``now`` in Unix milliseconds, and ``stamp``, the same as it is stored.
NOW_MS = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
"""


def client_for(url: str) -> redis.Redis:
    """Answer this process's thread-safe client of ``url``; a forked child gets its own."""
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
    """Answer Redis' own clock in Unix milliseconds: the one clock that all machines of a copy can compare with."""
    with redis_answers("tell the time"):
        seconds, micros = client_for(url).time()
    return int(seconds) * 1000 + int(micros) // 1000


@contextmanager
def redis_answers(what: str) -> Iterator[None]:
    """Turn every outage into CoordinationUnavailableError: gone, silent, starting up, electing, full. Other errors are bugs."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise CoordinationUnavailableError(f"Redis did not {what}: {type(error).__name__}.") from error
    except redis.ResponseError as error:
        if not isinstance(error, _REFUSALS) and not _REFUSING.search(str(error)):
            raise
        raise CoordinationUnavailableError(f"Redis did not {what}: {error}") from error

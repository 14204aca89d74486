"""Redis connections, a common exception for outages, and the bandwidth limit that copy workers share."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from linkengine.domain.workers import CoordinationUnavailableError
from linkengine.redisaddress import connect

# --- connections ---------------------------------------------------------------------------------------------------------
# Timeouts are short. All kinds of outages raise the same exception.


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

# Beginning of a script that needs Redis's own clock: ``now`` in Unix milliseconds, and ``stamp``, the same as stored text.
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


@contextmanager
def translate_redis_errors(what: str) -> Iterator[None]:
    """Convert every outage (down, timeout, loading, election, full) to CoordinationUnavailableError. Other errors are bugs."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise CoordinationUnavailableError(f"Redis did not {what}: {type(error).__name__}.") from error
    except redis.ResponseError as error:
        if not isinstance(error, _REFUSALS) and not _REFUSING.search(str(error)):
            raise
        raise CoordinationUnavailableError(f"Redis did not {what}: {error}") from error


# --- bandwidth limit of a link -------------------------------------------------------------------------------------------
# After each fetch a worker gets the time to pause. One key per link and limit holds the time (microseconds of Redis's clock) up
# to which the limit is used up. Each fetch moves it forward by the cost of its bytes, and the worker pauses until then.
# Concurrent workers queue up behind each other, so their sum keeps to the limit whatever their shares. If Redis loses the key,
# the time starts from now. A new limit has a new key and also starts from now; bytes fetched under the previous limit do not
# count.


# A longer debt is the effect of a clock that was set back. Copying would pause for as long, and the source's retention might
# delete records before they are copied.
LONGEST_S = 600

_SPEND = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
if used < now or used > now + tonumber(ARGV[2]) then used = now end
used = used + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.0f', used), 'PX', math.ceil((used - now) / 1000) + 1000)
return string.format('%.0f', used - now)
"""


class RedisAllowances:
    """The remaining bandwidth of links."""

    def __init__(self, url: str) -> None:
        """Prepare the connection; nothing is counted yet."""
        self._redis = client_for(url)

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count bytes and return the pause in seconds; raise CoordinationUnavailableError in an outage.

        The limit is above 0.
        """
        cost_us = size * 1_000_000 // bytes_per_s
        with translate_redis_errors("count bandwidth"):
            reply: Any = self._redis.eval(_SPEND, 1, f"allowance:{link_id}:{bytes_per_s}", cost_us, LONGEST_S * 1_000_000)
        return int(reply) / 1e6

"""Rate limits, counted in Redis for all web processes together: a burst at once, then a steady rate.

If Redis is not available, nothing is counted and nothing is limited: a failover must not wait for a counter. Redis is then not
tried again for some seconds, so that an outage does not slow every request down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, cast

import redis
import structlog

from console.redis import locks, redis_client

_KEY = "console:rate-limit:"
NO_COUNT_S = 5.0  # after an error of Redis
Result = TypeVar("Result")
_log = structlog.get_logger(__name__)
# GCRA: the key holds the time (microseconds) at which the bucket is empty again. Returns 0, or how long to wait.
_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local empty_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
local wait = empty_at + ARGV[1] - now - ARGV[1] * ARGV[2]
if wait > 0 then return math.ceil(wait) end
local after = empty_at + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1)
return 0
"""


class RedisOutage:
    """An outage of Redis that this process has observed: until ``until_s`` (monotonic seconds) it sends no request."""

    until_s = 0.0


def take(name: str, *, per_s: float, burst: int) -> float:
    """Count an event under a limit of ``burst`` at once and ``per_s`` on average; not limited while Redis is unavailable.

    Returns 0 if counted, else the seconds to wait.
    """
    return _counted(lambda: take_token(name, per_s=per_s, burst=burst), otherwise=0.0)


def reset(name: str) -> None:
    """Reset a rate limit."""
    _counted(lambda: redis_client().delete(_KEY + name), otherwise=None)


def is_first(name: str, *, ttl_ms: int) -> bool:
    """Return True at most once per ``ttl_ms``; False while Redis is unavailable."""
    return _counted(lambda: locks.claim(name, ttl_ms=ttl_ms), otherwise=False)


def take_token(name: str, *, per_s: float, burst: int) -> float:
    """Count an event under a limit of ``burst`` at once and ``per_s`` on average.

    Returns 0 if counted, else the seconds to wait. Raises redis.RedisError if Redis is not available.
    """
    wait_us = cast("int", redis_client().eval(_TAKE, 1, _KEY + name, str(1_000_000 / per_s), str(burst)))
    return wait_us / 1_000_000


def _counted(query: Callable[[], Result], *, otherwise: Result) -> Result:
    if time.monotonic() < RedisOutage.until_s:
        return otherwise
    try:
        return query()
    except redis.RedisError as error:
        RedisOutage.until_s = time.monotonic() + NO_COUNT_S
        _log.warning("rate_limit.uncounted", error=str(error))
        return otherwise

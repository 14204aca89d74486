"""Rate limits, counted in Redis for all web processes together: a burst at once, then a steady rate.

If Redis is not available, nothing is counted and nothing is limited: a failover must not wait for a counter. Redis is then not
tried again for some seconds, so that an outage does not slow every request down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog

from console.redis import store

NO_COUNT_S = 5.0  # after an error of Redis
Result = TypeVar("Result")
_log = structlog.get_logger(__name__)


class Outage:
    """The outage of Redis, as far as this process knows."""

    until_s = 0.0  # monotonic


def take(name: str, *, per_s: float, burst: int) -> float:
    """Count an event under a limit of ``burst`` at once and ``per_s`` on average.

    Returns 0 if counted, else the seconds to wait.
    """
    return _counted(lambda: store.take_turn(name, per_s=per_s, burst=burst), otherwise=0.0)


def forget(name: str) -> None:
    """Reset a rate limit."""
    _counted(lambda: store.forget_turns(name), otherwise=None)


def is_first(name: str, *, ttl_ms: int) -> bool:
    """Return True at most once per ``ttl_ms``."""
    return _counted(lambda: store.claim(name, ttl_ms=ttl_ms), otherwise=False)


def _counted(query: Callable[[], Result], *, otherwise: Result) -> Result:
    if time.monotonic() < Outage.until_s:
        return otherwise
    try:
        return query()
    except redis.RedisError as error:
        Outage.until_s = time.monotonic() + NO_COUNT_S
        _log.warning("turns.uncounted", error=str(error))
        return otherwise

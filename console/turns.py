"""Turns counted in Redis for all web processes together: some at once, then one after the other.

Where Redis does not answer nobody is counted and nobody waits: a failover must not wait for a counter. It is not asked again
for some seconds then, so that an outage does not slow every request down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog

from console import store

NO_COUNT_S = 5.0  # after Redis failed us
Answer = TypeVar("Answer")
_log = structlog.get_logger(__name__)


class Outage:
    """What this process knows of one."""

    until_s = 0.0  # monotonic


def take(name: str, *, per_s: float, burst: int) -> float:
    """Count one of at most ``burst`` at once and ``per_s`` in the long run; answer 0, or the seconds to wait uncounted."""
    return _counted(lambda: store.take_turn(name, per_s=per_s, burst=burst), otherwise=0.0)


def forget(name: str) -> None:
    """Count from the beginning again."""
    _counted(lambda: store.forget_turns(name), otherwise=None)


def is_first(name: str, *, ttl_ms: int) -> bool:
    """Tell whether nobody has asked this for so long."""
    return _counted(lambda: store.claim(name, ttl_ms=ttl_ms), otherwise=False)


def _counted(ask: Callable[[], Answer], *, otherwise: Answer) -> Answer:
    if time.monotonic() < Outage.until_s:
        return otherwise
    try:
        return ask()
    except redis.RedisError as error:
        Outage.until_s = time.monotonic() + NO_COUNT_S
        _log.warning("turns.uncounted", error=str(error))
        return otherwise

"""Clock skew: how far the clocks of the installation's machines differ from Redis's clock, for /readyz.

Reports, leases and tasks tolerate differences below ``AHEAD_MS``. Beyond that a live worker seems silent, and recent values
count as unknown, so the machine with the wrong clock has to be named.
"""

from __future__ import annotations

import socket
import time
from typing import Any, cast

from console.redis.client import redis_client
from linkengine.domain.moments import AHEAD_MS

_CLOCKS, _KEPT_S = "console:clocks", 3600
_RECENT_MS = 60_000  # by Redis's clock; a machine that reports nothing for longer is gone


def note_worker() -> None:
    """Report how far this machine's clock is ahead of Redis's."""
    now_ms = _redis_ms()
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.hset(_CLOCKS, socket.gethostname(), f"{_local_ms() - now_ms} {now_ms}")
    pipeline.expire(_CLOCKS, _KEPT_S)
    pipeline.execute()


def wrong() -> dict[str, int]:
    """Return, by machine, how many ms its clock is ahead of Redis's, if that is too much. Raises redis.RedisError."""
    now_ms = _redis_ms()
    ahead = {f"this process, on {socket.gethostname()}": _local_ms() - now_ms}
    noted = cast("dict[str, str]", redis_client().hgetall(_CLOCKS))
    for host, words in noted.items():
        ms, at_ms = map(int, words.split())
        if abs(now_ms - at_ms) <= _RECENT_MS:
            ahead[f"the worker on {host}"] = ms
    return {machine: ms for machine, ms in ahead.items() if abs(ms) > AHEAD_MS}


def _local_ms() -> int:
    return time.time_ns() // 1_000_000


def _redis_ms() -> int:
    seconds, micros = cast("tuple[Any, Any]", redis_client().time())
    return int(seconds) * 1000 + int(micros) // 1000

"""The last known state of the Spark Connect server, written by workers (task ``probe_spark``), read by /readyz and the pool.

The web process never connects to Spark. The record has no address and no error text, because /readyz needs no sign-in; the
worker's log has the full message.

The size of the pool of copy workers follows the number of slots. More slots count at once. Fewer slots count only when they
have been reported for ``LOWER_MS``, because an executor that is restarted is missing for some seconds. While Spark does not
respond the number is unknown, and the pool keeps its size.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, cast

from console.redis import heartbeats
from console.redis.client import redis_client

_KEY, _KEPT_S = "console:spark", 3600
STALE_MS = 90_000  # a probe of a hanging server takes up to 65 s
LOWER_MS = 60_000  # a lower number of slots counts for the pool after this time
UNREPORTED = 2  # slots that count for the pool if Spark reports no number: enough for one copy worker


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkState:
    """The state of Spark. ``problem`` is empty if the last probe succeeded; ``slots`` is None if their number is unknown."""

    age_ms: int | None  # of the last probe; None if there was none
    slots: int | None
    problem: str
    pool_slots: int | None = None  # most slots in the last ``LOWER_MS``; None if no probe has succeeded in that time

    @property
    def is_known(self) -> bool:
        """Return True if a worker has probed Spark recently."""
        return self.age_ms is not None and self.age_ms <= STALE_MS


def note(*, slots: int | None = None, problem: str = "") -> None:
    """Store the result of a probe."""
    now_ms, before = int(time.time() * 1000), _record() or {}
    recent = _recent(before, now_ms)
    if not problem:
        recent.append((now_ms, UNREPORTED if slots is None else slots))
    record = {"at_ms": now_ms, "slots": slots, "problem": problem, "recent": recent}
    redis_client().set(_KEY, json.dumps(record), ex=_KEPT_S)


def read() -> SparkState:
    """Return the last result. Raises redis.RedisError if Redis is not available."""
    record = _record()
    if record is None:
        return SparkState(age_ms=None, slots=None, problem="")
    return SparkState(
        age_ms=heartbeats.age_ms(str(record["at_ms"])),
        slots=record["slots"],
        problem=record["problem"],
        pool_slots=max((slots for _, slots in _recent(record, int(time.time() * 1000))), default=None),
    )


def _record() -> dict[str, Any] | None:
    text = cast("str | None", redis_client().get(_KEY))
    return None if text is None else cast("dict[str, Any]", json.loads(text))


def _recent(record: dict[str, Any], now_ms: int) -> list[tuple[int, int]]:
    """Return the times and slots of the successful probes in the last ``LOWER_MS``."""
    return [(at_ms, slots) for at_ms, slots in record.get("recent", ()) if 0 <= now_ms - at_ms <= LOWER_MS]

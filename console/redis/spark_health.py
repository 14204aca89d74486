"""The last known state of the Spark Connect server, written by workers (task ``probe_spark``) and read by /readyz.

The web process never connects to Spark. The record has no address and no error text, because /readyz needs no sign-in; the
worker's log has the full message.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, cast

from console.redis import heartbeats
from console.redis.client import redis_client

_KEY, _KEPT_S = "console:spark", 3600
STALE_MS = 90_000  # three periods of the probe


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkState:
    """The state of Spark. ``problem`` is empty if the last probe succeeded; ``slots`` is None if their number is unknown."""

    age_ms: int | None  # of the last probe; None if there was none
    slots: int | None
    problem: str

    @property
    def is_known(self) -> bool:
        """Return True if a worker has probed Spark recently."""
        return self.age_ms is not None and self.age_ms <= STALE_MS


def note(*, slots: int | None = None, problem: str = "") -> None:
    """Store the result of a probe."""
    record = {"at_ms": int(time.time() * 1000), "slots": slots, "problem": problem}
    redis_client().set(_KEY, json.dumps(record), ex=_KEPT_S)


def read() -> SparkState:
    """Return the last result. Raises redis.RedisError if Redis is not available."""
    text = cast("str | None", redis_client().get(_KEY))
    if text is None:
        return SparkState(age_ms=None, slots=None, problem="")
    record: dict[str, Any] = json.loads(text)
    return SparkState(age_ms=heartbeats.age_ms(str(record["at_ms"])), slots=record["slots"], problem=record["problem"])

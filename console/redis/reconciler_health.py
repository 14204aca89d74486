"""Health of the reconciler, per step and per link, reported by the worker through Redis; for /readyz and /metrics.

A worker may be alive although each of its passes fails, so calls and successes are recorded separately. Unknown counts as
late. Nothing here needs to survive; all keys but the counters expire.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from console.redis import heartbeats
from console.redis.client import redis_client

# of a reconcile pass, once a second; "links" sends the tasks of the links
STEPS = ("workers", "comparisons", "coverage", "gates", "drills", "namespaces", "operations", "links")
LATE_MS = 30_000  # a pass is due every second
LINK_LATE_MS = 60_000  # a large link takes some seconds, and waits for a thread of the worker
_KEPT_S = 86_400  # several periods of the slowest beat task
_DONE, _ERROR, _FAILURES = "console:step:done:", "console:step:error:", "console:step:failures"
_MIRRORS, _MIRROR_FAILURES = "console:step:mirrors:", "console:step:mirror-failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHealth:
    """State of a step: ms since its last success, the error since then ("" if none), and the number of failures so far."""

    success_age_ms: int | None
    error: str
    failures: int | None  # None if unknown; a 0 would look like a restart

    def is_late(self, *, after_ms: int = LATE_MS) -> bool:
        """Return whether the last success is too long ago or unknown."""
        return self.success_age_ms is None or self.success_age_ms > after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFailures:
    """The mirrors of a link that failed in its last pass (name to exception class), and the number of failures so far."""

    now: Mapping[str, str]
    failures: int


def of_link(link_id: int) -> str:
    """Return the name of the step that reconciles a link."""
    return f"link:{link_id}"


def note_success(step: str) -> None:
    """Record that a step has just succeeded."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.set(_DONE + step, int(time.time() * 1000), ex=_KEPT_S)
    pipeline.delete(_ERROR + step)
    pipeline.execute()


def note_failure(step: str, error: BaseException, *, counter: str = "") -> None:
    """Count a failure and store its exception class only: /readyz needs no sign-in. The worker's log has the message."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.set(_ERROR + step, type(error).__name__, ex=_KEPT_S)
    pipeline.hincrby(_FAILURES, counter or step, 1)
    pipeline.execute()


def note_mirrors(link_id: int, failed: Mapping[str, BaseException]) -> None:
    """Record which mirrors of a link, by name, failed in the pass that has just ended. All others succeeded."""
    pipeline = redis_client().pipeline()
    pipeline.delete(f"{_MIRRORS}{link_id}")
    if failed:
        kinds: Any = {name: type(error).__name__ for name, error in failed.items()}
        pipeline.hset(f"{_MIRRORS}{link_id}", mapping=kinds)
        pipeline.expire(f"{_MIRRORS}{link_id}", _KEPT_S)
        pipeline.hincrby(_MIRROR_FAILURES, str(link_id), len(failed))
    pipeline.execute()


def read_mirrors(link_ids: Sequence[int]) -> dict[int, MirrorFailures]:
    """Return what ``note_mirrors`` last recorded for each link. One round trip; raises redis.RedisError."""
    if not link_ids:
        return {}
    pipeline = redis_client().pipeline(transaction=False)
    for link_id in link_ids:
        pipeline.hgetall(f"{_MIRRORS}{link_id}")
    pipeline.hmget(_MIRROR_FAILURES, [str(link_id) for link_id in link_ids])
    *now, counts = pipeline.execute()
    found = zip(link_ids, now, counts, strict=True)
    return {link_id: MirrorFailures(now=kinds, failures=int(count or 0)) for link_id, kinds, count in found}


def failures(counters: Sequence[str]) -> list[int]:
    """Return how often each counter has failed so far. Raises redis.RedisError."""
    counts = cast("list[str | None]", redis_client().hmget(_FAILURES, list(counters)))
    return [int(count or 0) for count in counts]


def read(steps: Sequence[str]) -> dict[str, StepHealth]:
    """Return the state of each step. One round trip; raises redis.RedisError if Redis is not available."""
    if not steps:
        return {}
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.mget([_DONE + step for step in steps])
    pipeline.mget([_ERROR + step for step in steps])
    pipeline.hmget(_FAILURES, list(steps))
    columns = cast("list[list[Any]]", pipeline.execute())
    return {step: _round(*values) for step, *values in zip(steps, *columns, strict=True)}


def _round(done: str | None, error: str | None, failures: str | None) -> StepHealth:
    return StepHealth(success_age_ms=heartbeats.age_ms(done), error=error or "", failures=int(failures or 0))

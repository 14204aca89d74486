"""How the reconciler's rounds went, step by step and link by link, as its worker tells it by Redis: for /readyz and /metrics.

Being called and getting through are two things: a worker whose every round fails is alive, and nothing is looked after. What is
not known counts as late. Nothing here is worth keeping; all but the counters goes away by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from console import store

# of a round, once a second; links: sends theirs
STEPS = ("workers", "comparisons", "coverage", "gates", "drills", "namespaces", "links")
LATE_MS = 30_000  # a round is due every second
LINK_LATE_MS = 60_000  # a large link takes some seconds, and waits for a thread of the worker
_KEPT_S = 86_400  # of the slowest task of beat several periods
_DONE, _ERROR, _FAILURES = "console:round:done:", "console:round:error:", "console:round:failures"
_MIRRORS, _MIRROR_FAILURES = "console:round:mirrors:", "console:round:mirror-failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is known of one step: ms since its last success, how it failed since ("": it did not), failures so far."""

    silence_ms: int | None
    error: str
    failures: int | None  # None while nobody knows: a 0 would be taken for a new start

    def is_late(self, *, after_ms: int = LATE_MS) -> bool:
        """Tell whether the last success is too long ago, or unknown."""
        return self.silence_ms is None or self.silence_ms > after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFailures:
    """How the mirrors of one link fared: those of which the last round did not get through (name to kind), failures so far."""

    now: Mapping[str, str]
    failures: int


def of_link(link_id: int) -> str:
    """Name the step that looks after one link."""
    return f"link:{link_id}"


def note_success(step: str) -> None:
    """Say that a step has just got through."""
    pipeline = store.client().pipeline(transaction=False)
    pipeline.set(_DONE + step, int(time.time() * 1000), ex=_KEPT_S)
    pipeline.delete(_ERROR + step)
    pipeline.execute()


def note_failure(step: str, error: BaseException, *, counter: str = "") -> None:
    """Count a failure and keep its kind; /readyz asks for no sign-in, so what it says in full is in the worker's log only."""
    pipeline = store.client().pipeline(transaction=False)
    pipeline.set(_ERROR + step, type(error).__name__, ex=_KEPT_S)
    pipeline.hincrby(_FAILURES, counter or step, 1)
    pipeline.execute()


def note_mirrors(link_id: int, failed: Mapping[str, BaseException]) -> None:
    """Say of which mirrors of a link, by name, the round that has just ended did not get through; it did of all others."""
    pipeline = store.client().pipeline()
    pipeline.delete(f"{_MIRRORS}{link_id}")
    if failed:
        kinds: Any = {name: type(error).__name__ for name, error in failed.items()}
        pipeline.hset(f"{_MIRRORS}{link_id}", mapping=kinds)
        pipeline.expire(f"{_MIRRORS}{link_id}", _KEPT_S)
        pipeline.hincrby(_MIRROR_FAILURES, str(link_id), len(failed))
    pipeline.execute()


def read_mirrors(link_ids: Sequence[int]) -> dict[int, MirrorFailures]:
    """Answer for each link what ``note_mirrors`` was told last; raise redis.RedisError. One round trip."""
    if not link_ids:
        return {}
    pipeline = store.client().pipeline(transaction=False)
    for link_id in link_ids:
        pipeline.hgetall(f"{_MIRRORS}{link_id}")
    pipeline.hmget(_MIRROR_FAILURES, [str(link_id) for link_id in link_ids])
    *now, counts = pipeline.execute()
    found = zip(link_ids, now, counts, strict=True)
    return {link_id: MirrorFailures(now=kinds, failures=int(count or 0)) for link_id, kinds, count in found}


def failures(counters: Sequence[str]) -> list[int]:
    """Answer how often each has failed so far; raise redis.RedisError."""
    counts = cast("list[str | None]", store.client().hmget(_FAILURES, list(counters)))
    return [int(count or 0) for count in counts]


def read(steps: Sequence[str]) -> dict[str, Round]:
    """Answer what is known of each step; raise redis.RedisError where Redis does not answer. One round trip."""
    if not steps:
        return {}
    pipeline = store.client().pipeline(transaction=False)
    pipeline.mget([_DONE + step for step in steps])
    pipeline.mget([_ERROR + step for step in steps])
    pipeline.hmget(_FAILURES, list(steps))
    columns = cast("list[list[Any]]", pipeline.execute())
    return {step: _round(*values) for step, *values in zip(steps, *columns, strict=True)}


def _round(done: str | None, error: str | None, failures: str | None) -> Round:
    return Round(silence_ms=store.silence_ms(done), error=error or "", failures=int(failures or 0))

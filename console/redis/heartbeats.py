"""Health reports of processes in Redis: Celery workers, reconciler, Spark Connect, clocks; for /readyz and /metrics."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from console.redis import redis_client
from linkengine.domain.times import AHEAD_MS

# --- Celery workers ---------------------------------------------------------------------------------------------------
#
# Their heartbeat, and the age of any heartbeat.


_WORKER_SEEN, _KEPT_S = "console:worker-seen", 3600


def note_worker() -> None:
    """Store that a Celery worker has just done something."""
    redis_client().set(_WORKER_SEEN, int(time.time() * 1000), ex=_KEPT_S)


def heartbeat_age_ms() -> int | None:
    """Return the age of the last worker heartbeat, None if unknown. Raises redis.RedisError if Redis is not available."""
    return age_ms(cast("str | None", redis_client().get(_WORKER_SEEN)))


def age_ms(seen: str | None) -> int | None:
    """Return the age of a heartbeat (``seen``: Unix ms), None if unknown."""
    if seen is None:
        return None
    passed_ms = int(time.time() * 1000) - int(seen)
    # A heartbeat from the future (a clock was set back) is unknown, which counts as late. An age of 0 would be a live process.
    return None if passed_ms < -AHEAD_MS else max(0, passed_ms)


# --- the reconciler ---------------------------------------------------------------------------------------------------
#
# A worker may be alive although each of its passes fails. So each step of a pass, and the mirrors of each link, have a state of
# their own, reported by the worker, and successes are recorded apart from failures. Unknown counts as late. All keys but the
# counters expire.


# of a reconcile pass, once a second; "links" sends the tasks of the links
STEPS = ("workers", "comparisons", "coverage", "gates", "drills", "namespaces", "operations", "links")
LATE_MS = 30_000  # a pass is due every second
LINK_LATE_MS = 60_000  # a large link takes some seconds, and waits for a thread of the worker
_STEP_KEPT_S = 86_400  # several periods of the slowest beat task
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


def step_of_link(link_id: int) -> str:
    """Return the name of the step that reconciles a link."""
    return f"link:{link_id}"


def note_step_success(step: str) -> None:
    """Record that a step has just succeeded."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.set(_DONE + step, int(time.time() * 1000), ex=_STEP_KEPT_S)
    pipeline.delete(_ERROR + step)
    pipeline.execute()


def note_step_failure(step: str, error: BaseException, *, counter: str = "") -> None:
    """Count a failure and store its exception class only: /readyz needs no sign-in. The worker's log has the message."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.set(_ERROR + step, type(error).__name__, ex=_STEP_KEPT_S)
    pipeline.hincrby(_FAILURES, counter or step, 1)
    pipeline.execute()


def note_mirrors(link_id: int, failed: Mapping[str, BaseException]) -> None:
    """Record which mirrors of a link, by name, failed in the pass that has just ended. All others succeeded."""
    pipeline = redis_client().pipeline()
    pipeline.delete(f"{_MIRRORS}{link_id}")
    if failed:
        kinds: Any = {name: type(error).__name__ for name, error in failed.items()}
        pipeline.hset(f"{_MIRRORS}{link_id}", mapping=kinds)
        pipeline.expire(f"{_MIRRORS}{link_id}", _STEP_KEPT_S)
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


def step_failures(counters: Sequence[str]) -> list[int]:
    """Return how often each counter has failed so far. Raises redis.RedisError."""
    counts = cast("list[str | None]", redis_client().hmget(_FAILURES, list(counters)))
    return [int(count or 0) for count in counts]


def read_steps(steps: Sequence[str]) -> dict[str, StepHealth]:
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
    return StepHealth(success_age_ms=age_ms(done), error=error or "", failures=int(failures or 0))


# --- Spark Connect ----------------------------------------------------------------------------------------------------
#
# The last known state of the server, written by workers (task ``probe_spark``), read by /readyz and the pool.
#
# The web process never connects to Spark. The record has no address and no error text, because /readyz needs no sign-in; the
# worker's log has the full message.
#
# The size of the pool of copy workers follows the number of slots. More slots count at once. Fewer slots count only when they
# have been reported for ``LOWER_MS``, because an executor that is restarted is missing for some seconds. While Spark does not
# respond the number is unknown, and the pool keeps its size.


_KEY, _SPARK_KEPT_S = "console:spark", 3600
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


def note_spark(*, slots: int | None = None, problem: str = "") -> None:
    """Store the result of a probe."""
    now_ms, before = int(time.time() * 1000), _record() or {}
    recent = _recent(before, now_ms)
    if not problem:
        recent.append((now_ms, UNREPORTED if slots is None else slots))
    record = {"at_ms": now_ms, "slots": slots, "problem": problem, "recent": recent}
    redis_client().set(_KEY, json.dumps(record), ex=_SPARK_KEPT_S)


def read_spark() -> SparkState:
    """Return the last result. Raises redis.RedisError if Redis is not available."""
    record = _record()
    if record is None:
        return SparkState(age_ms=None, slots=None, problem="")
    return SparkState(
        age_ms=age_ms(str(record["at_ms"])),
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


# --- clock skew -------------------------------------------------------------------------------------------------------
#
# How far the clocks of the installation's machines differ from Redis's clock, for /readyz.
#
# The clocks of an installation must be synchronized; differences below ``AHEAD_MS`` are tolerated. Beyond that recent values
# count as unknown, a live worker seems silent, and work waits for as long as a clock was set back. So this names the machine.


_CLOCKS, _CLOCK_KEPT_S = "console:clocks", 3600
_RECENT_MS = 60_000  # by Redis's clock; a machine that reports nothing for longer is gone


def note_clock(process: str) -> None:
    """Report how far the clock of this machine, on which the process runs, is ahead of Redis's."""
    now_ms = _redis_ms()
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.hset(_CLOCKS, f"{process} on {socket.gethostname()}", f"{_local_ms() - now_ms} {now_ms}")
    pipeline.expire(_CLOCKS, _CLOCK_KEPT_S)
    pipeline.execute()


def wrong_clocks() -> dict[str, int]:
    """Return, by machine, how many ms its clock is ahead of Redis's, if that is too much. Raises redis.RedisError."""
    now_ms = _redis_ms()
    ahead = {f"this process, on {socket.gethostname()}": _local_ms() - now_ms}
    noted = cast("dict[str, str]", redis_client().hgetall(_CLOCKS))
    for process, words in noted.items():
        ms, at_ms = map(int, words.split())
        if abs(now_ms - at_ms) <= _RECENT_MS:
            ahead[f"the {process}"] = ms
    return {machine: ms for machine, ms in ahead.items() if abs(ms) > AHEAD_MS}


def _local_ms() -> int:
    return time.time_ns() // 1_000_000


def _redis_ms() -> int:
    seconds, micros = cast("tuple[Any, Any]", redis_client().time())
    return int(seconds) * 1000 + int(micros) // 1000

"""The scheduler of Celery beat, and the health of its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import redis
import structlog
from celery.beat import PersistentScheduler, ScheduleEntry

from console.redis import heartbeats as redis_health
from console.redis import redis_client

# --- health of the beat tasks -----------------------------------------------------------------------------------------
#
# For /readyz and /metrics. ``console.redis.heartbeats`` has that of the reconcile pass; each other task has its own period.
# Sending and success are recorded separately. Some tasks send a task for each cluster or link; each of these is a part of the
# task and has a health of its own. Beat records since when it sends a task: a task without any known success, as after a
# restart, is late only after several periods.


EVERY_S: Mapping[str, float] = MappingProxyType(
    {"refresh_topics": 30.0, "probe_clusters": 60.0, "probe_spark": 10.0, "forget_old_rows": 3600.0}
)
PERIODS = 4  # without a success
_SINCE, _KEPT_S = "console:schedule:since:", 86_400  # renewed while beat is alive


def late_after_ms(task: str) -> int:
    """Return for how long the task, or a part of it, may have no success."""
    return round(1000 * PERIODS * EVERY_S[task])


def step_of(task: str, *, cluster: int | None = None, link: int | None = None) -> str:
    """Return the name of the task, or of its part for a cluster or link, among the steps of ``redis.heartbeats``."""
    about = "" if cluster is None else f":cluster:{cluster}"
    return f"beat:{task}{about}" + ("" if link is None else f":link:{link}")


def counter_of(task: str) -> str:
    """Return the failure counter of a task with all its parts: a sum would fall when a cluster is removed."""
    return f"beat-task:{task}"


def records_health(task: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Record the health of a task, or of its part for ``cluster_pk`` or ``link_id``. Exceptions are reraised."""

    def around(work: Callable[..., None]) -> Callable[..., None]:
        @wraps(work)
        def run(**kwargs: Any) -> None:
            step = step_of(task, cluster=kwargs.get("cluster_pk"), link=kwargs.get("link_id"))
            try:
                work(**kwargs)
            except Exception as error:
                redis_health.note_step_failure(step, error, counter=counter_of(task))
                raise
            redis_health.note_step_success(step)

        return run

    return around


def note_sending() -> None:
    """Record that beat sends the tasks; the first call sets the time."""
    pipeline = redis_client().pipeline(transaction=False)
    for task in EVERY_S:
        pipeline.set(_SINCE + task, int(time.time() * 1000), ex=_KEPT_S, nx=True)
        pipeline.expire(_SINCE + task, _KEPT_S)
    pipeline.execute()


def sent_for_ms() -> dict[str, int | None]:
    """Return how long ago beat started to send each task, None if unknown. Raises redis.RedisError."""
    found = cast("list[str | None]", redis_client().mget([_SINCE + task for task in EVERY_S]))
    return {task: redis_health.age_ms(since) for task, since in zip(EVERY_S, found, strict=True)}


# --- the scheduler ----------------------------------------------------------------------------------------------------
#
# It stops sending while no worker takes messages.
#
# Celery's scheduler sends an entry when its last run is an interval ago. It stores the times in a file. After beat's clock was
# set back by an hour nothing is sent for an hour, even after a restart without removing the file; /readyz reports 503.


MOST_WAITING = 500  # messages; without a worker a night would leave 30,000, each of which the next worker has to read
REPORT_S = 30.0
_log = structlog.get_logger(__name__)


class SteadyScheduler(PersistentScheduler):
    """Celery's scheduler that does not fill a queue without a worker, and reports that it is sending and beat's clock."""

    _reported_s = -REPORT_S  # monotonic
    schedule_filename: str  # of Celery's class, which has no type hints

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due. Returns the seconds until the next call."""
        self._report()
        Path(f"{self.schedule_filename}.alive").touch()  # for the health check of the container
        wait_s: float = super().tick(*args, **kwargs)
        return wait_s

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a task, unless the queue is so long that the message would expire in it."""
        if _is_jammed(self.app.conf.task_default_queue):
            _log.warning("beat.queue_is_full", entry=entry.name)
            return
        super().apply_entry(entry, producer=producer)

    def _report(self) -> None:
        if time.monotonic() - self._reported_s < REPORT_S:
            return
        with suppress(redis.RedisError):  # retried with the next tick
            note_sending()
            redis_health.note_clock("beat")
            self._reported_s = time.monotonic()


def _is_jammed(queue: str) -> bool:
    try:
        return int(redis_client().llen(queue)) > MOST_WAITING
    except redis.RedisError:  # Celery tries to send and logs the error
        return False

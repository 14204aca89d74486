"""Health of the beat tasks other than the reconcile pass, each with its own period; for /readyz and Prometheus.

Sending and success are recorded separately, as for reconcile passes (``console.redis.reconciler_health``). Some tasks send a
task of their own for each cluster or link, and each of these is a part with a health of its own. Beat records since when it
sends a task: a task without any known success, as after a restart, is late only after several periods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, cast

from console.redis import heartbeats, reconciler_health
from console.redis.client import redis_client

EVERY_S: Mapping[str, float] = MappingProxyType(
    {"refresh_topics": 30.0, "probe_clusters": 60.0, "probe_spark": 10.0, "forget_old_rows": 3600.0}
)
PERIODS = 4  # without a success
_SINCE, _KEPT_S = "console:schedule:since:", 86_400  # renewed while beat is alive


def late_after_ms(task: str) -> int:
    """Return for how long the task, or a part of it, may have no success."""
    return round(1000 * PERIODS * EVERY_S[task])


def step_of(task: str, *, cluster: int | None = None, link: int | None = None) -> str:
    """Return the name of the task, or of its part for a cluster or link, among the steps of ``reconciler_health``."""
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
                reconciler_health.note_failure(step, error, counter=counter_of(task))
                raise
            reconciler_health.note_success(step)

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
    return {task: heartbeats.age_ms(since) for task, since in zip(EVERY_S, found, strict=True)}

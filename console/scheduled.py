"""The tasks that beat sends beside the rounds, each with its own period, and how they fare: for /readyz and for Prometheus.

Being sent and ending well are two things, as with the rounds (``console.rounds``). Some send a task of their own for each
cluster or link, and each of these is a part that fares by itself. Beat tells since when it sends a task: what nobody has seen
to end well, as after a new start, is late only once several periods have gone by since then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, cast

from console import rounds, store

EVERY_S: Mapping[str, float] = MappingProxyType(
    {"refresh_topics": 30.0, "probe_clusters": 60.0, "probe_spark": 30.0, "forget_old_rows": 3600.0}
)
PERIODS = 4  # without a success
_SINCE, _KEPT_S = "console:scheduled:since:", 86_400  # told again and again while beat lives


def late_after_ms(task: str) -> int:
    """Answer for how long the task, or one of its parts, may go without a success."""
    return round(1000 * PERIODS * EVERY_S[task])


def step_of(task: str, *, cluster: int | None = None, link: int | None = None) -> str:
    """Name the task, or its part about one cluster or link, among the steps of ``console.rounds``."""
    about = "" if cluster is None else f":cluster:{cluster}"
    return f"beat:{task}{about}" + ("" if link is None else f":link:{link}")


def counter_of(task: str) -> str:
    """Name the counter of failures of a task and all its parts: a sum would fall when a cluster is forgotten."""
    return f"beat-task:{task}"


def watched(task: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Tell how the task, or its part that the keywords ``cluster_pk`` or ``link_id`` name, fares. A failure is raised on."""

    def around(work: Callable[..., None]) -> Callable[..., None]:
        @wraps(work)
        def run(**kwargs: Any) -> None:
            step = step_of(task, cluster=kwargs.get("cluster_pk"), link=kwargs.get("link_id"))
            try:
                work(**kwargs)
            except Exception as error:
                rounds.note_failure(step, error, counter=counter_of(task))
                raise
            rounds.note_success(step)

        return run

    return around


def note_sending() -> None:
    """Say that beat sends the tasks; the first time counts."""
    pipeline = store.client().pipeline(transaction=False)
    for task in EVERY_S:
        pipeline.set(_SINCE + task, int(time.time() * 1000), ex=_KEPT_S, nx=True)
        pipeline.expire(_SINCE + task, _KEPT_S)
    pipeline.execute()


def sent_for_ms() -> dict[str, int | None]:
    """Answer how long ago beat began to send each task, None where nobody knows; raise redis.RedisError."""
    found = cast("list[str | None]", store.client().mget([_SINCE + task for task in EVERY_S]))
    return {task: store.silence_ms(since) for task, since in zip(EVERY_S, found, strict=True)}

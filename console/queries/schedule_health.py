"""Scheduled tasks (Celery beat), or parts of them, that have not succeeded for several periods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.utils import timezone

from console.models import Cluster, ClusterLink
from console.queue import schedule_health
from console.queue.schedule_health import EVERY_S, late_after_ms, step_of
from console.redis import reconciler_health
from console.redis.reconciler_health import StepHealth

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A scheduled task, or its part for one cluster or link."""

    task: str
    step: str
    name: str  # displayed


def late_parts(*, now: datetime) -> dict[Part, StepHealth]:
    """Return the late parts with their health; raise redis.RedisError. Two queries."""
    parts, sent_for_ms = list(_parts(now)), schedule_health.sent_for_ms()
    known = reconciler_health.read([part.step for part in parts])
    return {part: known[part.step] for part in parts if _is_late(part, known[part.step], sent_for_ms[part.task])}


def schedule_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    try:
        late = {part.task for part in late_parts(now=timezone.now())}
        failures = reconciler_health.failures([schedule_health.counter_of(task) for task in EVERY_S])
    except redis.RedisError:
        late, failures = set(EVERY_S), []
    gauge = (
        f"1 if a scheduled task, or its part for a cluster or link, has not succeeded for {schedule_health.PERIODS} periods."
    )
    counted: list[Sample] = [({"task": task}, count) for task, count in zip(EVERY_S, failures, strict=False)]
    return [
        ("clusterlink_schedule_late", "gauge", gauge, [({"task": task}, int(task in late)) for task in EVERY_S]),
        (
            "clusterlink_schedule_failures",
            "counter",
            "Unexpected failures of a scheduled task and its parts.",
            counted,
        ),
    ]


def _parts(now: datetime) -> Iterator[Part]:
    """Yield the tasks and their parts, without those for new clusters and links."""
    for task in EVERY_S:
        yield Part(task=task, step=step_of(task), name=task)
    for task in ("refresh_topics", "probe_clusters"):
        for pk, name in Cluster.objects.filter(created_at__lt=_new(task, now)).values_list("pk", "name"):
            yield Part(task=task, step=step_of(task, cluster=pk), name=f"{task} of cluster {name}")
    links = ClusterLink.objects.filter(created_at__lt=_new("refresh_topics", now)).values_list("pk", "name")
    for pk, name in links:
        yield Part(task="refresh_topics", step=step_of("refresh_topics", link=pk), name=f"refresh_topics of link {name}")


def _new(task: str, now: datetime) -> datetime:
    return now - timedelta(milliseconds=late_after_ms(task))


def _is_late(part: Part, known: StepHealth, sent_for_ms: int | None) -> bool:
    age_ms = sent_for_ms if known.success_age_ms is None else known.success_age_ms
    return age_ms is None or age_ms > late_after_ms(part.task)

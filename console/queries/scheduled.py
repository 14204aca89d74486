"""Which tasks of beat, or parts of them, have not ended well for several of their periods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.utils import timezone

from console import rounds, scheduled
from console.models import Cluster, ClusterLink
from console.rounds import Round
from console.scheduled import EVERY_S, late_after_ms, step_of

Sample = tuple[dict[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A task of beat, or what it does about one cluster or link."""

    task: str
    step: str
    name: str  # for people


def late_parts(*, now: datetime) -> dict[Part, Round]:
    """Answer what is late, and how it fares; raise redis.RedisError. Two queries."""
    parts, sent_for_ms = list(_parts(now)), scheduled.sent_for_ms()
    known = rounds.read([one.step for one in parts])
    return {one: known[one.step] for one in parts if _is_late(one, known[one.step], sent_for_ms[one.task])}


def schedule_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Answer (name, kind, text, samples); where Redis does not answer all is late. Two queries."""
    try:
        late = {one.task for one in late_parts(now=timezone.now())}
        failures = rounds.failures([scheduled.counter_of(task) for task in EVERY_S])
    except redis.RedisError:
        late, failures = set(EVERY_S), []
    gauge = f"1 where a task of beat, or its part about one cluster or link, did not end well for {scheduled.PERIODS} periods."
    counted: list[Sample] = [({"task": task}, count) for task, count in zip(EVERY_S, failures, strict=False)]
    return [
        ("clusterlink_schedule_late", "gauge", gauge, [({"task": task}, int(task in late)) for task in EVERY_S]),
        (
            "clusterlink_schedule_failures",
            "counter",
            "Failures of a task of beat that nobody foresaw, of its parts too.",
            counted,
        ),
    ]


def _parts(now: datetime) -> Iterator[Part]:
    """List tasks and parts, those about new clusters and links left out."""
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


def _is_late(part: Part, known: Round, sent_for_ms: int | None) -> bool:
    silence_ms = sent_for_ms if known.silence_ms is None else known.silence_ms
    return silence_ms is None or silence_ms > late_after_ms(part.task)

"""Health of reconcile passes, scheduled tasks and copy workers, for /readyz and Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import redis
from django.utils import timezone

from console.models import Cluster, ClusterLink, CopyWorker
from console.queue import scheduler
from console.queue.scheduler import EVERY_S, late_after_ms, step_of
from console.redis import heartbeats as redis_health
from console.redis.heartbeats import LATE_MS, LINK_LATE_MS, StepHealth

# --- reconcile passes -------------------------------------------------------------------------------------------------


Sample = tuple[dict[str, str], float]
_NEW = timedelta(milliseconds=LINK_LATE_MS)  # a new link is not reported until its first pass is overdue
_NAMES = ("destination__cluster_id", "name")
_UNKNOWN = StepHealth(success_age_ms=None, error="", failures=None)


def health_of_links(*, now: datetime) -> dict[tuple[str, str], StepHealth]:
    """Return the reconcile health of each link by (cluster, link), without new links; raise redis.RedisError. One query."""
    names = _links(now=now)
    known = redis_health.read_steps(list(names))
    return {place: known[name] for name, place in names.items()}


def round_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    names = _links(now=timezone.now())
    known = _read([*redis_health.STEPS, *names])
    steps = {step: ({"step": step}, known[step]) for step in redis_health.STEPS}
    links = {name: ({"cluster": cluster, "link": link}, known[name]) for name, (cluster, link) in names.items()}
    late, late_link = f"has not succeeded for {LATE_MS // 1000} s", f"has not been reconciled for {LINK_LATE_MS // 1000} s"
    return [
        ("clusterlink_round_late", "gauge", f"1 if a step of the reconcile pass {late}.", _late(steps, LATE_MS)),
        ("clusterlink_round_failures", "counter", "Failures of a step of the reconcile pass.", _failures(steps)),
        ("clusterlink_link_late", "gauge", f"1 if a link {late_link}.", _late(links, LINK_LATE_MS)),
        ("clusterlink_link_round_failures", "counter", "Failures to reconcile a link.", _failures(links)),
        *_mirror_samples(),
    ]


def failing_mirrors() -> dict[tuple[str, str], str]:
    """Return the error, by (link, mirror), of mirrors that failed in the last pass; raise redis.RedisError. One query."""
    names = dict(ClusterLink.objects.values_list("pk", "name"))
    failures = redis_health.read_mirrors(list(names))
    return {(names[pk], mirror): kind for pk, state in failures.items() for mirror, kind in state.now.items()}


def _mirror_samples() -> list[tuple[str, str, str, list[Sample]]]:
    links = {pk: {"cluster": at, "link": name} for pk, at, name in ClusterLink.objects.values_list("pk", *_NAMES)}
    try:
        known = redis_health.read_mirrors(list(links))
    except redis.RedisError:  # the links are reported as late
        known = {}
    failing: list[Sample] = [(links[pk], len(state.now)) for pk, state in known.items()]
    failures: list[Sample] = [(links[pk], state.failures) for pk, state in known.items()]
    text = "Mirror topics that the last pass of the link failed to reconcile."
    return [
        ("clusterlink_mirrors_not_looked_after", "gauge", text, failing),
        ("clusterlink_mirror_round_failures", "counter", "Failures to reconcile single mirror topics of a link.", failures),
    ]


def _links(*, now: datetime) -> dict[str, tuple[str, str]]:
    rows = ClusterLink.objects.filter(created_at__lt=now - _NEW).values_list("pk", *_NAMES)
    return {redis_health.step_of_link(pk): (cluster, name) for pk, cluster, name in rows}


def _read(names: list[str]) -> Mapping[str, StepHealth]:
    try:
        return redis_health.read_steps(names)
    except redis.RedisError:
        return dict.fromkeys(names, _UNKNOWN)


def _late(of: Mapping[str, tuple[dict[str, str], StepHealth]], after_ms: int) -> list[Sample]:
    return [(labels, int(state.is_late(after_ms=after_ms))) for labels, state in of.values()]


def _failures(of: Mapping[str, tuple[dict[str, str], StepHealth]]) -> list[Sample]:
    return [(labels, state.failures) for labels, state in of.values() if state.failures is not None]


# --- scheduled tasks --------------------------------------------------------------------------------------------------
#
# Tasks that Celery beat sends, or parts of them. They are late if they have not succeeded for several periods.


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A scheduled task, or its part for one cluster or link."""

    task: str
    step: str
    name: str  # displayed


def late_parts(*, now: datetime) -> dict[Part, StepHealth]:
    """Return the late parts with their health; raise redis.RedisError. Two queries."""
    parts, sent_for_ms = list(_parts(now)), scheduler.sent_for_ms()
    known = redis_health.read_steps([part.step for part in parts])
    return {part: known[part.step] for part in parts if _is_late(part, known[part.step], sent_for_ms[part.task])}


def schedule_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    try:
        late = {part.task for part in late_parts(now=timezone.now())}
        failures = redis_health.step_failures([scheduler.counter_of(task) for task in EVERY_S])
    except redis.RedisError:
        late, failures = set(EVERY_S), []
    gauge = f"1 if a scheduled task, or its part for a cluster or link, has not succeeded for {scheduler.PERIODS} periods."
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


# --- copy workers -----------------------------------------------------------------------------------------------------
#
# As of the last reconcile pass.


def lacking_workers() -> dict[int, str]:
    """Return the reasons, by number, of the copy workers that should run but do not. One query."""
    return dict(CopyWorker.objects.exclude(problem="").values_list("number", "problem"))


def worker_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. One query."""
    problems = list(CopyWorker.objects.values_list("problem", flat=True))
    samples: list[Sample] = [
        ({"running": "yes"}, float(problems.count(""))),
        ({"running": "no"}, float(sum(bool(problem) for problem in problems))),
    ]
    return [("clusterlink_copy_workers", "gauge", "Copy workers of the pool, by whether they run.", samples)]

"""The health of the reconcile passes, for /readyz and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import redis
from django.utils import timezone

from console.models import ClusterLink
from console.redis import reconciler_health
from console.redis.reconciler_health import LATE_MS, LINK_LATE_MS, StepHealth

Sample = tuple[dict[str, str], float]
_NEW = timedelta(milliseconds=LINK_LATE_MS)  # a new link is not reported until its first pass is overdue
_NAMES = ("destination__cluster_id", "name")
_UNKNOWN = StepHealth(success_age_ms=None, error="", failures=None)


def health_of_links(*, now: datetime) -> dict[tuple[str, str], StepHealth]:
    """Return the reconcile health of each link by (cluster, link), without new links; raise redis.RedisError. One query."""
    names = _links(now=now)
    known = reconciler_health.read(list(names))
    return {place: known[name] for name, place in names.items()}


def round_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. If Redis is unavailable, all are late. Two queries."""
    names = _links(now=timezone.now())
    known = _read([*reconciler_health.STEPS, *names])
    steps = {step: ({"step": step}, known[step]) for step in reconciler_health.STEPS}
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
    failures = reconciler_health.read_mirrors(list(names))
    return {(names[pk], mirror): kind for pk, state in failures.items() for mirror, kind in state.now.items()}


def _mirror_samples() -> list[tuple[str, str, str, list[Sample]]]:
    links = {pk: {"cluster": at, "link": name} for pk, at, name in ClusterLink.objects.values_list("pk", *_NAMES)}
    try:
        known = reconciler_health.read_mirrors(list(links))
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
    return {reconciler_health.of_link(pk): (cluster, name) for pk, cluster, name in rows}


def _read(names: list[str]) -> Mapping[str, StepHealth]:
    try:
        return reconciler_health.read(names)
    except redis.RedisError:
        return dict.fromkeys(names, _UNKNOWN)


def _late(of: Mapping[str, tuple[dict[str, str], StepHealth]], after_ms: int) -> list[Sample]:
    return [(labels, int(state.is_late(after_ms=after_ms))) for labels, state in of.values()]


def _failures(of: Mapping[str, tuple[dict[str, str], StepHealth]]) -> list[Sample]:
    return [(labels, state.failures) for labels, state in of.values() if state.failures is not None]

"""Metrics for Prometheus. The ``*_samples`` functions return plain tuples; prometheus_client writes the text format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import redis
from django.db import DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from console.http import middleware
from console.http.health import Described, Sample, round_samples, schedule_samples, silence_samples, worker_samples
from console.links.health_queries import health_samples
from console.links.task_queries import acl_samples, group_samples
from console.mirrors import progress
from console.mirrors.figures import Figures, figures_of
from console.mirrors.progress import CurrentMirror
from console.models import ClusterLink, LinkTask, MirrorTopic, StopReport
from console.models.mirrors import KEPT
from console.queue import transport
from console.redis import redis_client
from linkengine.domain.linktasks import TASKS, TaskName, is_configured
from linkengine.domain.states import GapReason, LinkState, MirrorState, StopReason

# --- recurring tasks of links -----------------------------------------------------------------------------------------


def _errors(row: LinkTask) -> int:
    """Return the errors of the last run; 0 if the task is turned off or the link has no mirror left to sync."""
    unstopped = row.unstopped  # type: ignore[attr-defined]  # annotated below
    configured = is_configured(TASKS[TaskName(row.name)], value_of=row.link.config, mirrors=unstopped)
    return row.error_count if configured else 0


# name, type, help, value
_METRICS: tuple[tuple[str, str, str, Callable[[LinkTask], float | None]], ...] = (
    ("clusterlink_task_runs", "counter", "Runs of a recurring task of a link.", lambda row: row.runs),
    ("clusterlink_task_failures", "counter", "Runs that ended with an error.", lambda row: row.failures),
    ("clusterlink_task_changes", "counter", "Changes made by a task.", lambda row: row.changes),
    ("clusterlink_task_errors", "gauge", "Errors of the last run; 0 if the task is turned off or has nothing to do.", _errors),
    (
        "clusterlink_task_last_success_timestamp_seconds",
        "gauge",
        "End of the last run without errors.",
        lambda row: row.succeeded_at.timestamp() if row.succeeded_at else None,
    ),
)


def task_samples() -> list[Described]:
    """Return (name, type, help, samples) of each metric. Two queries."""
    unstopped = Exists(MirrorTopic.objects.unstopped().filter(link=OuterRef("link")))
    tasks = LinkTask.objects.select_related("link__destination").prefetch_related("link__configs")
    rows = list(tasks.annotate(unstopped=unstopped))
    return [(name, kind, text, _samples(rows, value)) for name, kind, text, value in _METRICS]


def _samples(rows: Sequence[LinkTask], value: Callable[[LinkTask], float | None]) -> list[Sample]:
    samples = []
    for row in rows:
        number = value(row)
        if number is not None:
            labels = {"cluster": row.link.destination.cluster_id, "link": row.link.name, "task": row.name}
            samples.append((labels, number))
    return samples


# --- verification -----------------------------------------------------------------------------------------------------


_RANGES = "mirrors__verified_ranges__"


def verify_samples() -> list[Described]:
    """Return (name, type, help, samples) of each metric, with a sample for each link: alerts need the 0 before a difference.

    Scratch copies of drills are not counted. One query.
    """
    listed = Q(mirrors__drill=None)
    equal = listed & Q(**{f"{_RANGES}differences": 0})
    rows = list(
        ClusterLink.objects.order_by()
        .values("name", cluster=F("destination__cluster_id"))
        .annotate(
            differing=Sum(f"{_RANGES}differences", filter=listed),
            verified=Sum(F(f"{_RANGES}end") - F(f"{_RANGES}start"), filter=equal),
        )
    )
    return [
        _gauge("clusterlink_differing_records", "Records that verification found different.", rows, "differing"),
        _gauge("clusterlink_verified_offsets", "Offsets that verification found equal.", rows, "verified"),
    ]


def _gauge(name: str, text: str, rows: Sequence[Mapping[str, Any]], column: str) -> Described:
    samples = [({"cluster": str(row["cluster"]), "link": str(row["name"])}, row[column] or 0) for row in rows]
    return name, "gauge", text, samples


# --- conditions that need a person ------------------------------------------------------------------------------------
#
# Lasting alarms of mirrors.


def alarm_samples() -> list[Described]:
    """Return, by link and lasting alarm (``KEPT``), the number of mirrors that show it, also if it is 0. One query."""
    columns = {code: Count("mirrors__transition_errors", filter=_shows(code)) for code in KEPT}
    named = ClusterLink.objects.order_by().values("name", cluster=F("destination__cluster_id"))
    rows: list[Any] = list(named.annotate(**columns))
    samples: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["name"], "code": code}, row[code]) for row in rows for code in KEPT
    ]
    return [("clusterlink_alarms", "gauge", "Mirror topics that show an alarm which does not end automatically.", samples)]


def _shows(code: str) -> Q:
    return Q(mirrors__drill=None, mirrors__transition_errors__code=code)


# --- all metrics ------------------------------------------------------------------------------------------------------


_REPORTS = 1000  # newest failovers read to find the last of each link
_OTHERS = (
    task_samples,
    group_samples,
    acl_samples,
    verify_samples,
    round_samples,
    schedule_samples,
    alarm_samples,
    worker_samples,
)
# Per mirror topic, not per link: a sum of a link would fall when a mirror is deleted. Prometheus takes a fall for a counter
# reset and would count the remaining value as a new increase.
_PER_TOPIC = "by mirror topic."
_REFUSED_KINDS = ("task", "change", "reply", "report", "loss")
QUEUES = ("control", "spark")


class _Families:
    """Metric families with the part of a registry that ``generate_latest`` needs."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def prometheus_text() -> str:
    """Return all metrics: some twenty queries and a few requests to Redis.

    While the database is unavailable, its metrics are left out; those of this process and of the queue are still returned.
    """
    try:
        stored, database_up = _stored(), 1
    except DatabaseError:
        stored, database_up = [], 0
    text = "1 if the database was available for this scrape. If 0, all metrics that come from the database are left out."
    up = _metric("clusterlink_database_up", "gauge", text, [({}, database_up)])
    families = [*stored, *up, *_queue_depths()]
    return (generate_latest(_Families(families)) + middleware.exposition()).decode()


@require_GET
def metrics(_request: HttpRequest) -> HttpResponse:
    """Return counters and gauges as Prometheus text. They contain names and numbers only, so no sign-in is required."""
    return HttpResponse(prometheus_text(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _queue_depths() -> list[Metric]:
    """Return the number of messages in each queue; no sample while Redis is unavailable."""
    pipeline = redis_client().pipeline(transaction=False)
    for queue in QUEUES:
        pipeline.llen(queue)
    try:
        depths: list[Sample] = [({"queue": queue}, depth) for queue, depth in zip(QUEUES, pipeline.execute(), strict=True)]
    except redis.RedisError:
        depths = []
    return list(_metric("clusterlink_queue_messages", "gauge", "Messages that wait in Redis for a thread of a worker.", depths))


def _stored() -> list[Metric]:
    """Return the metrics that need the database."""
    now = timezone.now()
    mirrors = progress.current(MirrorTopic.objects.listed(), now=now)
    return [
        *_metric("clusterlink_links", "gauge", "Cluster links by state.", _by_state(ClusterLink.objects.all(), LinkState)),
        *_metric(
            "clusterlink_mirror_topics",
            "gauge",
            "Mirror topics by state.",
            _by_state(MirrorTopic.objects.listed(), MirrorState),
        ),
        *_partition_metrics(mirrors, now),
        *_metric("clusterlink_last_failover_seconds", "gauge", "RTO of the last failover, as measured.", _recovery_times()),
        *_metric("clusterlink_lost_records", "counter", f"Offsets lost to retention on the source, {_PER_TOPIC}", _lost()),
        *_metric(
            "clusterlink_refused_messages",
            "counter",
            "Messages in Redis that were refused: not signed by this installation, altered, or copied to another queue or key.",
            _refused(),
        ),
        *(family for described in silence_samples(mirrors, now=now) for family in _metric(*described)),
        *(family for described in health_samples(mirrors, now=now) for family in _metric(*described)),
        *(family for samples in _OTHERS for described in samples() for family in _metric(*described)),
    ]


def _by_state(rows: QuerySet[ClusterLink] | QuerySet[MirrorTopic], states: Iterable[str]) -> list[Sample]:
    counts = dict(rows.order_by().values_list("state").annotate(n=Count("pk")))
    return [({"state": str(state)}, counts.get(str(state), 0)) for state in states]


def _partition_metrics(mirrors: Sequence[CurrentMirror], now: datetime) -> list[Metric]:
    topics = [(mirror, figures_of(mirror.partitions, now=now)) for mirror in mirrors]
    links = _by_link((mirror, total) for mirror, total in topics if mirror.state != MirrorState.STOPPED)
    # A known lag above 0 is exported also while others are unknown, so that it can alert; 0 only if all lags are known.
    lags = [
        (place, total.max_lag or 0)
        for place, total in links
        if total.partitions > total.unknown_lags and (total.max_lag or not total.unknown_lags)
    ]
    ages = [(place, age) for place, total in links if (age := _age_s(total, now)) is not None]
    held = [(place, total.held) for place, total in links if not total.held_unknown]
    sizes = [(place, size) for place, total in links if (size := total.lag_bytes) is not None]
    rates = [(place, total.bytes_per_s) for place, total in links if total.bytes_per_s is not None]
    return [
        *_metric(
            "clusterlink_max_lag_messages",
            "gauge",
            "Largest known lag of a partition; no sample while it is 0 and any lag is unknown.",
            lags,
        ),
        *_metric(
            "clusterlink_held_back_offsets",
            "gauge",
            "Offsets behind open transactions on the source, not part of the lag; no sample while any partition is unknown.",
            held,
        ),
        *_metric(
            "clusterlink_lag_bytes",
            "gauge",
            "Lag in bytes, estimated from the sizes of copied records; no sample while it is unknown.",
            sizes,
        ),
        *_metric(
            "clusterlink_max_lag_seconds",
            "gauge",
            "Largest known age of missing records: the RPO of a failover now.",
            ages,
        ),
        *_metric(
            "clusterlink_unknown_age_partitions",
            "gauge",
            "Partitions that lack records of unknown age, as during a first copy.",
            [(place, total.unknown_time_lags) for place, total in links],
        ),
        *_metric(
            "clusterlink_unknown_lag_partitions",
            "gauge",
            "Partitions whose lag is unknown, for example while the source is unavailable.",
            [(place, total.unknown_lags) for place, total in links],
        ),
        *_metric("clusterlink_bytes_per_second", "gauge", "Current copy rate; no sample while it is unknown.", rates),
        *_topic_metrics([(mirror, total) for mirror, total in topics if mirror.partitions], now),
    ]


def _by_link(topics: Iterable[tuple[CurrentMirror, Figures]]) -> list[tuple[dict[str, str], Figures]]:
    found: dict[tuple[str, str], Figures] = defaultdict(Figures)
    for mirror, total in topics:
        link = found[mirror.cluster_id, mirror.link]
        if mirror.partitions:
            link.add(total)
        else:
            link.add_unseen(1)
    return [({"cluster": cluster, "link": link}, total) for (cluster, link), total in found.items()]


def _topic_metrics(topics: Sequence[tuple[CurrentMirror, Figures]], now: datetime) -> list[Metric]:
    """Return the lag of each mirror topic. A topic of which any partition's value is unknown has no sample of that value."""
    measured = [(mirror, total) for mirror, total in topics if mirror.state != MirrorState.STOPPED]
    messages = [(_of_topic(mirror), total.total_lag) for mirror, total in measured if not total.unknown_lags]
    ages = [
        (_of_topic(mirror), age)
        for mirror, total in measured
        if not total.unknown_time_lags and (age := _age_s(total, now)) is not None
    ]
    text = "Messages that a mirror topic lags behind its source; no sample while the lag of one of its partitions is unknown."
    age_text = "Age of the oldest record that a mirror topic lacks; no sample while that of one of its partitions is unknown."
    copied_bytes = [(_of_topic(mirror), total.bytes_copied) for mirror, total in topics]
    records = [(_of_topic(mirror), total.records_copied) for mirror, total in topics]
    return [
        *_metric("clusterlink_copied_bytes", "counter", f"Bytes copied, {_PER_TOPIC}", copied_bytes),
        *_metric("clusterlink_copied_records", "counter", f"Records copied, {_PER_TOPIC}", records),
        *_metric("clusterlink_mirror_lag_messages", "gauge", text, messages),
        *_metric("clusterlink_mirror_lag_seconds", "gauge", age_text, ages),
    ]


def _of_topic(mirror: CurrentMirror) -> dict[str, str]:
    return {"cluster": mirror.cluster_id, "link": mirror.link, "topic": mirror.name}


def _age_s(figures: Figures, now: datetime) -> float | None:
    """Return the largest known age of missing records in seconds, 0 if none are missing; None if no age is known."""
    if not figures.lacking_partitions:
        return 0.0
    since = figures.behind_since
    return None if since is None else max(0.0, (now - since).total_seconds())


def _recovery_times() -> list[Sample]:
    """Return the RTO of the newest failover of each link; reports of deleted links do not count."""
    failovers = StopReport.objects.filter(drill=None, link__isnull=False, reason=StopReason.FAILOVER)
    rows = failovers.order_by("-writable_at", "-pk").values_list("destination_cluster_id", "link_name", "rto_ms")
    newest: dict[tuple[str, str], Sample] = {}
    for cluster, link, rto_ms in rows[:_REPORTS]:
        newest.setdefault((cluster, link), ({"cluster": cluster, "link": link}, rto_ms / 1000))
    return list(newest.values())


def _lost() -> list[Sample]:
    """Return the lost offsets of each mirror topic, also if 0: Prometheus sees an increase only from an earlier sample."""
    lost = Sum("gaps__filled", filter=Q(gaps__reason=GapReason.LOST))
    named = MirrorTopic.objects.listed().order_by().annotate(lost=lost)
    rows = named.values_list("link__destination__cluster_id", "link__name", "name", "lost")
    return [({"cluster": cluster, "link": link, "topic": topic}, count or 0) for cluster, link, topic, count in rows]


def _refused() -> list[Sample]:
    try:
        found = transport.refused_counts()
    except redis.RedisError:
        return []
    return [({"kind": kind}, found.get(kind, 0)) for kind in _REFUSED_KINDS]


def _metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[Metric]:
    family = Metric(name, text, kind)
    suffix = "_total" if kind == "counter" else ""
    for labels, value in samples:
        family.add_sample(name + suffix, labels, value)
    yield family

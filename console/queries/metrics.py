"""Metrics for Prometheus. The ``*_samples`` functions return plain tuples; prometheus_client writes the text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import redis
from django.db import DatabaseError
from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.utils import timezone
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from console import requestmetrics, store
from console.models import ClusterLink, MirrorPartition, MirrorTopic, StopReport
from console.models.mirrors import incomplete, measured_rates, unknown_ages, unknown_lags
from console.queries.acls import acl_samples
from console.queries.alarms import alarm_samples, silence_samples
from console.queries.groups import group_samples
from console.queries.health import health_samples
from console.queries.lagbytes import lag_bytes, lag_bytes_columns
from console.queries.rounds import round_samples
from console.queries.scheduled import schedule_samples
from console.queries.taskmetrics import task_samples
from console.queries.unseen import UNSEEN, with_unseen
from console.queries.verifymetrics import verify_samples
from console.queries.workers import worker_samples
from linkengine.domain.states import GapReason, LinkState, MirrorState, StopReason

_LABELS = {"link": F("mirror__link__name"), "cluster": F("mirror__link__destination__cluster_id")}
_REPORTS = 1000  # failovers looked through for the newest of each link
_OTHERS = (
    task_samples,
    group_samples,
    acl_samples,
    verify_samples,
    round_samples,
    schedule_samples,
    alarm_samples,
    silence_samples,
    health_samples,
    worker_samples,
)
# A sum of a link would fall when one of its mirrors is deleted, and what is left would be taken for a new start and new loss.
_PER_TOPIC = "of each mirror topic."
_REFUSED_KINDS = ("task", "change", "reply", "report", "loss")
Sample = tuple[dict[str, str], float]
QUEUES = ("control", "spark")


class _Families:
    """What ``generate_latest`` needs of a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def prometheus_text() -> str:
    """Return all metrics: some twenty queries and a few requests to Redis.

    While the database is away its metrics are left out; those of this process and of the queue are still useful then.
    """
    try:
        stored, database_up = _stored(), 1
    except DatabaseError:
        stored, database_up = [], 0
    text = "1 if the database answered this scrape. If 0, every metric that comes from the database is left out."
    up = _metric("clusterlink_database_up", "gauge", text, [({}, database_up)])
    families = [*stored, *up, *_queue_depths()]
    return (generate_latest(_Families(families)) + requestmetrics.exposition()).decode()


def _queue_depths() -> list[Metric]:
    """Return how many messages wait in each queue; no sample while Redis does not answer."""
    pipeline = store.client().pipeline(transaction=False)
    for queue in QUEUES:
        pipeline.llen(queue)
    try:
        depths: list[Sample] = [({"queue": queue}, depth) for queue, depth in zip(QUEUES, pipeline.execute(), strict=True)]
    except redis.RedisError:
        depths = []
    return list(_metric("clusterlink_queue_messages", "gauge", "Messages that wait in Redis for a thread of a worker.", depths))


def _stored() -> list[Metric]:
    """Return the metrics that need the database."""
    return [
        *_metric("clusterlink_links", "gauge", "Cluster links by state.", _by_state(ClusterLink.objects.all(), LinkState)),
        *_metric(
            "clusterlink_mirror_topics",
            "gauge",
            "Mirror topics by state.",
            _by_state(MirrorTopic.objects.filter(drill=None), MirrorState),
        ),
        *_partition_metrics(),
        *_metric("clusterlink_last_failover_seconds", "gauge", "RTO of the last failover, as measured.", _recovery_times()),
        *_metric("clusterlink_lost_records", "counter", f"Offsets lost to retention on the source; {_PER_TOPIC}", _lost()),
        *_metric(
            "clusterlink_refused_messages",
            "counter",
            "Messages in Redis that were refused: not signed by this installation, altered, or sent to another place.",
            _refused(),
        ),
        *_topic_lags(),
        *(family for samples in _OTHERS for described in samples() for family in _metric(*described)),
    ]


def _by_state(rows: QuerySet[ClusterLink] | QuerySet[MirrorTopic], states: Iterable[str]) -> list[Sample]:
    counts = dict(rows.order_by().values_list("state").annotate(n=Count("pk")))
    return [({"state": str(state)}, counts.get(str(state), 0)) for state in states]


def _partition_metrics() -> list[Metric]:
    rows, totals = _lags(), _copied()
    # a lag above 0 alarms also while others are unknown; 0 is only claimed where all are known
    lags = [(_of(row), row["largest"] or 0) for row in rows if row.get("known") and (row["largest"] or not row["hidden"])]
    ages = [(_of(row), age) for row in rows if (age := _age_s(row)) is not None]
    held = [(_of(row), row["held"] or 0) for row in rows if not row["held_unknown"]]
    sizes = [(_of(row), size) for row in rows if (size := lag_bytes(row)) is not None]
    rates = [(_of(row), row["rate"]) for row in rows if row.get("rate") is not None]
    return [
        *_metric(
            "clusterlink_max_lag_messages",
            "gauge",
            "Largest known lag of a partition; no sample while it is 0 and one is unknown.",
            lags,
        ),
        *_metric(
            "clusterlink_held_back_offsets",
            "gauge",
            "Offsets behind open transactions on the source, not part of the lag; no sample while one is unknown.",
            held,
        ),
        *_metric("clusterlink_lag_bytes", "gauge", "Lag, estimated from sizes so far; no sample while unknown.", sizes),
        *_metric(
            "clusterlink_max_lag_seconds",
            "gauge",
            "Largest known age of what is missing: the RPO a failover would have now.",
            ages,
        ),
        *_metric(
            "clusterlink_unknown_age_partitions",
            "gauge",
            "Partitions that lack something whose age nobody knows, as in a first copy.",
            [(_of(row), row["never"]) for row in rows],
        ),
        *_metric(
            "clusterlink_unknown_lag_partitions",
            "gauge",
            "Partitions whose lag nobody knows, for example while the source does not answer.",
            [(_of(row), row["hidden"]) for row in rows],
        ),
        *_metric("clusterlink_bytes_per_second", "gauge", "Copied at present; no sample while unknown.", rates),
        *_metric("clusterlink_copied_bytes", "counter", f"Copied so far; {_PER_TOPIC}", _each(totals, "copied")),
        *_metric("clusterlink_copied_records", "counter", f"Copied so far; {_PER_TOPIC}", _each(totals, "records")),
    ]


def _lags() -> list[dict[str, Any]]:
    now = timezone.now()
    hidden = unknown_lags(now)
    behind = Q(source_end__gt=F("mirror_end")) & ~hidden
    measured = MirrorPartition.objects.filter(mirror__drill=None).exclude(mirror__state=MirrorState.STOPPED).order_by()
    found = measured.values(**_LABELS).annotate(
        largest=Max(F("source_end") - F("mirror_end"), filter=behind),
        since=Min("caught_up_at", filter=incomplete(now) & ~unknown_ages(now)),
        hidden=Count("pk", filter=hidden),
        known=Count("pk", filter=~hidden),
        lacking=Count("pk", filter=incomplete(now)),
        held=Sum(F("last_high_watermark") - F("source_end"), filter=Q(last_high_watermark__gt=F("source_end")) & ~hidden),
        held_unknown=Count("pk", filter=hidden | Q(last_high_watermark=None)),
        never=Count("pk", filter=incomplete(now) & unknown_ages(now)),
        rate=Sum("bytes_per_s", filter=measured_rates(now)),
        **lag_bytes_columns(now),
    )
    rows = {(row["cluster"], row["link"]): row for row in map(dict[str, Any], found)}
    places = MirrorTopic.objects.filter(UNSEEN, drill=None).order_by()
    unseen = Counter(places.values_list("link__destination__cluster_id", "link__name"))
    return [
        with_unseen(rows.get(place, {"cluster": place[0], "link": place[1]}), unseen[place]) for place in {**rows, **unseen}
    ]


def _topic_lags() -> list[Metric]:
    """Return the lag of each mirror topic. A topic of which any partition's value is unknown has no sample of that value."""
    now = timezone.now()
    hidden = unknown_lags(now)
    measured = MirrorPartition.objects.filter(mirror__drill=None).exclude(mirror__state=MirrorState.STOPPED).order_by()
    rows = measured.values(topic=F("mirror__name"), **_LABELS).annotate(
        behind=Sum(F("source_end") - F("mirror_end"), filter=Q(source_end__gt=F("mirror_end"))),
        hidden=Count("pk", filter=hidden),
        since=Min("caught_up_at", filter=incomplete(now)),
        lacking=Count("pk", filter=incomplete(now)),
        never=Count("pk", filter=incomplete(now) & unknown_ages(now)),
    )
    found: list[Any] = list(rows)
    messages = [(_of_topic(row), row["behind"] or 0) for row in found if not row["hidden"]]
    ages = [(_of_topic(row), age) for row in found if not row["never"] and (age := _age_s(row)) is not None]
    text = "Messages that a mirror topic lags behind its source; no sample while the lag of one of its partitions is unknown."
    age_text = "Age of the oldest record that a mirror topic lacks; no sample while that of one of its partitions is unknown."
    return [
        *_metric("clusterlink_mirror_lag_messages", "gauge", text, messages),
        *_metric("clusterlink_mirror_lag_seconds", "gauge", age_text, ages),
    ]


def _of_topic(row: Mapping[str, object]) -> dict[str, str]:
    return {**_of(row), "topic": str(row["topic"])}


def _age_s(row: Mapping[str, Any]) -> float | None:
    """Answer the age of the oldest record that is known to be missing; None where nobody knows how old any of them is."""
    if not row["lacking"]:
        return 0.0
    since = row.get("since")
    return None if since is None else max(0.0, (timezone.now() - since).total_seconds())


def _copied() -> list[dict[str, Any]]:
    rows = MirrorPartition.objects.filter(mirror__drill=None).order_by().values(topic=F("mirror__name"), **_LABELS)
    return [dict(row) for row in rows.annotate(copied=Sum("bytes_copied"), records=Sum("records_copied"))]


def _each(rows: Iterable[Mapping[str, Any]], column: str) -> list[Sample]:
    return [(_of_topic(row), row[column] or 0) for row in rows]


def _recovery_times() -> list[Sample]:
    failovers = StopReport.objects.filter(mirror__drill=None, reason=StopReason.FAILOVER).order_by("-writable_at", "-pk")
    newest: dict[tuple[str, str], Sample] = {}
    rows: list[Any] = list(failovers.values("rto_ms", **_LABELS)[:_REPORTS])
    for row in rows:
        newest.setdefault((row["cluster"], row["link"]), (_of(row), row["rto_ms"] / 1000))
    return list(newest.values())


def _lost() -> list[Sample]:
    """Answer a 0 where nothing was lost, too: an increase is seen only by who has seen the 0 before."""
    lost = Sum("gaps__filled", filter=Q(gaps__reason=GapReason.LOST))
    named = MirrorTopic.objects.filter(drill=None).order_by().annotate(lost=lost)
    rows = named.values_list("link__destination__cluster_id", "link__name", "name", "lost")
    return [({"cluster": cluster, "link": link, "topic": topic}, count or 0) for cluster, link, topic, count in rows]


def _refused() -> list[Sample]:
    try:
        found = store.refused_counts()
    except redis.RedisError:
        return []
    return [({"kind": kind}, found.get(kind, 0)) for kind in _REFUSED_KINDS]


def _of(row: Mapping[str, object]) -> dict[str, str]:
    return {"cluster": str(row["cluster"]), "link": str(row["link"])}


def _metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[Metric]:
    family = Metric(name, text, kind)
    suffix = "_total" if kind == "counter" else ""
    for labels, value in samples:
        family.add_sample(name + suffix, labels, value)
    yield family

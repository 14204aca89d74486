"""Figures for Prometheus, written in its text format (version 0.0.4) by hand: a dozen lines need no client library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.utils import timezone

from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic
from console.queries.taskmetrics import task_samples
from linkengine.domain.states import GapReason, LinkState, MirrorState

Sample = tuple[dict[str, str], float]


def prometheus_text() -> str:
    """Answer all metrics; six queries."""
    lines = [
        *_metric("clusterlink_links", "gauge", "Cluster links by state.", _by_state(ClusterLink.objects.all(), LinkState)),
        *_metric(
            "clusterlink_mirror_topics", "gauge", "Mirror topics by state.", _by_state(MirrorTopic.objects.all(), MirrorState)
        ),
        *_partition_metrics(),
        *_metric("clusterlink_lost_records", "counter", "Offsets lost to retention on the source.", _lost()),
        *(line for one in task_samples() for line in _metric(*one)),
    ]
    return "\n".join(lines) + "\n"


def _by_state(rows: QuerySet[ClusterLink] | QuerySet[MirrorTopic], states: Iterable[str]) -> list[Sample]:
    counts = dict(rows.order_by().values_list("state").annotate(n=Count("pk")))
    return [({"state": str(state)}, counts.get(str(state), 0)) for state in states]


def _partition_metrics() -> list[str]:
    behind = Q(source_end__gt=F("mirror_end"))
    measured = MirrorPartition.objects.exclude(mirror__state=MirrorState.STOPPED).order_by()
    rows = list(
        measured.values(link=F("mirror__link__name"), cluster=F("mirror__link__destination__cluster_id")).annotate(
            largest=Max(F("source_end") - F("mirror_end"), filter=behind),
            since=Min("caught_up_at", filter=behind),
            rate=Sum("bytes_per_s"),
        )
    )
    copied = MirrorPartition.objects.order_by().values(
        link=F("mirror__link__name"), cluster=F("mirror__link__destination__cluster_id")
    ).annotate(copied=Sum("bytes_copied"), records=Sum("records_copied"))  # fmt: skip
    now = timezone.now()
    ages = [(_of(row), (now - row["since"]).total_seconds() if row["since"] else 0.0) for row in rows]
    totals = list(copied)
    return [
        *_metric(
            "clusterlink_max_lag_messages", "gauge", "Largest lag of a partition.", [(_of(r), r["largest"] or 0) for r in rows]
        ),
        *_metric("clusterlink_max_lag_seconds", "gauge", "Age of the oldest lag.", ages),
        *_metric("clusterlink_bytes_per_second", "gauge", "Copied at present.", [(_of(r), r["rate"] or 0) for r in rows]),
        *_metric("clusterlink_copied_bytes", "counter", "Copied so far.", [(_of(r), r["copied"]) for r in totals]),
        *_metric("clusterlink_copied_records", "counter", "Copied so far.", [(_of(r), r["records"]) for r in totals]),
    ]


def _lost() -> list[Sample]:
    rows = GapRange.objects.filter(reason=GapReason.LOST).order_by()
    sums = rows.values(link=F("mirror__link__name"), cluster=F("mirror__link__destination__cluster_id"))
    return [(_of(row), row["lost"]) for row in sums.annotate(lost=Sum(F("end") - F("start")))]


def _of(row: Mapping[str, object]) -> dict[str, str]:
    return {"cluster": str(row["cluster"]), "link": str(row["link"])}


def _metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    full = f"{name}_total" if kind == "counter" else name
    return [
        f"# HELP {full} {text}",
        f"# TYPE {full} {kind}",
        *(f"{full}{_labels(labels)} {value}" for labels, value in samples),
    ]


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

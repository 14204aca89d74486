"""Prometheus metrics of verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import F, Q, Sum

from console.models import ClusterLink

Sample = tuple[dict[str, str], float]
_RANGES = "mirrors__verified_ranges__"


def verify_samples() -> list[tuple[str, str, str, list[Sample]]]:
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


def _gauge(name: str, text: str, rows: Sequence[Mapping[str, Any]], column: str) -> tuple[str, str, str, list[Sample]]:
    samples = [({"cluster": str(row["cluster"]), "link": str(row["name"])}, row[column] or 0) for row in rows]
    return name, "gauge", text, samples

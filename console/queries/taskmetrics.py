"""Figures of the recurring tasks of links, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from console.models import LinkTask

Sample = tuple[dict[str, str], float]
# name, kind, text, value
_METRICS: tuple[tuple[str, str, str, Callable[[LinkTask], float | None]], ...] = (
    ("clusterlink_task_runs", "counter", "Runs of a recurring task of a link.", lambda row: row.runs),
    ("clusterlink_task_failures", "counter", "Runs that ended with an error.", lambda row: row.failures),
    ("clusterlink_task_changes", "counter", "Things changed by a task.", lambda row: row.changes),
    ("clusterlink_task_errors", "gauge", "Errors of the last run.", lambda row: row.error_count),
    (
        "clusterlink_task_last_success_timestamp_seconds",
        "gauge",
        "When a run last ended without an error.",
        lambda row: row.succeeded_at.timestamp() if row.succeeded_at else None,
    ),
)


def task_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Answer (name, kind, text, samples) of each metric; one query."""
    rows = list(LinkTask.objects.select_related("link__destination"))
    return [(name, kind, text, _samples(rows, value)) for name, kind, text, value in _METRICS]


def _samples(rows: list[LinkTask], value: Callable[[LinkTask], float | None]) -> list[Sample]:
    found = []
    for row in rows:
        number = value(row)
        if number is not None:
            labels = {"cluster": row.link.destination.cluster_id, "link": row.link.name, "task": row.name}
            found.append((labels, number))
    return found

"""Prometheus metrics of the recurring tasks of links."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.models import Exists, OuterRef

from console.models import LinkTask, MirrorTopic
from linkengine.domain.linktasks import TASKS, TaskName, is_configured

Sample = tuple[dict[str, str], float]


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


def task_samples() -> list[tuple[str, str, str, list[Sample]]]:
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

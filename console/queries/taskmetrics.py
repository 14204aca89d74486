"""Figures of the recurring tasks of links, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.models import Exists, OuterRef

from console.models import LinkTask, MirrorTopic
from linkengine.domain.linktasks import TASKS, TaskName, is_configured
from linkengine.domain.states import WRITABLE

Sample = tuple[dict[str, str], float]


def _errors(row: LinkTask) -> int:
    """What a last run left undone is nobody's concern once the task is switched off, or the link has nothing to mirror."""
    unstopped = row.unstopped  # type: ignore[attr-defined]  # annotated below
    on = is_configured(TASKS[TaskName(row.name)], value_of=row.link.config, mirrors=unstopped)
    return row.error_count if on else 0


# name, kind, text, value
_METRICS: tuple[tuple[str, str, str, Callable[[LinkTask], float | None]], ...] = (
    ("clusterlink_task_runs", "counter", "Runs of a recurring task of a link.", lambda row: row.runs),
    ("clusterlink_task_failures", "counter", "Runs that ended with an error.", lambda row: row.failures),
    ("clusterlink_task_changes", "counter", "Things changed by a task.", lambda row: row.changes),
    ("clusterlink_task_errors", "gauge", "Errors of the last run; 0 where there is nothing to do any more.", _errors),
    (
        "clusterlink_task_last_success_timestamp_seconds",
        "gauge",
        "When a run last ended without an error.",
        lambda row: row.succeeded_at.timestamp() if row.succeeded_at else None,
    ),
)


def task_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Answer (name, kind, text, samples) of each metric; two queries."""
    unstopped = Exists(MirrorTopic.objects.filter(link=OuterRef("link")).exclude(state__in=WRITABLE))
    tasks = LinkTask.objects.select_related("link__destination").prefetch_related("link__configs")
    rows = list(tasks.annotate(unstopped=unstopped))
    return [(name, kind, text, _samples(rows, value)) for name, kind, text, value in _METRICS]


def _samples(rows: Sequence[LinkTask], value: Callable[[LinkTask], float | None]) -> list[Sample]:
    found = []
    for row in rows:
        number = value(row)
        if number is not None:
            labels = {"cluster": row.link.destination.cluster_id, "link": row.link.name, "task": row.name}
            found.append((labels, number))
    return found

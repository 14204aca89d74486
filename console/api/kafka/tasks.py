"""Renders the tasks of a link for ``include_tasks``: the four tasks of Confluent's interface and two of this product."""

from __future__ import annotations

from typing import Any

from console.models import ClusterLink
from console.queries.linktasks import TaskView, list_tasks

Json = dict[str, Any]


def link_tasks(link: ClusterLink) -> list[Json]:
    """Return an object per task."""
    return [_task(task) for task in list_tasks(link=link)]


def _task(task: TaskView) -> Json:
    errors = [{"error_code": error.code, "error_message": error.message} for error in task.errors]
    return {"task_name": task.name, "state": task.state, "errors": errors}

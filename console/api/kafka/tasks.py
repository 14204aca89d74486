"""Writes what a link's tasks are doing, for ``include_tasks``: the interface's own four and our two."""

from __future__ import annotations

from typing import Any

from console.models import ClusterLink
from console.queries.linktasks import TaskView, list_tasks

Json = dict[str, Any]


def link_tasks(link: ClusterLink) -> list[Json]:
    """Answer one row per task."""
    return [_task(one) for one in list_tasks(link=link)]


def _task(one: TaskView) -> Json:
    errors = [{"error_code": error.code, "error_message": error.message} for error in one.errors]
    return {"task_name": one.name, "state": one.state, "errors": errors}

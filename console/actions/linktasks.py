"""Runs a recurring task of a link immediately instead of at its next scheduled time."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import ConflictError, NotFoundError
from console.mirrors.rules import state_of_task, why_not_run
from console.models import ClusterLink, LinkTask
from console.queue import dispatch
from linkengine.domain.linktasks import TaskName


def run_task(*, link: ClusterLink, name: str, by: Actor, now: datetime) -> LinkTask:
    """Request an immediate run of a task; if a run is in progress, another run follows it.

    Raises NotFoundError for an unknown task and ConflictError if the task cannot run, for example because it is switched off.
    """
    check_permission(by, Permission.MANAGE_LINK, link=link)
    task_name = _task_name(name)
    row = LinkTask.objects.filter(link=link, name=task_name).first()
    mirrors = link.mirrors.unstopped().exists()
    reason = why_not_run(link, task_name, state=state_of_task(link, task_name, row=row, mirrors=mirrors))
    if reason:
        raise ConflictError(reason, code="TASK_NOT_POSSIBLE")
    with transaction.atomic():
        row, _ = LinkTask.objects.update_or_create(
            link=link, name=task_name, defaults={"requested_at": now, "requested_by": by.name}
        )
        audit.record(by=by, action="RunLinkTask", resource=audit.path_of(link), now=now, detail={"task": task_name})
    dispatch.send("run_link_task", link_id=link.pk, task=task_name)
    return row


def _task_name(name: str) -> TaskName:
    if name not in set(TaskName):
        raise NotFoundError(f"Cluster links have no task '{name}'. Use one of {', '.join(TaskName)}.", code="UNKNOWN_TASK")
    return TaskName(name)

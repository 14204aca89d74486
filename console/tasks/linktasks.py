"""The recurring tasks of a link: a single Celery task runs all of them, by the table ``SYNCS``.

A sync is a function that takes the link and returns a ``TaskOutcome``. It does a bounded part of its work, raises
LinkEngineError if nothing could be done at all, and is safe to repeat. A new sync needs an entry here and one in
``linkengine.domain.linktasks.TASKS``; scheduling, mutual exclusion, rows, REST, pages and metrics are generic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import structlog
from celery import shared_task
from django.utils import timezone

from console.models import ClusterLink
from console.queue import dispatch
from console.reconciling import linktasks, plans, promote_backoff
from console.redis import locks
from console.tasks import acls, autocreate, groups, topicconfigs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskError, TaskName, TaskOutcome

Sync = Callable[[ClusterLink], TaskOutcome]
SYNCS: Mapping[TaskName, Sync] = MappingProxyType(
    {
        TaskName.ACLS: acls.follow_acls,
        TaskName.AUTO_CREATE: autocreate.create_mirrors,
        TaskName.CONSUMER_OFFSETS: groups.follow_groups,
        TaskName.TOPIC_CONFIGS: topicconfigs.follow_topics,
    }
)
_log = structlog.get_logger(__name__)


@shared_task(name="run_link_task")
def run_link_task(*, link_id: int, task: str, **_: Any) -> None:
    """Run a recurring task of a link if it is due; never twice at once."""
    name = TaskName(task)
    with locks.lock(f"linktask:{link_id}:{name}") as acquired:
        link = plans.load_link(link_id) if acquired and name in SYNCS else None
        if link is None:
            return
        mirrors = link.mirrors.unstopped().exists()
        row = linktasks.begin(link=link, name=name, mirrors=mirrors, now=timezone.now())
        if row is not None:
            outcome = _outcome(name, link)
            linktasks.finish(row=row, outcome=outcome, now=timezone.now())
            if promote_backoff.wake_after(link=link, task=name, outcome=outcome):
                dispatch.send("reconcile_link", link_id=link_id)


def _outcome(name: TaskName, link: ClusterLink) -> TaskOutcome:
    try:
        return SYNCS[name](link)
    except LinkEngineError as error:
        _log.info("link_task.failed", task=name, link=link.name, code=error.code)
        return TaskOutcome(errors=(TaskError(code=error.code, message=error.message),))
    except Exception:  # noqa: BLE001 - logged with traceback, shown on the link, retried
        _log.exception("link_task.failed", task=name, link=link.name)
        message = f"{name} failed unexpectedly; the worker's log has the details. It is retried automatically."
        return TaskOutcome(errors=(TaskError(code=ErrorCode.INTERNAL_ERROR, message=message),))

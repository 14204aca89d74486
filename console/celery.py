"""The Celery app: queues, limits and beat.

Tasks are in ``console.tasks``; other modules send them through ``console.queue.dispatch``.

Threads, not processes: tasks wait for Kafka, Spark and the database, and a copy worker occupies a thread for hours. Tasks are
idempotent and acknowledged late. A task that is lost in a crash is not recovered from the queue: the reconciler sends it
again.
"""

from __future__ import annotations

import os
from typing import Any

import structlog
from celery import Celery
from celery.signals import setup_logging, task_postrun, task_prerun
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "console.queue.transport:Transport")
TRANSPORT_ALIASES |= {"sentinel": "console.queue.transport:SentinelTransport"}
app = Celery("console")
app.config_from_object("console.queue.settings")
app.autodiscover_tasks(["console"])


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Prevent Celery from replacing the handlers of ``console.config.logging``."""


@task_prerun.connect
def _bind_ids(task: Any, task_id: str, **_: Any) -> None:
    """Bind the ids of the request and of the task to the log lines of this thread, and to the messages that the task sends.

    A task without a request, such as those of beat, uses its own id as the request id.
    """
    structlog.contextvars.clear_contextvars()
    request_id = task.request.get("request_id") or task_id
    structlog.contextvars.bind_contextvars(request_id=request_id, task=task.name, task_id=task_id)


@task_postrun.connect
def _forget_ids(**_: Any) -> None:
    structlog.contextvars.clear_contextvars()

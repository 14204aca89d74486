"""The Celery app: queues, bounds and the beat. Tasks live in ``console.tasks``; others reach them through ``console.dispatch``.

Threads, not processes: tasks wait for Kafka, Spark and the database, and a copy worker keeps a thread for hours. Tasks are
idempotent and acknowledged late; one that a dying worker loses is not waited for: the reconciler sends it again.
"""

from __future__ import annotations

import os
from typing import Any

import structlog
from celery import Celery
from celery.signals import setup_logging, task_postrun, task_prerun
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "console.redisqueue:Transport")
TRANSPORT_ALIASES |= {"sentinel": "console.redisqueue:SentinelTransport"}
app = Celery("console")
app.config_from_object("console.celeryconfig")
app.autodiscover_tasks(["console"])


@setup_logging.connect
def _keep_our_logging(**_: Any) -> None:
    """Keep Celery from replacing the handlers of ``console.logs``."""


@task_prerun.connect
def _bind_ids(task: Any, task_id: str, **_: Any) -> None:
    """Put the ids of the request and of the task on the log lines of this thread, and on what the task sends.

    A task that no request asked for, such as those of beat, begins a chain of its own: its id is the request's id.
    """
    structlog.contextvars.clear_contextvars()
    request_id = task.request.get("request_id") or task_id
    structlog.contextvars.bind_contextvars(request_id=request_id, task=task.name, task_id=task_id)


@task_postrun.connect
def _forget_ids(**_: Any) -> None:
    structlog.contextvars.clear_contextvars()

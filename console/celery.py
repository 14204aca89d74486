"""The Celery app. Its settings are those of Django whose name begins with ``CELERY_`` (``console.settings``).

Tasks are in ``console.tasks``; other modules send them through ``console.queue.dispatch``.

Threads, not processes: tasks wait for Kafka, Spark and the database, and a copy worker occupies a thread for hours. Tasks are
idempotent and acknowledged late. A task that is lost in a crash is not recovered from the queue: the reconciler sends it
again.

A copy worker or a verification run occupies a thread for hours. Some threads stay free for all other tasks, since a failover
must not wait (``for_long``). If no thread is left for long work, the message is acknowledged and nothing is done: it is sent
again later, perhaps to another worker, as if it had been lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import Any

import structlog
from celery import Celery
from celery.signals import celeryd_after_setup, setup_logging, task_postrun, task_prerun
from kombu.transport import TRANSPORT_ALIASES

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "console.queue.transport:Transport")
TRANSPORT_ALIASES |= {"sentinel": "console.queue.transport:SentinelTransport"}
app = Celery("console")
app.config_from_object("django.conf:settings", namespace="CELERY")  # read when the app is first used
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


# --- threads for long work --------------------------------------------------------------------------------------------


MOST_KEPT = 16  # for all other tasks
_free: BoundedSemaphore | None = None  # None: this process is not a Celery worker


def threads_for_long(threads: int) -> int:
    """Return how many of a worker's threads may do long work."""
    return threads - min(MOST_KEPT, threads // 4)


@contextmanager
def for_long() -> Iterator[bool]:
    """Take a thread for long work inside the block; yields whether a thread was free. Do nothing if not."""
    free = _free
    acquired = free is None or free.acquire(blocking=False)
    try:
        yield acquired
    finally:
        if free is not None and acquired:
            free.release()


@celeryd_after_setup.connect
def _measure(instance: Any, **_: Any) -> None:
    """Count the worker's threads. A worker that consumes only the queue of long work needs to keep none free."""
    global _free  # noqa: PLW0603 - a process is one worker
    others = set(instance.app.amqp.queues.consume_from) - {"spark"}
    _free = BoundedSemaphore(threads_for_long(instance.concurrency) if others else instance.concurrency)

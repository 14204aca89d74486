"""Runs copy workers in a limited number of threads; sends the result of a task to a waiting caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import BoundedSemaphore, Thread
from typing import Any

import structlog
from celery import shared_task
from celery.signals import celeryd_after_setup, worker_ready, worker_shutting_down
from django.db import DatabaseError, InterfaceError

from console.http import errors as http_errors
from console.redis import heartbeats as redis_health
from console.redis import locks, replies
from console.workflows import pool
from linkengine.domain.errors import ErrorCode, LinkEngineError

# --- copy workers -----------------------------------------------------------------------------------------------------
#
# A copy worker or a verification run occupies a thread for hours. Some threads stay free for all other tasks, since a failover
# must not wait. If no thread is left for long work, the message is acknowledged and nothing is done: it is sent again later,
# perhaps to another worker, as if it had been lost.


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


@worker_ready.connect
def _warm_up(**_: Any) -> None:
    """Open the Spark session at startup."""
    Thread(target=pool.open_session, name="warm-up", daemon=True).start()


@worker_shutting_down.connect
def _free_threads(**_: Any) -> None:
    """Stop waiting for copy workers."""
    pool.stop_waiting()


@shared_task(name="run_copy_worker", acks_late=False)
def run_copy_worker(*, number: int, **_: Any) -> None:
    """Submit a copy worker to Spark and wait until it has ended. A lock excludes other threads for the same number."""
    with for_long() as has_thread, locks.lock(pool.lock_name(number)) as acquired:
        if has_thread and acquired:
            pool.run_worker(number)


# --- tasks with a caller that waits -----------------------------------------------------------------------------------
#
# Their result, or the engine's error, is sent under the name that the caller gave.


_log = structlog.get_logger(__name__)


def replying(work: Callable[..., Any]) -> Callable[..., None]:
    """Decorate a task so that it replies with the result of ``work`` (JSON), or with the LinkEngineError it raises.

    Of any other exception the caller gets INTERNAL_ERROR without details.
    """

    @wraps(work)
    def run(*, reply_to: str, **kwargs: Any) -> None:
        redis_health.note_worker()
        replies.send_reply(reply_to, _outcome(work, kwargs))

    return run


def _outcome(work: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": work(**kwargs)}
    except LinkEngineError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except (DatabaseError, InterfaceError) as error:
        outage = http_errors.outage_of(error)
        if outage is None:
            return _bug(work)
        _log.warning("database.unavailable", outage=outage, task=work.__name__)
        return {"unavailable": f"For the worker: {http_errors.sentence(outage)}"}
    except Exception:  # noqa: BLE001 - logged with traceback; the caller gets an error in any case
        return _bug(work)


def _bug(work: Callable[..., Any]) -> dict[str, Any]:
    _log.exception("task.failed", task=work.__name__)
    message = "The engine failed unexpectedly; the worker's log has the details. Please report it."
    return {"error": {"code": ErrorCode.INTERNAL_ERROR, "message": message}}

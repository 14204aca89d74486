"""The copy slice: one thread of the worker waits for one Spark job."""

from __future__ import annotations

from datetime import datetime
from threading import Event, Thread
from typing import Any

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.db import connection
from django.utils import timezone

from console import dispatch, store
from console.models import CopySlice
from console.reconciling import plans, slicing
from console.tasks import endings, threads
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.sparkclient import SparkUnavailableError, session

_log = structlog.get_logger(__name__)
_waiting: set[str] = set()  # slices this process waits for
_shutting_down = Event()


@worker_ready.connect
def _warm_up(**_: Any) -> None:
    """Load PySpark and open the session while nobody waits: it takes seconds, which the first mirror would have to wait."""
    Thread(target=_open_session, name="warm-up", daemon=True).start()


@worker_shutting_down.connect
def _free_threads(**_: Any) -> None:
    """Let an orderly shutdown not wait for slices. Their tasks copy on in Spark, and the next worker sees that they do."""
    _shutting_down.set()
    Thread(target=_interrupt_all, name="interrupt-slices", daemon=True).start()


@shared_task(name="run_slice")
def run_slice(*, slice_id: str, **_: Any) -> None:
    """Run a slice of the registry once; what came of it is noted and the next round begins at once."""
    with threads.for_long() as room:
        link_id = _take(slice_id) if room else None
    if link_id is not None:
        dispatch.send("reconcile_link", link_id=link_id)


def _take(slice_id: str) -> int | None:
    """Wait for a slice that nobody has; answer whose it was, None where nothing came of it."""
    with store.hold(slicing.hold_of(slice_id)) as ours:  # before it is taken: who took it and holds it no more has died
        row = slicing.take(slice_id=slice_id, now=timezone.now()) if ours else None
        if row is None:
            return None
        _waiting.add(slice_id)
        try:
            error = _run(row, now=timezone.now())
        finally:
            _waiting.discard(slice_id)
        if _shutting_down.is_set():
            return None
        slicing.note_finished(row=row, error=error, now=timezone.now())
    return row.link_id


def _run(row: CopySlice, *, now: datetime) -> str:
    try:
        mirrors = list(row.link.mirrors.all())
        for mirror in mirrors:
            mirror.link = row.link
        left_ms = int((row.ends_at - now).total_seconds() * 1000)
        plan = plans.copy_plan(row, mirrors=mirrors, slice_ms=min(left_ms, plans.TUNING.slice_ms))  # a clock may be set back
        connection.close()  # a minute is too long to keep one for nothing
        endings.keep(row, jobs.copy_slice(plan, spark_url=settings.SPARK_URL))
    except (SparkUnavailableError, LinkEngineError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - nobody foresaw it: logged in full, shown on the link, tried again
        if _shutting_down.is_set():
            return ""
        _log.exception("slice.failed", slice_id=row.slice_id, link=row.link.name)
        return f"The copy job failed unexpectedly ({type(error).__name__}); the worker's log has the details."
    return ""


def _interrupt_all() -> None:
    for slice_id in tuple(_waiting):
        try:
            jobs.interrupt_slice(slice_id, spark_url=settings.SPARK_URL)
        except SparkUnavailableError as error:  # then nobody waits for it any more
            _log.info("slice.not_interrupted", slice_id=slice_id, error=str(error))


def _open_session() -> None:
    try:
        session(settings.SPARK_URL)
    except SparkUnavailableError as error:  # the first slice says so where people see it
        _log.warning("spark.not_there_yet", error=str(error))

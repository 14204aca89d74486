"""The copy slice: one thread of the worker waits for one Spark job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.db import connection
from django.utils import timezone

from console.dispatch import send
from console.models import CopySlice
from console.reconciling import plans, slicing
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.sparkclient import SparkUnavailableError

_log = structlog.get_logger(__name__)


@shared_task(name="run_slice")
def run_slice(*, slice_id: str, **_: Any) -> None:
    """Run a slice of the registry once; what came of it is noted and the next round begins at once."""
    row = slicing.take(slice_id=slice_id, now=timezone.now())
    if row is None:
        return
    error = _run(row, now=timezone.now())
    slicing.note_finished(row=row, error=error, now=timezone.now())
    send("reconcile_link", link_id=row.link_id)


def _run(row: CopySlice, *, now: datetime) -> str:
    try:
        mirrors = list(row.link.mirrors.all())
        for mirror in mirrors:
            mirror.link = row.link
        plan = plans.copy_plan(row, mirrors=mirrors, slice_ms=int((row.ends_at - now).total_seconds() * 1000))
        connection.close()  # a minute is too long to keep one for nothing
        jobs.copy_slice(plan, spark_url=settings.SPARK_URL)
    except (SparkUnavailableError, LinkEngineError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - nobody foresaw it: logged in full, shown on the link, tried again
        _log.exception("slice.failed", slice_id=row.slice_id, link=row.link.name)
        return f"The copy job failed unexpectedly ({type(error).__name__}); the worker's log has the details."
    return ""

"""The verify job: the independent witness compares a mirror with its source."""

from __future__ import annotations

from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.actions import verification
from console.models import VerifyRun
from console.reconciling import plans
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.sparkclient import SparkUnavailableError

_log = structlog.get_logger(__name__)


@shared_task(name="verify_mirror")
def verify_mirror(*, run_id: int, **_: Any) -> None:
    """Do a queued comparison; one that is taken already is somebody else's."""
    runs = VerifyRun.objects.select_related("mirror__link__destination", "mirror__link__source")
    run = runs.filter(pk=run_id).first()
    if run is None or not verification.mark_started(run=run, now=timezone.now()):
        return
    run.refresh_from_db(fields=["status", "started_at"])
    try:
        report = jobs.verify(plans.verify_of(run.mirror), spark_url=settings.SPARK_URL, tag=f"verify-{run.pk}")
    except (LinkEngineError, SparkUnavailableError) as error:
        verification.record_failure(run=run, message=getattr(error, "message", str(error)), now=timezone.now())
    except Exception:
        _log.exception("verify.failed", run=run.pk)
        message = "The comparison failed unexpectedly; the worker's log has the details."
        verification.record_failure(run=run, message=message, now=timezone.now())
        raise
    else:
        verification.record_result(run=run, report=report, now=timezone.now())

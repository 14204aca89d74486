"""Compares mirrors with their sources by the verify job, in Spark SQL and without code of the copy.

Either for a run that a user has requested, or continuously, a single range that is not verified yet at a time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.actions import verification
from console.mirrors import progress
from console.models import MirrorTopic, VerifyRun
from console.queries.verification import WATCHED
from console.queries.verification import coverage as coverage_of
from console.reconciling import coverage, plans, watching
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import VerifyReport
from linkengine.sparkclient import SparkUnavailableError

TIMEOUT_S = 600.0  # of continuous verification, per range; other mirrors wait
OVERTAKEN = (
    "The mirror lost offsets, missed tombstones, was created anew or moved to another source while it was compared. Start the "
    "verification again."
)
_log = structlog.get_logger(__name__)


def compare(run: VerifyRun) -> None:
    """Compare a mirror with its source for a run that has started, and store the result."""
    try:
        report = jobs.verify(plans.verify_of(run.mirror), spark_url=settings.SPARK_URL, tag=f"verify-{run.pk}")
    except (LinkEngineError, SparkUnavailableError) as error:
        verification.record_failure(run=run, message=getattr(error, "message", str(error)), now=timezone.now())
    except Exception:
        _log.exception("verify.failed", run=run.pk)
        message = "The verification failed unexpectedly; the worker's log has the details."
        verification.record_failure(run=run, message=message, now=timezone.now())
        raise
    else:
        _keep(run, report, now=timezone.now())


def _keep(run: VerifyRun, report: VerifyReport, *, now: datetime) -> None:
    """Store result and ledger in the same transaction: DIFFERENT without an alarm, or EQUAL without ranges, would mislead."""
    with transaction.atomic():
        counts = coverage.note_report(mirror=run.mirror, report=report, run=run, now=now)
        if counts or report.differences:
            verification.record_result(run=run, report=report, now=now)
        else:
            verification.record_failure(run=run, message=OVERTAKEN, now=now)


def compare_next(mirror: MirrorTopic) -> None:
    """Compare the next range of a mirror, unless all are verified, and store that."""
    started_at = timezone.now()
    error = "" if _is_covered(mirror) else _compare_next(mirror)
    watching.note_attempt(mirror=mirror, started_at=started_at, now=timezone.now(), error=error)


def load_watched(mirror_id: int) -> MirrorTopic | None:
    """Return a mirror if continuous verification compares it."""
    mirrors = MirrorTopic.objects.select_related("link__destination", "link__source")
    mirrors = mirrors.prefetch_related("link__configs", "partitions")
    return mirrors.filter(pk=mirror_id, state__in=WATCHED, deletion_requested_at=None).first()


def _is_covered(mirror: MirrorTopic) -> bool:
    """Return whether nothing is left to compare, according to the copy workers' reports: idle mirrors cost no request."""
    progress.refresh([mirror], now=timezone.now())
    parts = coverage_of(mirror=mirror)
    return bool(parts) and all(part.unverified == 0 for part in parts)


def _compare_next(mirror: MirrorTopic) -> str:
    """Compare a range and store the result. Return the error if the comparison failed (not if records differ), else ""."""
    try:
        report = jobs.verify_next(
            replace(plans.verify_of(mirror), gentle=True, timeout_s=TIMEOUT_S),
            covered=coverage.covered(mirror),
            most=watching.most_records(mirror.link),
            spark_url=settings.SPARK_URL,
            tag=f"verify-next-{mirror.pk}",
        )
    except (LinkEngineError, SparkUnavailableError) as error:
        return getattr(error, "message", str(error))
    except Exception as error:  # noqa: BLE001 - unexpected: logged with traceback, shown, retried
        _log.exception("verify_next.failed", mirror=mirror.name)
        return f"The comparison failed unexpectedly ({type(error).__name__}); the worker's log has the details."
    if report is not None and MirrorTopic.objects.filter(pk=mirror.pk).exists():
        coverage.note_report(mirror=mirror, report=report, now=timezone.now())
    return ""

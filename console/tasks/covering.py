"""Continuous verification: compares mirrors with their sources, a single range that is not verified yet at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.utils import timezone

from console.mirrors import progress
from console.models import MirrorTopic
from console.queries import verification
from console.queue import dispatch
from console.reconciling import coverage, plans, watching
from console.redis import locks
from console.tasks.verifying import taken_turn
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.sparkclient import SparkUnavailableError

TURN = "verify-next"  # lock for a single comparison at a time: copying shares Spark's memory and the machine
CLAIM_MS = 2_000
TIMEOUT_S = 600.0  # per range; other mirrors wait
_log = structlog.get_logger(__name__)


@shared_task(name="verify_next")
def verify_next(*, mirror_id: int, **_: Any) -> None:
    """Compare the next range of a mirror. Does nothing while another comparison of continuous verification runs."""
    with taken_turn(TURN) as turn:
        mirror = _load(mirror_id) if turn else None
        if mirror is not None:
            started_at = timezone.now()
            error = "" if _is_covered(mirror) else _compare(mirror)
            watching.note_attempt(mirror=mirror, started_at=started_at, now=timezone.now(), error=error)


def look_after_coverage(*, now: datetime) -> None:
    """Send the comparison that is due, if none is running."""
    watching.ensure_watches(now=now)
    watch = watching.next_due(now=now)
    if watch is not None and not locks.is_locked(TURN) and locks.claim(TURN, ttl_ms=CLAIM_MS):
        dispatch.send("verify_next", mirror_id=watch.mirror_id)


def _load(mirror_id: int) -> MirrorTopic | None:
    mirrors = MirrorTopic.objects.select_related("link__destination", "link__source")
    mirrors = mirrors.prefetch_related("link__configs", "partitions")
    return mirrors.filter(pk=mirror_id, state__in=verification.WATCHED, deletion_requested_at=None).first()


def _is_covered(mirror: MirrorTopic) -> bool:
    """Return whether nothing is left to compare, according to the copy workers' reports: idle mirrors cost no request."""
    progress.refresh([mirror], now=timezone.now())
    parts = verification.coverage(mirror=mirror)
    return bool(parts) and all(part.unverified == 0 for part in parts)


def _compare(mirror: MirrorTopic) -> str:
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

"""Runs verification runs: the verify job compares a mirror with its source in Spark SQL, without code of the copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog
from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.actions import verification
from console.config.logging import current_request_id
from console.models import VerifyRun
from console.models.mirrors import AHEAD
from console.queries.verification import request_of
from console.queue import dispatch
from console.reconciling import coverage, plans
from console.redis import locks
from console.tasks import thread_limit
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import VerifyReport
from linkengine.sparkclient import SparkUnavailableError

RESEND_AFTER = timedelta(seconds=5)
CLAIM_MS = 10_000
# Locks for runs that users requested, beside continuous verification: they share Spark with the copy workers.
TURNS = ("verify-turn-1", "verify-turn-2")
ABANDONED_AFTER = timedelta(seconds=20)  # a live worker has the lock by then
OVERTAKEN = (
    "The mirror lost offsets, missed tombstones, was created anew or moved to another source while it was compared. Start the "
    "verification again."
)
_log = structlog.get_logger(__name__)


@shared_task(name="verify_mirror")
def verify_mirror(*, run_id: int, **_: Any) -> None:
    """Run a queued verification if a turn is free. Does nothing if another worker has taken the run."""
    runs = VerifyRun.objects.select_related("mirror__link__destination", "mirror__link__source")
    run = runs.filter(pk=run_id, status=VerifyRun.Status.QUEUED).first()
    if run is None:
        return
    with taken_turn(*TURNS) as turn, locks.lock(f"verify:{run_id}") as acquired:
        if turn and acquired and verification.mark_started(run=run, now=timezone.now()):
            run.refresh_from_db(fields=["status", "started_at"])
            # a run that had to wait is sent by the reconciler or by the run before it, whose message has another id
            with structlog.contextvars.bound_contextvars(request_id=request_of(run) or current_request_id()):
                _compare(run)
    for next_id in _waiting()[: len(TURNS)] if turn else ():
        dispatch.send("verify_mirror", run_id=next_id)


@contextmanager
def taken_turn(*turns: str) -> Iterator[bool]:
    """Hold a free turn of ``turns`` and a thread for long work; yields whether both were free."""
    with thread_limit.for_long() as has_thread, ExitStack() as stack:
        yield has_thread and any(stack.enter_context(locks.lock(turn)) for turn in turns)


def _waiting(*conditions: Q) -> QuerySet[VerifyRun, int]:
    """Return the primary keys of the queued runs, oldest first."""
    waiting = VerifyRun.objects.filter(*conditions, status=VerifyRun.Status.QUEUED)
    return waiting.order_by("pk").values_list("pk", flat=True)


def look_after_runs(*, now: datetime) -> None:
    """Send the task again for queued runs while a turn is free, and end runs whose worker has crashed."""
    free = len(TURNS) - sum(locks.is_locked(turn) for turn in TURNS)
    for run_id in _waiting(_long_ago("requested_at", now - RESEND_AFTER, now))[:free]:
        if locks.claim(f"verify:{run_id}", ttl_ms=CLAIM_MS):
            dispatch.send("verify_mirror", run_id=run_id)
    running = VerifyRun.objects.filter(_long_ago("started_at", now - ABANDONED_AFTER, now), status=VerifyRun.Status.RUNNING)
    for run in running.select_related("mirror"):
        if locks.is_abandoned(f"verify:{run.pk}"):
            message = "The worker of the verification stopped unexpectedly. Start the verification again."
            verification.record_failure(run=run, message=message, now=now)


def _long_ago(name: str, before: datetime, now: datetime) -> Q:
    """Select rows from before that time, and rows from the future, since a clock was set back."""
    return Q(**{f"{name}__lt": before}) | Q(**{f"{name}__gt": now + AHEAD})


def _compare(run: VerifyRun) -> None:
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

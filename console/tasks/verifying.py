"""The verify job: the independent witness compares a mirror with its source."""

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

from console import dispatch, store
from console.actions import verification
from console.models import VerifyRun
from console.models.mirrors import AHEAD
from console.reconciling import coverage, plans
from console.tasks import threads
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import VerifyReport
from linkengine.sparkclient import SparkUnavailableError

RESEND_AFTER = timedelta(seconds=5)
CLAIM_MS = 10_000
# of comparisons that somebody asked for, beside a continuous one: Spark's slots and memory are shared with the copy
TURNS = ("verify-turn-1", "verify-turn-2")
ABANDONED_AFTER = timedelta(seconds=20)  # a worker that lives holds it by then
OVERTAKEN = (
    "While it was compared, the mirror lost offsets, missed tombstones, was made anew or moved to another source. Start the "
    "comparison again."
)
_log = structlog.get_logger(__name__)


@shared_task(name="verify_mirror")
def verify_mirror(*, run_id: int, **_: Any) -> None:
    """Do a queued comparison, if it has the turn; one that is taken already is somebody else's."""
    runs = VerifyRun.objects.select_related("mirror__link__destination", "mirror__link__source")
    run = runs.filter(pk=run_id, status=VerifyRun.Status.QUEUED).first()
    if run is None:
        return
    with taken_turn(*TURNS) as turn, store.hold(f"verify:{run_id}") as ours:
        if turn and ours and verification.mark_started(run=run, now=timezone.now()):
            run.refresh_from_db(fields=["status", "started_at"])
            _compare(run)
    for next_id in _waiting()[: len(TURNS)] if turn else ():
        dispatch.send("verify_mirror", run_id=next_id)


@contextmanager
def taken_turn(*turns: str) -> Iterator[bool]:
    """Compare inside, as nobody else does in that turn; tells whether one was free, and a thread for what takes long."""
    with threads.for_long() as room, ExitStack() as stack:
        yield room and any(stack.enter_context(store.hold(turn)) for turn in turns)


def _waiting(*conditions: Q) -> QuerySet[VerifyRun, int]:
    """Choose the comparisons that nobody has begun, by primary key, the one that has waited longest first."""
    waiting = VerifyRun.objects.filter(*conditions, status=VerifyRun.Status.QUEUED)
    return waiting.order_by("pk").values_list("pk", flat=True)


def look_after_runs(*, now: datetime) -> None:
    """Send again what no worker took while a turn is free, and give up what its worker has left behind."""
    free = len(TURNS) - sum(store.is_held(turn) for turn in TURNS)
    for run_id in _waiting(_long_ago("requested_at", now - RESEND_AFTER, now))[:free]:
        if store.claim(f"verify:{run_id}", ttl_ms=CLAIM_MS):
            dispatch.send("verify_mirror", run_id=run_id)
    running = VerifyRun.objects.filter(_long_ago("started_at", now - ABANDONED_AFTER, now), status=VerifyRun.Status.RUNNING)
    for run in running.select_related("mirror"):
        if store.is_abandoned(f"verify:{run.pk}"):
            message = "The worker that made the comparison went away. Start the comparison again."
            verification.record_failure(run=run, message=message, now=now)


def _long_ago(name: str, before: datetime, now: datetime) -> Q:
    """Choose rows of before that time; also what lies ahead of now, since a clock was set back."""
    return Q(**{f"{name}__lt": before}) | Q(**{f"{name}__gt": now + AHEAD})


def _compare(run: VerifyRun) -> None:
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
        _keep(run, report, now=timezone.now())


def _keep(run: VerifyRun, report: VerifyReport, *, now: datetime) -> None:
    """Write result and ledger together: a run that says DIFFERENT without an alarm, or EQUAL without its ranges, misleads."""
    with transaction.atomic():
        counts = coverage.note_report(mirror=run.mirror, report=report, run=run, now=now)
        if counts or report.differences:
            verification.record_result(run=run, report=report, now=now)
        else:
            verification.record_failure(run=run, message=OVERTAKEN, now=now)

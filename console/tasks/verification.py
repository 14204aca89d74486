"""Tasks of verification: runs that users request, continuous verification, migration gates and failover drills."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog
from celery import shared_task
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.config.logging import current_request_id
from console.models import Drill, GateRun, VerifyRun
from console.queue import dispatch
from console.reconciling import coverage
from console.redis import locks
from console.tasks.workers import for_long
from console.verification import actions as verification_actions
from console.verification.drill_actions import OVER
from console.verification.queries import request_of
from console.workflows import drills, verifying

RESEND_AFTER = timedelta(seconds=5)
RUN_CLAIM_MS = 10_000
NEXT_CLAIM_MS = 2_000
GATE_RESEND_MS = 2_000
DRILL_RESEND_MS = 1_000
# Locks for runs that users requested, beside continuous verification: they share Spark with the copy workers.
SLOTS = ("verify-turn-1", "verify-turn-2")
SLOT = "verify-next"  # lock for a single comparison at a time: copying shares Spark's memory and the machine
ABANDONED_AFTER = timedelta(seconds=20)  # a live worker has the lock by then
_OF_GATE = ("mirror__link__destination__environment", "mirror__link__source", "verify_run")


@shared_task(name="verify_mirror")
def verify_mirror(*, run_id: int, **_: Any) -> None:
    """Run a queued verification if a turn is free. Does nothing if another worker has taken the run."""
    runs = VerifyRun.objects.select_related("mirror__link__destination", "mirror__link__source")
    run = runs.filter(pk=run_id, status=VerifyRun.Status.QUEUED).first()
    if run is None:
        return
    with acquire_slot(*SLOTS) as slot, locks.lock(f"verify:{run_id}") as acquired:
        if slot and acquired and verification_actions.mark_started(run=run, now=timezone.now()):
            run.refresh_from_db(fields=["status", "started_at"])
            # a run that had to wait is sent by the reconciler or by the run before it, whose message has another id
            with structlog.contextvars.bound_contextvars(request_id=request_of(run) or current_request_id()):
                verifying.compare(run)
    for next_id in _waiting()[: len(SLOTS)] if slot else ():
        dispatch.send("verify_mirror", run_id=next_id)


@contextmanager
def acquire_slot(*slots: str) -> Iterator[bool]:
    """Hold the lock of a free slot of ``slots`` and a thread for long work; yields whether both were free."""
    with for_long() as has_thread, ExitStack() as stack:
        yield has_thread and any(stack.enter_context(locks.lock(slot)) for slot in slots)


def _waiting(*conditions: Q) -> QuerySet[VerifyRun, int]:
    """Return the primary keys of the queued runs, oldest first."""
    waiting = VerifyRun.objects.filter(*conditions, status=VerifyRun.Status.QUEUED)
    return waiting.order_by("pk").values_list("pk", flat=True)


def continue_runs(*, now: datetime) -> None:
    """Send the task again for queued runs while a turn is free, and end runs whose worker has crashed."""
    free = len(SLOTS) - sum(locks.is_locked(slot) for slot in SLOTS)
    for run_id in _waiting(Q(requested_at__lt=now - RESEND_AFTER))[:free]:
        if locks.claim(f"verify:{run_id}", ttl_ms=RUN_CLAIM_MS):
            dispatch.send("verify_mirror", run_id=run_id)
    running = VerifyRun.objects.filter(started_at__lt=now - ABANDONED_AFTER, status=VerifyRun.Status.RUNNING)
    for run in running.select_related("mirror"):
        if locks.is_abandoned(f"verify:{run.pk}"):
            message = "The worker of the verification stopped unexpectedly. Start the verification again."
            verification_actions.record_failure(run=run, message=message, now=now)


@shared_task(name="verify_next")
def verify_next(*, mirror_id: int, **_: Any) -> None:
    """Compare the next range of a mirror. Does nothing while another comparison of continuous verification runs."""
    with acquire_slot(SLOT) as slot:
        mirror = verifying.load_watched(mirror_id) if slot else None
        if mirror is not None:
            verifying.compare_next(mirror)


def continue_coverage(*, now: datetime) -> None:
    """Send the comparison that is due, if none is running."""
    coverage.ensure_watches(now=now)
    watch = coverage.next_due_watch(now=now)
    if watch is not None and not locks.is_locked(SLOT) and locks.claim(SLOT, ttl_ms=NEXT_CLAIM_MS):
        dispatch.send("verify_next", mirror_id=watch.mirror_id)


@shared_task(name="advance_gate")
def advance_gate(*, run_id: int, **_: Any) -> None:
    """Finish a gate run whose verification run has ended; never twice at once."""
    with locks.lock(f"gate:{run_id}") as acquired:
        runs = GateRun.objects.select_related(*_OF_GATE).filter(pk=run_id, status=GateRun.Status.RUNNING)
        run = runs.first() if acquired else None
        if run is not None:
            verifying.finish_gate(run)


def continue_gates() -> None:
    """Send the task again for runs that have not ended."""
    for run_id in GateRun.objects.filter(status=GateRun.Status.RUNNING).values_list("pk", flat=True):
        if locks.claim(f"gate:{run_id}", ttl_ms=GATE_RESEND_MS):
            dispatch.send("advance_gate", run_id=run_id)


@shared_task(name="advance_drill")
def advance_drill(*, drill_id: int, **_: Any) -> None:
    """Run the current step of a drill under its lock."""
    with locks.lock(f"drill:{drill_id}") as acquired:
        drill = Drill.objects.select_related("link__destination").filter(pk=drill_id).first() if acquired else None
        if drill is not None and drill.status not in OVER:
            drills.run_current_step(drill)


def continue_drills() -> None:
    """Send the task for each drill that is not over."""
    for drill_id in Drill.objects.exclude(status__in=OVER).values_list("pk", flat=True):
        if locks.claim(f"drill:{drill_id}", ttl_ms=DRILL_RESEND_MS):
            dispatch.send("advance_drill", drill_id=drill_id)

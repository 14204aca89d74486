"""A drill at work, one step at a time, each resumed from the rows: catch up, fail over, compare, write, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from celery import shared_task
from django.utils import timezone

from console import dispatch, store
from console.actions import drills, mirrors, verification
from console.actions.operations import fail_over
from console.actors import ENGINE
from console.models import Drill, MirrorTopic, StopReport, VerifyRun
from console.models.mirrors import is_fresh
from console.queries.mirrors import FRESH
from linkengine import jobs
from linkengine.domain.drills import DrillRow, proven_by, scratch_suffix
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import MirrorState

Status = Drill.Status
RESEND_MS = 1_000
LONGEST_STEP = timedelta(minutes=30)  # then the drill has failed, whatever it waits for
_UNFINISHED = (VerifyRun.Status.QUEUED, VerifyRun.Status.RUNNING)
_log = structlog.get_logger(__name__)


@shared_task(name="advance_drill")
def advance_drill(*, drill_id: int, **_: Any) -> None:
    """Take a drill as far as it gets now; never twice at once."""
    with store.hold(f"drill:{drill_id}") as ours:
        drill = Drill.objects.select_related("link__destination").filter(pk=drill_id).first() if ours else None
        if drill is None or drill.status in drills.OVER:
            return
        copies = _copies(drill)
        now = timezone.now()
        if drill.status != Status.CLEANING and now - drill.status_since > LONGEST_STEP:
            problem = f"The step {drill.status} took longer than {LONGEST_STEP.seconds // 60} minutes."
            drills.move(drill=drill, status=Status.CLEANING, now=now, problem=problem)
            return
        _STEPS[Status(drill.status)](drill, copies, now)


def look_after_drills() -> None:
    """Send the drills that are under way."""
    for drill_id in Drill.objects.exclude(status__in=drills.OVER).values_list("pk", flat=True):
        if store.claim(f"drill:{drill_id}", ttl_ms=RESEND_MS):
            dispatch.send("advance_drill", drill_id=drill_id)


def _prepare(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    broken = [one for one in copies if one.state == MirrorState.FAILED]
    if broken or not copies:
        problem = (
            "; ".join(f"{one.source_topic}: {one.error_message}" for one in broken) or "There is nothing to rehearse with."
        )
        drills.move(drill=drill, status=Status.CLEANING, now=now, problem=problem)
    elif all(_is_caught_up(one, now) for one in copies) and drills.move(
        drill=drill, status=Status.FAILING_OVER, now=now, failover_at=now
    ):
        for one in copies:
            fail_over(mirror=one, by=ENGINE, now=now)


def _fail_over(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    for one in copies:  # those that a worker left behind between the step and its order
        if one.state not in (MirrorState.PENDING_STOPPED, MirrorState.STOPPED):
            fail_over(mirror=one, by=ENGINE, now=now)
    if all(one.state == MirrorState.STOPPED for one in copies):
        writable = [report.writable_at for report in StopReport.objects.filter(mirror__in=copies)]
        began = drill.failover_at or drill.status_since
        rto_ms = int((max(writable, default=now) - began).total_seconds() * 1000)
        drills.move(drill=drill, status=Status.CHECKING, now=now, rto_ms=rto_ms)


def _check(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    runs = [_comparison(one, now) for one in copies]
    if any(run.status in _UNFINISHED for run in runs):
        return
    rows = [_row(one, run, drill) for one, run in zip(copies, runs, strict=True)]
    drills.move(drill=drill, status=Status.CLEANING, now=now, report=drills.report_of(rows))


def _clean(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    for one in copies:
        if one.deletion_requested_at is None:
            mirrors.delete_mirror(mirror=one, by=ENGINE, now=now)
    if not copies:
        drills.conclude(drill=drill, now=now)


_STEPS = {
    Status.PREPARING: _prepare,
    Status.FAILING_OVER: _fail_over,
    Status.CHECKING: _check,
    Status.CLEANING: _clean,
}


def _copies(drill: Drill) -> list[MirrorTopic]:
    rows = MirrorTopic.objects.filter(drill=drill).select_related("link__destination__environment", "link__source")
    return list(rows.prefetch_related("partitions", "link__configs"))


def _is_caught_up(copy: MirrorTopic, now: datetime) -> bool:
    rows = list(copy.partitions.all())
    fresh = all(is_fresh(row.observed_at, now=now, within=FRESH) for row in rows)
    return copy.state == MirrorState.ACTIVE and bool(rows) and fresh and all(row.lag == 0 for row in rows)


def _comparison(copy: MirrorTopic, now: datetime) -> VerifyRun:
    return copy.verify_runs.first() or verification.start_verify(mirror=copy, by=ENGINE, now=now)


def _row(copy: MirrorTopic, run: VerifyRun, drill: Drill) -> DrillRow:
    stop = StopReport.objects.filter(mirror=copy).first()
    return DrillRow(
        mirror_topic_name=copy.name.removesuffix(scratch_suffix(drill.pk)),
        scratch_topic_name=copy.name,
        rto_ms=stop.rto_ms if stop else None,
        rpo_ms=stop.rpo_ms if stop else None,
        records_not_copied=stop.records_not_copied if stop else None,
        records_compared=run.records_compared,
        differences=run.differences,
        **_judged(copy, run, drill),
    )


def _judged(copy: MirrorTopic, run: VerifyRun, drill: Drill) -> dict[str, Any]:
    held = {row.partition: max(0, (row.last_source_end or 0) - (row.source_start or 0)) for row in copy.partitions.all()}
    compared = {partition: end - start for partition, start, end in run.ranges}
    if run.error_message:
        problem, note = run.error_message, ""
    else:
        problem, note = proven_by(held, compared, start=drill.start_spec)
    refused = _refused(copy)
    return {"writable": not refused, "problem": "; ".join(one for one in (*refused[:3], problem) if one), "note": note}


def _refused(copy: MirrorTopic) -> list[str]:
    """Write a record to each partition, read it back, and answer what went wrong."""
    try:
        problems = [one.problem for one in jobs.try_writing(copy.link.destination.address, copy.name) if one.problem]
    except LinkEngineError as error:
        problems = [error.message]
    if problems:
        _log.info("drill.not_writable", topic=copy.name, problem=problems[0])
    return problems

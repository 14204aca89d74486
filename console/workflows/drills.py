"""Runs failover drills step by step: catch up, fail over, compare, write, delete; then the next batch of topics.

    PREPARING ──► FAILING_OVER ──► CHECKING ──► CLEANING ──► PASSED, FAILED or CANCELED
        ▲                                          │
        └─────────────── next batch ◄──────────────┘

Each step resumes from the rows and can be repeated, so a drill survives a crash of its worker. A user may cancel a drill in any
of these steps; it continues with CLEANING, and no further batch is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db.models import Sum
from django.utils import timezone

from console.actors import ENGINE
from console.errors import ConflictError
from console.mirrors import actions as mirror_actions
from console.mirrors import progress
from console.mirrors.operation_actions import fail_over
from console.mirrors.queries import REPORTED_RECENTLY
from console.mirrors.rules import refused_steps
from console.models import Drill, MirrorTopic, StopReport, VerifyRun
from console.models.mirrors import DELETION_REFUSED, is_fresh
from console.reconciling.groups import known_offsets
from console.verification import actions as verification_actions
from console.verification import drill_actions
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.failover import DrillRow, GroupRow, groups_after, proven_by, scratch_name, scratch_suffix
from linkengine.domain.states import MirrorState

Status = Drill.Status
COMPARISONS = 3  # attempts per scratch copy
LONGEST_STEP = timedelta(minutes=30)  # a drill whose step takes longer fails
_log = structlog.get_logger(__name__)


def run_current_step(drill: Drill) -> None:
    """Run the current step of a drill that is not over."""
    copies = _copies(drill)
    now = timezone.now()
    if drill.canceled_by and drill.status != Status.CLEANING:  # canceled while the next batch was created
        drill_actions.move(drill=drill, status=Status.CLEANING, now=now)
        return
    if drill.status != Status.CLEANING and now - drill.status_since > LONGEST_STEP:
        problem = f"The step {drill.status} took longer than {LONGEST_STEP.seconds // 60} minutes."
        drill_actions.move(drill=drill, status=Status.CLEANING, now=now, problem=problem)
        return
    if not copies and drill.status != Status.CLEANING:
        drill_actions.move(drill=drill, status=Status.CLEANING, now=now, problem="The scratch copies are gone.")
        return
    _STEPS[Status(drill.status)](drill, copies, now)


def _prepare(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    sound = _sound(copies)
    if all(_is_caught_up(copy, now) for copy in sound) and drill_actions.move(
        drill=drill, status=Status.FAILING_OVER, now=now, failover_at=now
    ):
        for copy in sound:
            fail_over(mirror=copy, by=ENGINE, now=now)


def _fail_over(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    sound = _sound(copies)
    for copy in sound:  # again, since a worker may crash between setting the status and the failovers
        if copy.state not in (MirrorState.PENDING_STOPPED, MirrorState.STOPPED):
            fail_over(mirror=copy, by=ENGINE, now=now)
    if all(copy.state == MirrorState.STOPPED for copy in sound):
        writable = [report.writable_at for report in StopReport.objects.filter(mirror__in=sound)]
        began = drill.failover_at or drill.status_since
        rtos_ms = [int((at - began).total_seconds() * 1000) for at in writable]
        # The RTO of a drill is that of its slowest batch.
        known = [rto_ms for rto_ms in (drill.rto_ms, *rtos_ms) if rto_ms is not None]
        groups = drill_actions.report_of([row for copy in sound for row in _groups(copy, drill)])
        drill_actions.move(
            drill=drill, status=Status.CHECKING, now=now, rto_ms=max(known, default=None), groups=drill.groups + groups
        )


def _check(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    sound = _sound(copies)
    runs = [_comparison(copy, now) for copy in sound]
    if any(run.status in verification_actions.UNFINISHED for run in runs):
        return
    rows = [_row(copy, run, drill) for copy, run in zip(sound, runs, strict=True)]
    rows += [_broken_row(copy, drill) for copy in copies if copy not in sound]
    drill_actions.move(drill=drill, status=Status.CLEANING, now=now, report=drill.report + drill_actions.report_of(rows))


def _clean(drill: Drill, copies: Sequence[MirrorTopic], now: datetime) -> None:
    for copy in copies:
        refused = copy.transition_errors.filter(code=DELETION_REFUSED).first()
        if refused is not None:
            _leave(drill, copy, refused.message, now=now)
        elif copy.deletion_requested_at is None:
            _delete(drill, copy, now=now)
    if not copies and not drill_actions.begin_next_batch(drill=drill, by=ENGINE, now=now):
        drill_actions.conclude(drill=drill, now=now)


def _delete(drill: Drill, copy: MirrorTopic, *, now: datetime) -> None:
    try:
        mirror_actions.request_deletion(mirror=copy, by=ENGINE, now=now)
    except ConflictError as error:  # topic deletion was disabled on the destination after the drill began
        _leave(drill, copy, error.message, now=now)


def _leave(drill: Drill, copy: MirrorTopic, reason: str, *, now: datetime) -> None:
    """Stop a scratch copy whose topic the destination does not delete, then delete its row. The drill reports the topic."""
    if copy.state != MirrorState.STOPPED:
        if copy.state != MirrorState.PENDING_STOPPED:
            fail_over(mirror=copy, by=ENGINE, now=now)
        return
    drill.problem = drill.problem or f"Scratch topic '{copy.name}' is left on the destination; delete it there. {reason}"
    Drill.objects.filter(pk=drill.pk).update(problem=drill.problem)
    copy.delete()


_STEPS = {
    Status.PREPARING: _prepare,
    Status.FAILING_OVER: _fail_over,
    Status.CHECKING: _check,
    Status.CLEANING: _clean,
}


def _copies(drill: Drill) -> list[MirrorTopic]:
    copies = list(MirrorTopic.objects.filter(drill=drill).with_links().prefetch_related("partitions"))
    progress.refresh(copies, now=timezone.now())
    return copies


def _sound(copies: Sequence[MirrorTopic]) -> list[MirrorTopic]:
    """Return the scratch copies that have not failed. Failed copies get a row in the report and do not affect the others."""
    return [copy for copy in copies if copy.state != MirrorState.FAILED]


def _is_caught_up(copy: MirrorTopic, now: datetime) -> bool:
    rows = list(copy.partitions.all())
    fresh = all(is_fresh(row.observed_at, now=now, within=REPORTED_RECENTLY) for row in rows)
    return copy.state == MirrorState.ACTIVE and bool(rows) and fresh and all(row.lag == 0 for row in rows)


def _comparison(copy: MirrorTopic, now: datetime) -> VerifyRun:
    """Return the verification run of a copy. A run without a result, for example after its worker crashed, is started again."""
    runs = list(copy.verify_runs.all()[:COMPARISONS])
    if runs and (runs[0].status != VerifyRun.Status.ERROR or len(runs) == COMPARISONS):
        return runs[0]
    return verification_actions.start_verify(mirror=copy, by=ENGINE, now=now)


def _mirror_name(copy: MirrorTopic, drill: Drill) -> str:
    """Return the name of the mirror that a copy represents. The copy's name truncates it if it is long."""
    kept = copy.name.removesuffix(scratch_suffix(drill.pk))
    return next((name for name in drill.topics if scratch_name(name, drill=drill.pk) == copy.name), kept)


def _groups(copy: MirrorTopic, drill: Drill) -> list[GroupRow]:
    """Return where a failover would have left the synced consumer groups. Contacts no cluster and writes nothing."""
    mirror = drill.link.mirrors.listed().filter(name=_mirror_name(copy, drill)).prefetch_related("partitions").first()
    stop = StopReport.objects.filter(mirror=copy).first()
    if mirror is None or stop is None:
        return []
    progress.refresh([mirror], now=timezone.now())
    starts = {row.partition: row.mirror_start for row in mirror.partitions.all()}
    ends = {row["partition"]: row["mirrored_end"] for row in stop.partitions}
    return groups_after(mirror.name, known_offsets(mirror), starts=starts, ends=ends)


def _broken_row(copy: MirrorTopic, drill: Drill) -> DrillRow:
    problem = copy.error_message or "The scratch copy failed."
    return DrillRow(mirror_topic_name=_mirror_name(copy, drill), scratch_topic_name=copy.name, problem=problem)


def _row(copy: MirrorTopic, run: VerifyRun, drill: Drill) -> DrillRow:
    stop = StopReport.objects.filter(mirror=copy).first()
    return DrillRow(
        mirror_topic_name=_mirror_name(copy, drill),
        scratch_topic_name=copy.name,
        rto_ms=stop.rto_ms if stop else None,
        rpo_ms=stop.rpo_ms if stop else None,
        records_not_copied=stop.records_not_copied if stop else None,
        records_compared=run.records_compared,
        differences=run.differences,
        **_judged(copy, run, drill),
    )


def _judged(copy: MirrorTopic, run: VerifyRun, drill: Drill) -> dict[str, Any]:
    problem, note = (run.error_message, "") if run.error_message else _proven(copy, run, drill)
    refused = _refused(copy)
    notes = " ".join(sentence for sentence in (note, _refused_configs(copy)) if sentence)
    return {"writable": not refused, "problem": "; ".join(text for text in (*refused[:3], problem) if text), "note": notes}


def _refused_configs(copy: MirrorTopic) -> str:
    """Return a sentence on the configs that the destination refused for the copy, as it would for the mirror."""
    named = ", ".join(f"{step.name}={step.value or '(cluster default)'}" for step in refused_steps(copy))
    return f"A failover leaves configs undone that the destination refuses: {named}." if named else ""


def _proven(copy: MirrorTopic, run: VerifyRun, drill: Drill) -> tuple[str, str]:
    """Return what the comparison proves, as ``proven_by``.

    Counts records, not offsets: an aborted transaction may be all that arrived while the copy was created.
    """
    starts = {row.partition: row.source_start or 0 for row in copy.partitions.all()}
    held = {
        row.partition: None if row.last_source_end is None else max(0, row.last_source_end - starts[row.partition])
        for row in copy.partitions.all()
    }
    counts = copy.verified_ranges.order_by().values_list("partition").annotate(records=Sum("records"))
    compared = {partition: records or 0 for partition, records in counts}
    whole = {partition for partition, start, _ in run.ranges if start <= starts.get(partition, 0)}
    return proven_by(held, compared, start=drill.start_spec, whole=whole)


def _refused(copy: MirrorTopic) -> list[str]:
    """Write a record to each partition and read it back. Return the problems."""
    try:
        problems = [write.problem for write in jobs.try_writing(copy.link.destination.address, copy.name) if write.problem]
    except LinkEngineError as error:
        problems = [error.message]
    if problems:
        _log.info("drill.not_writable", topic=copy.name, problem=problems[0])
    return problems

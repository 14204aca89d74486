"""Starts verification runs, stores their results, and deletes verified ranges when a topic was created anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.actions.row_locks import check_mirror, lock_link
from console.actors import ENGINE, Actor
from console.errors import ConflictError
from console.models import MirrorTopic, VerifiedRange, VerifyRun
from console.models.links import show_change
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.queue import dispatch
from linkengine.domain.plans import VerifyReport
from linkengine.domain.states import MirrorState

Status = VerifyRun.Status
UNFINISHED = (Status.QUEUED, Status.RUNNING)


def start_verify(*, mirror: MirrorTopic, by: Actor, now: datetime, of_now: bool = False) -> VerifyRun:
    """Queue a verification run; return the unfinished run if there is one.

    With ``of_now`` only a queued run is returned: a run that has started does not include the records copied since then.
    """
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state == MirrorState.PENDING_SETUP:
        raise ConflictError(f"Topic '{mirror.name}' is still being created. Wait until it is ACTIVE, then verify it.")
    with transaction.atomic():
        lock_link(mirror.link)  # serializes concurrent starts
        check_mirror(mirror)
        wanted = (Status.QUEUED,) if of_now else UNFINISHED
        existing = mirror.verify_runs.filter(status__in=wanted).first()  # runs of crashed workers have status ERROR
        if existing is not None:
            return existing
        run = VerifyRun.objects.create(mirror=mirror, requested_by=by.name, requested_at=now)
        audit.record(by=by, action="VerifyMirrorTopic", resource=audit.path_of(mirror), now=now, detail={"run": run.pk})
        show_change(mirror.link_id)
    dispatch.send("verify_mirror", run_id=run.pk)
    return run


def mark_started(*, run: VerifyRun, now: datetime) -> bool:
    """Set a queued run to RUNNING; return False if another worker has taken it."""
    taken = VerifyRun.objects.filter(pk=run.pk, status=Status.QUEUED).update(status=Status.RUNNING, started_at=now)
    show_change(run.mirror.link_id)
    return bool(taken)


def record_result(*, run: VerifyRun, report: VerifyReport, now: datetime) -> None:
    """Store the report of a verification run."""
    run.status = Status.DIFFERENT if report.differences else Status.EQUAL
    run.records_compared, run.differences = report.records_compared, report.differences
    run.bytes_compared, run.duration_ms = report.bytes_compared, report.duration_ms
    run.not_copied = report.not_copied
    run.first_differences = [asdict(difference) for difference in report.first_differences]
    run.ranges = [list(partition) for partition in report.partitions]
    run.finished_at = now
    run.save()
    show_change(run.mirror.link_id)


def record_failure(*, run: VerifyRun, message: str, now: datetime) -> None:
    """Store the error of a run that could not compare the topics; a result that was stored before is kept."""
    failed = {"status": Status.ERROR, "error_message": message, "finished_at": now}
    VerifyRun.objects.filter(pk=run.pk, finished_at=None).update(**failed)
    run.refresh_from_db()
    show_change(run.mirror.link_id)


def keep_ledger(*, mirror: MirrorTopic, source_topic_id: str, mirror_topic_id: str, now: datetime) -> None:
    """Delete the verified ranges and their alarm if a topic id differs from the stored row's; otherwise keep them.

    Call it before the new ids are stored in the row: a topic with another id was created anew and has not been verified.
    """
    stored = MirrorTopic.objects.get(pk=mirror.pk)
    if (stored.source_topic_id, stored.mirror_topic_id) == (source_topic_id, mirror_topic_id):
        return
    with transaction.atomic():
        end_alarm(mirror=mirror, ended=differing(mirror), now=now, why={"reason": "a topic was created anew"})
        if stored.mirror_topic_id != mirror_topic_id:
            mirror.transition_errors.filter(code=TOMBSTONES_MISSED).delete()
        mirror.verified_ranges.all().delete()


def differing(mirror: MirrorTopic) -> list[VerifiedRange]:
    """Return the mirror's verified ranges that contain differences."""
    return list(mirror.verified_ranges.filter(differences__gt=0))


def end_alarm(*, mirror: MirrorTopic, ended: Sequence[VerifiedRange], now: datetime, why: dict[str, object]) -> None:
    """Remove the alarm RECORDS_DIFFER and record the ranges that differed in the audit log."""
    if not ended and not mirror.transition_errors.filter(code=RECORDS_DIFFER).exists():
        return
    ranges = [f"partition {row.partition}: {row.start} to {row.end - 1}, {row.differences} differ" for row in ended]
    detail = {**why, "ranges": ranges}
    audit.record(by=ENGINE, action="EndDifferenceAlarm", resource=audit.path_of(mirror), now=now, detail=detail)
    mirror.transition_errors.filter(code=RECORDS_DIFFER).delete()

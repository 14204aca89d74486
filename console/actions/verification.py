"""Start comparisons of a mirror with its source, keep what they saw, and let go of it where the topics are others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from django.db import transaction

from console import audit, dispatch
from console.access import Permission, check_permission
from console.actions.rows import check_mirror, lock_link
from console.actors import ENGINE, Actor
from console.errors import ConflictError
from console.models import MirrorTopic, VerifiedRange, VerifyRun
from console.models.links import show_change
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from linkengine.domain.plans import VerifyReport
from linkengine.domain.states import MirrorState

Status = VerifyRun.Status
UNFINISHED = (Status.QUEUED, Status.RUNNING)


def start_verify(*, mirror: MirrorTopic, by: Actor, now: datetime, of_now: bool = False) -> VerifyRun:
    """Queue a comparison; answer the one that is under way if there is one.

    ``of_now``: one that has begun does not do, since it leaves out what has been copied since.
    """
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state == MirrorState.PENDING_SETUP:
        raise ConflictError(f"Topic '{mirror.name}' is still being created. Wait until it is ACTIVE, then verify.")
    with transaction.atomic():
        lock_link(mirror.link)  # one starter at a time
        check_mirror(mirror)
        wanted = (Status.QUEUED,) if of_now else UNFINISHED
        running = mirror.verify_runs.filter(status__in=wanted).first()  # one whose worker died is closed
        if running is not None:
            return running
        run = VerifyRun.objects.create(mirror=mirror, requested_by=by.name, requested_at=now)
        audit.record(by=by, action="VerifyMirrorTopic", resource=audit.path_of(mirror), now=now, detail={"run": run.pk})
        show_change(mirror.link_id)
    dispatch.send("verify_mirror", run_id=run.pk)
    return run


def mark_started(*, run: VerifyRun, now: datetime) -> bool:
    """Take a queued run; answer False if somebody has it already."""
    taken = VerifyRun.objects.filter(pk=run.pk, status=Status.QUEUED).update(status=Status.RUNNING, started_at=now)
    show_change(run.mirror.link_id)
    return bool(taken)


def record_result(*, run: VerifyRun, report: VerifyReport, now: datetime) -> None:
    """Keep what the witness saw."""
    run.status = Status.DIFFERENT if report.differences else Status.EQUAL
    run.records_compared, run.differences = report.records_compared, report.differences
    run.bytes_compared, run.duration_ms = report.bytes_compared, report.duration_ms
    run.not_copied = report.not_copied
    run.first_differences = [asdict(one) for one in report.first_differences]
    run.ranges = [list(one) for one in report.partitions]
    run.finished_at = now
    run.save()
    show_change(run.mirror.link_id)


def record_failure(*, run: VerifyRun, message: str, now: datetime) -> None:
    """Keep why a comparison did not come about; it says nothing about the data."""
    failed = {"status": Status.ERROR, "error_message": message, "finished_at": now}
    VerifyRun.objects.filter(pk=run.pk, finished_at=None).update(**failed)  # a result that came meanwhile stands
    run.refresh_from_db()
    show_change(run.mirror.link_id)


def keep_ledger(*, mirror: MirrorTopic, source_topic_id: str, mirror_topic_id: str, now: datetime) -> None:
    """Drop the ledger and its alarm where one of these topics is another one than the row names; before the row does so."""
    was = MirrorTopic.objects.get(pk=mirror.pk)
    if (was.source_topic_id, was.mirror_topic_id) == (source_topic_id, mirror_topic_id):
        return
    with transaction.atomic():
        end_alarm(mirror=mirror, ended=differing(mirror), now=now, why={"reason": "a topic was created anew"})
        if was.mirror_topic_id != mirror_topic_id:
            mirror.transition_errors.filter(code=TOMBSTONES_MISSED).delete()
        mirror.verified_ranges.all().delete()


def differing(mirror: MirrorTopic) -> list[VerifiedRange]:
    """Answer what of a mirror's ledger is not equal."""
    return list(mirror.verified_ranges.filter(differences__gt=0))


def end_alarm(*, mirror: MirrorTopic, ended: Sequence[VerifiedRange], now: datetime, why: dict[str, object]) -> None:
    """Remove the alarm; what had differed goes to the audit."""
    if not ended and not mirror.transition_errors.filter(code=RECORDS_DIFFER).exists():
        return
    ranges = [f"partition {one.partition}: {one.start} to {one.end - 1}, {one.differences} differ" for one in ended]
    detail = {**why, "ranges": ranges}
    audit.record(by=ENGINE, action="EndDifferenceAlarm", resource=audit.path_of(mirror), now=now, detail=detail)
    mirror.transition_errors.filter(code=RECORDS_DIFFER).delete()

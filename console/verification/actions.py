"""Starts verification runs and migration gates and stores their results; reads single records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.actors import ENGINE, Actor
from console.clusters.live_queries import CALL_TIMEOUT_S
from console.errors import BadRequestError, ConflictError, ConsoleError, InvalidInputError, from_cluster
from console.models import GateRun, MirrorTopic, StateTransitionError, VerifiedRange, VerifyRun
from console.models.fields import unseal
from console.models.links import show_change
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.models.row_changes import check_mirror_exists, lock_link
from console.queue import dispatch
from console.verification.rules import GATED, gate_closed
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.gates import GateCheck, is_green
from linkengine.domain.messages import dumped, gettext_lazy
from linkengine.domain.plans import VerifyReport
from linkengine.domain.record_views import GapEntry, Judgement, Presence, judge
from linkengine.domain.states import GapReason, MirrorState

# --- verification runs ------------------------------------------------------------------------------------------------


Status = VerifyRun.Status
UNFINISHED = (Status.QUEUED, Status.RUNNING)


def start_verify(*, mirror: MirrorTopic, by: Actor, now: datetime, of_now: bool = False) -> VerifyRun:
    """Queue a verification run; return the unfinished run if there is one.

    With ``of_now`` only a queued run is returned: a run that has started does not include the records copied since then.
    """
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state == MirrorState.PENDING_SETUP:
        raise ConflictError(
            gettext_lazy(
                "Topic '%(topic)s' is still being created. Wait until it is ACTIVE, then verify it.", topic=mirror.name
            )
        )
    with transaction.atomic():
        lock_link(mirror.link)  # serializes concurrent starts
        check_mirror_exists(mirror)
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
            StateTransitionError.objects.filter(mirror=mirror, code=TOMBSTONES_MISSED).end(now=now)
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
    StateTransitionError.objects.filter(mirror=mirror, code=RECORDS_DIFFER).end(now=now)


# --- the migration gate -----------------------------------------------------------------------------------------------


GateStatus = GateRun.Status
SHORTEST_REASON = 10


def start_gate(*, mirror: MirrorTopic, by: Actor, now: datetime) -> GateRun:
    """Start a run of the checklist together with a full verification run; return the run in progress if there is one."""
    check_permission(by, Permission.VERIFY, mirror=mirror)
    if mirror.state not in GATED:
        raise ConflictError(
            gettext_lazy(
                "Mirror topic '%(topic)s' is %(state)s and cannot be promoted, so no checklist is run.",
                topic=mirror.name,
                state=mirror.state,
            )
        )
    with transaction.atomic():
        lock_link(mirror.link)  # serializes concurrent starts
        check_mirror_exists(mirror)
        running = mirror.gate_runs.filter(status=GateStatus.RUNNING).first()
        if running is not None:
            return running
        comparison = start_verify(mirror=mirror, by=by, now=now, of_now=True)
        run = GateRun.objects.create(
            mirror=mirror, status=GateStatus.RUNNING, requested_by=by.name, requested_at=now, verify_run=comparison
        )
        audit.record(by=by, action="RunMigrationGate", resource=audit.path_of(mirror), now=now, detail={"run": run.pk})
        show_change(mirror.link_id)
    dispatch.send("advance_gate", run_id=run.pk)
    return run


def override_gate(*, mirror: MirrorTopic, reason: str, by: Actor, now: datetime) -> GateRun:
    """Open the gate without a green checklist; the actor and the reason stay in the audit log."""
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    words = " ".join(reason.split())
    if len(words) < SHORTEST_REASON:
        message = gettext_lazy(
            "The reason is too short. Give at least %(least)s characters; the reason is kept with the promotion.",
            least=SHORTEST_REASON,
        )
        raise InvalidInputError(message, field="reason")
    with transaction.atomic():
        check_mirror_exists(mirror)
        run = GateRun.objects.create(
            mirror=mirror,
            status=GateStatus.OVERRIDDEN,
            requested_by=by.name,
            requested_at=now,
            finished_at=now,
            reason=words,
        )
        audit.record(by=by, action="OverrideMigrationGate", resource=audit.path_of(mirror), now=now, detail={"reason": words})
        show_change(mirror.link_id)
    return run


def record_checks(*, run: GateRun, checks: Sequence[GateCheck], now: datetime) -> None:
    """Finish a run with its checks; a run that has finished since then is left unchanged."""
    values = {
        "status": GateStatus.GREEN if is_green(checks) else GateStatus.RED,
        "checks": [{**asdict(check), "message": dumped(check.detail)} for check in checks],
        "finished_at": now,
    }
    GateRun.objects.filter(pk=run.pk, status=GateStatus.RUNNING).update(**values)
    show_change(run.mirror.link_id)


def check_gate(*, mirror: MirrorTopic, now: datetime) -> None:
    """Raise ConflictError if the link requires the migration gate and it is not open for this mirror."""
    reason = gate_closed(mirror, now=now)
    if reason:
        raise ConflictError(reason, code="GATE_CLOSED")


# --- single records ---------------------------------------------------------------------------------------------------
#
# Each read is in the audit log, without contents.


MAX_OFFSET = (1 << 63) - 1
_ACTION = "ReadRecord"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRecord:
    """Both sides at an offset. ``source`` and ``mirror`` are a ``record_views.SideView`` as JSON."""

    partition: int
    offset: int
    judgement: Judgement
    differing: tuple[str, ...]
    source: dict[str, Any]
    mirror: dict[str, Any]

    @property
    def next_offset(self) -> int | None:
        """The next offset at which either side may have something; None if both logs end here."""
        following = [side["next_offset"] for side in (self.source, self.mirror) if side["next_offset"] is not None]
        return min(following, default=None)


def compare_record(
    *, mirror: MirrorTopic, partition: int, offset: int | None = None, timestamp_ms: int | None = None, by: Actor, now: datetime
) -> ComparedRecord:
    """Read both sides at an offset, or at the mirror's first record that is not older than ``timestamp_ms``.

    Needs the permission to read records of the mirror topic, which includes those of its source. A worker reads them; the
    call waits at most CALL_TIMEOUT_S. Raises ConsoleError. The audit log has the place, whether or not it could be read.
    """
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    _check_place(mirror, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
    place = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
    detail = {name: value for name, value in place.items() if value is not None}
    note = partial(audit.record, by=by, action=_ACTION, resource=audit.path_of(mirror), now=now)
    try:
        sealed = dispatch.call("compare_record", timeout_s=CALL_TIMEOUT_S, mirror_pk=mirror.pk, **place)
    except (LinkEngineError, ConsoleError) as error:
        refusal = from_cluster(error) if isinstance(error, LinkEngineError) else error
        note(result=audit.Result.FAILURE, detail={**detail, "code": refusal.code})
        raise refusal from error
    found = unseal(sealed)
    note(detail={**detail, "offset": found["offset"]})
    return _judged(mirror, found)


def _check_place(mirror: MirrorTopic, *, partition: int, offset: int | None, timestamp_ms: int | None) -> None:
    if not mirror.num_partitions:
        raise ConflictError(
            gettext_lazy("Topic '%(topic)s' is not set up yet. Retry when its state is ACTIVE.", topic=mirror.name)
        )
    if not 0 <= partition < mirror.num_partitions:
        raise BadRequestError(
            gettext_lazy(
                "Mirror topic '%(topic)s' has no partition %(partition)s. Its partitions are 0 to %(last)s.",
                topic=mirror.name,
                partition=partition,
                last=mirror.num_partitions - 1,
            ),
            field="partition",
        )
    if (offset is None) == (timestamp_ms is None):
        raise BadRequestError(gettext_lazy("Give either an offset or a time."), field="offset")
    if not 0 <= (offset or 0) <= MAX_OFFSET:
        raise BadRequestError(gettext_lazy("An offset is a whole number from 0 to %(most)s.", most=MAX_OFFSET), field="offset")
    if not 0 <= (timestamp_ms or 0) <= MAX_OFFSET:  # negative times have other meanings in Kafka's protocol
        raise BadRequestError(gettext_lazy("The time must not be before 1970."), field="timestamp_ms")


def _judged(mirror: MirrorTopic, found: dict[str, Any]) -> ComparedRecord:
    partition, offset = found["partition"], found["offset"]
    rows = mirror.gaps.filter(partition=partition, start__lte=offset, end__gt=offset)
    ledger = [GapEntry(reason=GapReason(row.reason), exact=row.filled == row.end - row.start) for row in rows]
    stopped = mirror.state == MirrorState.STOPPED
    ends = mirror.partitions.filter(partition=partition).values_list("stopped_end", flat=True) if stopped else ()
    judgement = judge(
        source=Presence(found["source"]["presence"]),
        mirror=Presence(found["mirror"]["presence"]),
        differing=found["differing"],
        ledger=ledger,
        was_compacted=mirror.was_compacted,
        after_stop=any(end is not None and offset >= end for end in ends),
    )
    return ComparedRecord(
        partition=partition,
        offset=offset,
        judgement=judgement,
        differing=tuple(found["differing"]),
        source=found["source"],
        mirror=found["mirror"],
    )

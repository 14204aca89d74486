"""Failover drills on scratch copies of mirrors, and failover reports: the cost of each stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import ConflictError, InvalidInputError, NotFoundError
from console.mirrors import figures, progress, transitions
from console.models import (
    ApprovalRequest,
    BulkOperation,
    BulkOperationTopic,
    ClampedOffset,
    ClusterLink,
    Drill,
    MirrorPartition,
    MirrorTopic,
    StateTransition,
    StopReport,
)
from console.models.links import show_change
from console.models.mirrors import AHEAD, shows_source_end
from console.models.row_changes import lock_link
from console.queue import dispatch
from linkengine.domain.errors import ErrorCode
from linkengine.domain.failover import BATCH, DrillRow, GroupRow, PartitionAtStop, cost_of_stop, repeated, scratch_name, verdict
from linkengine.domain.linkrules import LATEST, start_problem
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import LinkState, MirrorEvent, MirrorState, StopReason

# --- failover drills --------------------------------------------------------------------------------------------------
#
# Drills use scratch copies of mirrors. The mirrors are not touched.


Status = Drill.Status
OVER = (Status.PASSED, Status.FAILED, Status.CANCELED)


def start_drill(*, link: ClusterLink, names: Sequence[str] = (), start_spec: str = LATEST, by: Actor, now: datetime) -> Drill:
    """Create scratch copies of the named mirrors, or of all active mirrors, in batches of ``BATCH``, and store the drill.

    A copy that has caught up is failed over automatically (``console.workflows.drills``). ``start_spec`` is the offset at which
    the copies start: ``latest`` copies only new records, ``earliest`` all records, a timestamp the records from then on.
    """
    check_permission(by, Permission.OPERATE_MIRROR, link=link)
    check_permission(by, Permission.MANAGE_MIRROR, link=link)
    problem = start_problem(start_spec)
    if problem:
        raise InvalidInputError(problem, field="start")
    with transaction.atomic():
        locked = lock_link(link)
        _check_link(locked)
        drill = Drill.objects.create(link=link, status_since=now, start_spec=start_spec, requested_by=by.name, requested_at=now)
        chosen = _chosen(link, names, drill)
        drill.topics = [mirror.name for mirror in chosen]
        drill.save(update_fields=["topics"])
        _make_copies(chosen[:BATCH], drill, by=by, now=now)
        detail = {"drill": drill.pk, "topics": [mirror.source_topic for mirror in chosen], "start": start_spec}
        audit.record(by=by, action="StartFailoverDrill", resource=audit.path_of(link), now=now, detail=detail)
        show_change(link.pk)
    dispatch.send("reconcile_link", link_id=link.pk)
    return drill


def cancel_drill(*, drill: Drill, by: Actor, now: datetime) -> None:
    """Cancel a drill: its scratch copies are deleted, no further topics are rehearsed, and it ends CANCELED.

    Raises ConflictError if it is over. A drill that is canceled already stays as it is.
    """
    check_permission(by, Permission.OPERATE_MIRROR, link=drill.link)
    check_permission(by, Permission.MANAGE_MIRROR, link=drill.link)
    with transaction.atomic():
        lock_link(drill.link)
        stored = Drill.objects.get(pk=drill.pk)
        if stored.status in OVER:
            raise ConflictError(f"Drill {drill.pk} has ended, so there is nothing to cancel.")
        if stored.canceled_by:
            return
        changes: dict[str, object] = {"canceled_by": by.name, "problem": stored.problem or f"Canceled by {by.name}."}
        if stored.status != Status.CLEANING:
            changes |= {"status": Status.CLEANING, "status_since": now}
        # A step that is in progress changes the status by compare-and-swap only, so it cannot undo this.
        Drill.objects.filter(pk=drill.pk).exclude(status__in=OVER).update(**changes)
        detail = {"drill": drill.pk}
        audit.record(by=by, action="CancelFailoverDrill", resource=audit.path_of(drill.link), now=now, detail=detail)
        show_change(drill.link_id)
    dispatch.send("advance_drill", drill_id=drill.pk)


def running_drill(link: ClusterLink) -> Drill | None:
    """Return the drill of a link that is not over. One query."""
    return link.drills.exclude(status__in=OVER).first()


def check_no_drill(link: ClusterLink) -> None:
    """Raise ConflictError while a drill of a link is in progress: its scratch copies need the link until they are deleted."""
    drill = running_drill(link)
    if drill is not None:
        raise ConflictError(
            f"Failover drill {drill.pk} of cluster link '{link.name}' is in progress; its scratch topics are deleted through "
            "the link. Cancel the drill or wait until it has ended, then delete the link.",
            code="LINK_IN_USE",
        )


def move(*, drill: Drill, status: Status, now: datetime, **changes: object) -> bool:
    """Set the drill's next status by compare-and-swap; return False if another task has changed the status before."""
    moved = Drill.objects.filter(pk=drill.pk, status=drill.status).update(status=status, status_since=now, **changes)
    show_change(drill.link_id)
    return bool(moved)


def begin_next_batch(*, drill: Drill, by: Actor, now: datetime) -> bool:
    """Create the scratch copies of the next topics without a report row; return False if no topic is left.

    A topic that cannot be rehearsed gets a report row with the reason: its mirror is not active, the drill has a problem, or
    the link is being deleted.
    """
    reported = {row["mirror_topic_name"] for row in drill.report}
    waiting = [name for name in drill.topics if name not in reported]
    reason = _end_reason(drill)
    active = {} if reason else {mirror.name: mirror for mirror in _active(drill.link)}
    reason = reason or "Not rehearsed: the mirror topic is not active."
    missed = [DrillRow(mirror_topic_name=name, scratch_topic_name="", problem=reason) for name in waiting if name not in active]
    batch = [active[name] for name in waiting if name in active][:BATCH]
    with transaction.atomic():
        drill.report = [*drill.report, *report_of(missed)]
        Drill.objects.filter(pk=drill.pk).update(report=drill.report)
        if not batch or not move(drill=drill, status=Status.PREPARING, now=now):
            return False
        _make_copies(batch, drill, by=by, now=now)
    dispatch.send("reconcile_link", link_id=drill.link_id)
    return True


def conclude(*, drill: Drill, now: datetime) -> None:
    """Set the final status of a drill whose scratch copies have been deleted."""
    rows = [DrillRow(**values) for values in drill.report]
    passed = verdict(rows) and not drill.problem
    canceled = Drill.objects.filter(pk=drill.pk).exclude(canceled_by="").exists()
    drill.stop_reports.all().delete()  # of the scratch copies; the drill's report has their figures
    status = Status.CANCELED if canceled else Status.PASSED if passed else Status.FAILED
    move(drill=drill, status=status, now=now, finished_at=now)


def report_of(rows: Sequence[DrillRow | GroupRow]) -> list[dict[str, object]]:
    """Return report rows as JSON objects for the database."""
    return [asdict(row) for row in rows]


def _end_reason(drill: Drill) -> str:
    if drill.canceled_by:
        return "Not rehearsed: the drill was canceled."
    if drill.problem:
        return "Not rehearsed: the drill ended early because of a problem."
    deleting = ClusterLink.objects.exclude(deletion_requested_at=None).filter(pk=drill.link_id).exists()
    return "Not rehearsed: the cluster link is being deleted." if deleting else ""


def _check_link(link: ClusterLink) -> None:
    if link.deletion_requested_at is not None:
        raise ConflictError(f"Cluster link '{link.name}' is being deleted.")
    if link.state != LinkState.ACTIVE:
        raise ConflictError(
            f"Cluster link '{link.name}' is {link.state.lower()}, so its drill could not copy from the source. Wait until the "
            "link is active, then retry."
        )
    if link.drills.exclude(status__in=OVER).exists():
        raise ConflictError(f"A drill of cluster link '{link.name}' is in progress. Wait until it has finished, then retry.")
    if link.destination.deletes_topics is False:
        raise ConflictError(
            f"Topic deletion is disabled on cluster '{link.destination.name}' (delete.topic.enable=false), so the drill's "
            "scratch topics could not be deleted. Set delete.topic.enable=true on its brokers and controllers first.",
            code=ErrorCode.TOPIC_DELETION_DISABLED,
        )


def _chosen(link: ClusterLink, names: Sequence[str], drill: Drill) -> list[MirrorTopic]:
    mirrors = list(_active(link))
    if names:
        missing = set(names) - {mirror.name for mirror in mirrors}
        if missing:
            raise NotFoundError(f"Not active mirror topics of cluster link '{link.name}': {', '.join(sorted(missing))}.")
        mirrors = [mirror for mirror in mirrors if mirror.name in set(names)]
    if not mirrors:
        raise ConflictError(f"Cluster link '{link.name}' has no active mirror topics, so there is nothing to rehearse.")
    clashes = repeated((mirror.name for mirror in mirrors), drill=drill.pk)
    if clashes:
        raise InvalidInputError(
            f"The scratch copies of these topics would get the same name: {', '.join(sorted(clashes))}. Run a drill for each."
        )
    return mirrors


def _active(link: ClusterLink) -> QuerySet[MirrorTopic]:
    active = link.mirrors.listed().filter(state=MirrorState.ACTIVE, deletion_requested_at=None, num_partitions__gt=0)
    return active.order_by("name")


def _make_copies(mirrors: Sequence[MirrorTopic], drill: Drill, *, by: Actor, now: datetime) -> None:
    for mirror in mirrors:
        copy = _scratch(mirror, drill, now=now)
        copy.save(force_insert=True)
        transitions.note_creation(mirror=copy, by=by, now=now)


def _scratch(mirror: MirrorTopic, drill: Drill, *, now: datetime) -> MirrorTopic:
    return MirrorTopic(
        link=mirror.link,
        drill=drill,
        name=scratch_name(mirror.name, drill=drill.pk),
        source_topic=mirror.source_topic,
        start_spec=drill.start_spec,
        replication_factor=mirror.replication_factor,
        config_overrides=mirror.config_overrides,
        state_since=now,
        created_at=now,
        created_by=drill.requested_by,
    )


# --- failover reports -------------------------------------------------------------------------------------------------
#
# The cost of a stop, from the progress of the partitions at the time of the stop.


# A partition without any observation.
_UNOBSERVED = PartitionAtStop(
    partition=0, mirrored_end=None, source_end=None, source_seen_at_ms=None, caught_up_at_ms=None, last_timestamp_ms=None
)


def write_stop_reports(
    *,
    mirrors: Sequence[MirrorTopic],
    now: datetime,
    source_ends: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    asked_at: datetime | None = None,
    refused: Mapping[MirrorTopic, Sequence[RefusedStep]] = MappingProxyType({}),
) -> list[StopReport]:
    """Write the reports of mirrors that have just become writable; part of the caller's transaction, with a few statements.

    ``source_ends`` (by primary key) is what the sources of promotions returned after the fence, at ``asked_at``; nothing if
    they were unavailable. ``refused`` are the configs that the destination refused after producers were let in.
    """
    reports = [
        _draft(known, now=now, source_ends=source_ends.get(known.mirror.pk), asked_at=asked_at) for known in _known(mirrors)
    ]
    for mirror, report in zip(mirrors, reports, strict=True):
        report.refused = as_stored(refused.get(mirror, ()))
        report.keep_names()
    StopReport.objects.bulk_create(reports)
    _assign_clamped(mirrors)
    return reports


def _assign_clamped(mirrors: Sequence[MirrorTopic]) -> None:
    """Assign the offsets that these stops clamped to their reports. One statement.

    A stop starts before its topic becomes writable and after the previous stop finished, so a clamped offset belongs to the
    first report at or after its start time.
    """
    reports = StopReport.objects.filter(mirror=OuterRef("mirror"), writable_at__gte=OuterRef("stopping_since"))
    first = reports.order_by("writable_at", "pk").values("pk")[:1]
    ClampedOffset.objects.filter(mirror__in=mirrors, report=None).update(report=Subquery(first))


def as_stored(refused: Sequence[RefusedStep]) -> list[dict[str, str | None]]:
    """Return refused steps as a report stores them."""
    return [{**asdict(step), "resolved_at": None} for step in refused]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    mirror: MirrorTopic
    request: StateTransition | None  # the transition that requested this stop
    rows: Sequence[MirrorPartition]
    source_partitions: int  # as last listed; 0: not listed
    operation: BulkOperation | None  # on several topics, that requested this stop
    approver: str  # the second user who approved the request, "" if it needed none


def _known(mirrors: Sequence[MirrorTopic]) -> list[_Known]:
    """Return what reports are computed from. The last request counts, for example a failover that replaced a promotion."""
    steps = StateTransition.objects.filter(mirror__in=mirrors, to_state=MirrorState.PENDING_STOPPED)
    requests = {step.mirror_id: step for step in steps.exclude(event=MirrorEvent.FATAL).order_by("at", "id")}
    chosen = MirrorTopic.objects.filter(pk__in=[mirror.pk for mirror in mirrors])
    rows = {mirror.pk: mirror.partitions for mirror in progress.current(chosen, now=timezone.now(), insist=True)}
    counts = figures.source_partitions(mirrors)
    operations, approvers = _operations_of(mirrors, requests), _approvers_of(mirrors, requests)
    return [
        _Known(
            mirror=mirror,
            request=requests.get(mirror.pk),
            rows=rows.get(mirror.pk, ()),
            source_partitions=counts[mirror.pk],
            operation=operations.get(mirror.pk),
            approver=approvers.get(mirror.pk, ""),
        )
        for mirror in mirrors
    ]


def _operations_of(mirrors: Sequence[MirrorTopic], requests: Mapping[int, StateTransition]) -> dict[int, BulkOperation]:
    """Return the operations on several topics that requested the stops, by primary key of the mirror. One query.

    A topic of such an operation is done at the time of the transition that it requested.
    """
    names = {(mirror.link_id, mirror.name): mirror.pk for mirror in mirrors}
    topics = BulkOperationTopic.objects.filter(
        operation__link__in={mirror.link_id for mirror in mirrors},
        operation__operation__in=[MirrorEvent.PROMOTE, MirrorEvent.FAILOVER],
        name__in=[mirror.name for mirror in mirrors],
        status=BulkOperationTopic.Status.ACCEPTED,
    )
    found: dict[int, BulkOperation] = {}
    for topic in topics.select_related("operation"):
        key = names.get((topic.operation.link_id, topic.name))
        if key is not None and key in requests and requests[key].at == topic.done_at:
            found[key] = topic.operation
    return found


def _approvers_of(mirrors: Sequence[MirrorTopic], requests: Mapping[int, StateTransition]) -> dict[int, str]:
    """Return the second users who approved the stops, by primary key of the mirror. One query.

    A stop that needed an approval was requested by the user who had it, with a session or an API key of that user.
    """
    if not requests:
        return {}
    first = min(request.at for request in requests.values())
    rows = ApprovalRequest.objects.filter(link__in={mirror.link_id for mirror in mirrors}, expires_at__gt=first)
    given = list(
        rows.exclude(decided_by=None).exclude(status=ApprovalRequest.Status.REJECTED).select_related("user", "decided_by")
    )
    found: dict[int, str] = {}
    for mirror in mirrors if given else ():
        request = requests.get(mirror.pk)
        used = next((row for row in given if request is not None and _allowed(row, mirror, request)), None)
        if used is not None and used.decided_by is not None:
            found[mirror.pk] = used.decided_by.get_username()
    return found


def _allowed(approval: ApprovalRequest, mirror: MirrorTopic, request: StateTransition) -> bool:
    name = approval.user.get_username()
    return (
        approval.link_id == mirror.link_id
        and approval.operation == request.event
        and approval.decided_at is not None
        and approval.decided_at <= request.at < approval.expires_at
        and (request.by == name or request.by.startswith(f"{name} (API key "))
        and approval.covers(mirror)
    )


def _draft(
    known: _Known, *, now: datetime, source_ends: Mapping[int, int] | None = None, asked_at: datetime | None = None
) -> StopReport:
    mirror, request = known.mirror, known.request
    requested_at = request.at if request else mirror.state_since
    partitions = [_at_stop(row, now, requested_at=requested_at) for row in known.rows]
    if mirror.stop_reason == StopReason.FAILOVER:
        partitions = sorted([*partitions, *_unobserved(known)], key=lambda part: part.partition)
    if mirror.stop_reason == StopReason.PROMOTE:
        partitions = _with_ends(partitions, source_ends or {}, seen_at_ms=_unix_ms(asked_at or now))
    cost = cost_of_stop(
        partitions,
        reason=StopReason(mirror.stop_reason),
        requested_at_ms=_unix_ms(requested_at),
        writable_at_ms=_unix_ms(now),
    )
    seen = [part.source_seen_at_ms for part in partitions if part.source_seen_at_ms is not None]
    options = known.operation.options if known.operation else {}
    return StopReport(
        mirror=mirror,
        reason=mirror.stop_reason,
        requested_by=request.by if request else "engine",
        requested_at=requested_at,
        operation_number=known.operation.pk if known.operation else None,
        request_reason=options.get("reason", ""),
        checklist=options.get("checklist", []),
        approved_by=known.approver,
        writable_at=now,
        records_not_copied=cost.records_not_copied,
        source_seen_at=_time(min(seen)) if seen and len(seen) == len(partitions) else None,
        rpo_ms=cost.rpo_ms,
        rto_ms=cost.rto_ms,
        partitions=[
            asdict(part) | {"not_copied": part.not_copied, "missing_when_seen": part.missing_when_seen} for part in partitions
        ],
    )


def _unobserved(known: _Known) -> list[PartitionAtStop]:
    """Return the partitions of the source or the mirror without any observation; their contents are unknown."""
    lacking = figures.unmeasured_partitions(known.mirror, known.rows, source_partitions=known.source_partitions)
    return [replace(_UNOBSERVED, partition=number) for number in lacking]


def _at_stop(row: MirrorPartition, now: datetime, *, requested_at: datetime) -> PartitionAtStop:
    """Return the last observations of a partition; the source end counts by the rule of ``MirrorPartition.lag``."""
    return PartitionAtStop(
        outdated=not shows_source_end(row.last_source_seen_at, now=now, stop_at=requested_at),
        partition=row.partition,
        mirrored_end=row.stopped_end,
        source_end=row.last_high_watermark,
        stable_end=row.last_source_end,
        source_seen_at_ms=_known_ms(row.last_source_seen_at, now),
        caught_up_at_ms=_known_ms(row.caught_up_at, now),
        last_timestamp_ms=row.last_timestamp_ms,
    )


def _with_ends(partitions: Sequence[PartitionAtStop], ends: Mapping[int, int], *, seen_at_ms: int) -> list[PartitionAtStop]:
    """Replace the source ends by those read after the fence; a partition that was not mirrored is unknown, not empty."""
    known = {part.partition: part for part in partitions}
    return [
        replace(
            known.get(number, _UNOBSERVED),
            partition=number,
            source_end=ends.get(number),
            stable_end=None,
            outdated=False,
            source_seen_at_ms=seen_at_ms if number in ends else None,
        )
        for number in sorted(known | dict(ends))
    ]


def _time(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, tz=UTC)


def _known_ms(at: datetime | None, now: datetime) -> int | None:
    """Return a time in Unix ms, None if ahead of now: a clock was set back, and the loss would look younger than it is."""
    return None if at is None or at > now + AHEAD else _unix_ms(at)


def _unix_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)

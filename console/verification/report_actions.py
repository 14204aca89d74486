"""Failover reports: the cost of each stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from django.db.models import OuterRef, Subquery

from console.mirrors import figures, progress
from console.models import (
    ApprovalRequest,
    BulkOperation,
    BulkOperationTopic,
    ClampedOffset,
    MirrorPartition,
    MirrorTopic,
    StateTransition,
    StopReport,
)
from console.models.mirrors import shows_source_end
from linkengine.domain.failover import PartitionAtStop, cost_of_stop
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import MirrorEvent, MirrorState, StopReason

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
    queried_at: datetime | None = None,
    refused: Mapping[MirrorTopic, Sequence[RefusedStep]] = MappingProxyType({}),
) -> list[StopReport]:
    """Write the reports of mirrors that have just become writable; part of the caller's transaction, with a few statements.

    ``source_ends`` (by primary key) is what the sources of promotions returned after the fence, at ``queried_at``; nothing if
    they were unavailable. ``refused`` are the configs that the destination refused after producers were admitted.
    """
    reports = [
        _draft(known, now=now, source_ends=source_ends.get(known.mirror.pk), queried_at=queried_at)
        for known in _known(mirrors, now=now)
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


def _known(mirrors: Sequence[MirrorTopic], *, now: datetime) -> list[_Known]:
    """Return what reports are computed from. The last request counts, for example a failover that replaced a promotion."""
    steps = StateTransition.objects.filter(mirror__in=mirrors, to_state=MirrorState.PENDING_STOPPED)
    requests = {step.mirror_id: step for step in steps.exclude(event=MirrorEvent.FATAL).order_by("at", "id")}
    chosen = MirrorTopic.objects.filter(pk__in=[mirror.pk for mirror in mirrors])
    rows = {mirror.pk: mirror.partitions for mirror in progress.current(chosen, now=now, insist=True)}
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
        link_id = topic.operation.link_id
        key = None if link_id is None else names.get((link_id, topic.name))
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
    known: _Known, *, now: datetime, source_ends: Mapping[int, int] | None = None, queried_at: datetime | None = None
) -> StopReport:
    mirror, request = known.mirror, known.request
    requested_at = request.at if request else mirror.state_since
    partitions = [_at_stop(row, now, requested_at=requested_at) for row in known.rows]
    if mirror.stop_reason == StopReason.FAILOVER:
        partitions = sorted([*partitions, *_unobserved(known)], key=lambda part: part.partition)
    if mirror.stop_reason == StopReason.PROMOTE:
        partitions = _with_ends(partitions, source_ends or {}, seen_at_ms=_unix_ms(queried_at or now))
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
        source_seen_at_ms=_known_ms(row.last_source_seen_at),
        caught_up_at_ms=_known_ms(row.caught_up_at),
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


def _known_ms(at: datetime | None) -> int | None:
    return None if at is None else _unix_ms(at)


def _unix_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)

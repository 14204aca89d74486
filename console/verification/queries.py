"""Queries for verification runs, verified ranges and failover reports, and what a failover would cost now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Count, F, FilteredRelation, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from console.access import visible_mirrors, visible_reports
from console.actors import Actor
from console.errors import NotFoundError
from console.links import pairs
from console.models import (
    AuditEvent,
    ClampedOffset,
    ClusterLink,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    StopReport,
    VerifiedRange,
    VerifyRun,
)
from console.verification.rules import GATED
from linkengine.domain import ranges
from linkengine.domain.configs import follows_start
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.ranges import OffsetRange, comparable_start, count_within
from linkengine.domain.states import MirrorState

if TYPE_CHECKING:
    from console.links.health_queries import Observation

# --- verification runs and verified ranges ----------------------------------------------------------------------------


WATCHED = (MirrorState.ACTIVE, MirrorState.PAUSED)  # states in which new records are verified continuously


def list_runs(*, mirror: MirrorTopic, limit: int = 50) -> list[VerifyRun]:
    """Return the runs of a mirror, newest first."""
    return list(mirror.verify_runs.all()[:limit])


def get_run(*, run_id: int, by: Actor) -> VerifyRun:
    """Return a run with its mirror; raise NotFoundError."""
    runs = VerifyRun.objects.select_related("mirror__link__destination__environment__organization")
    run = runs.filter(pk=run_id, mirror__in=visible_mirrors(by)).first()
    if run is None:
        raise NotFoundError(
            gettext_lazy(
                "Verification run %(run_id)s does not exist. Check the number; runs are kept for 30 days.", run_id=run_id
            ),
            code="UNKNOWN_VERIFY_RUN",
        )
    return run


def request_of(run: VerifyRun) -> str:
    """Return the id of the HTTP request that started a run, from its audit event; "" if there was no request. One query."""
    events = AuditEvent.objects.filter(at=run.requested_at, action="VerifyMirrorTopic", detail__run=run.pk)
    return events.values_list("request_id", flat=True).first() or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCoverage:
    """The verified offsets of a partition. Unknown is None, never 0.

    ``verified_to``: all offsets from ``start`` to here are equal. ``verified``: the number of equal offsets anywhere between
    ``start`` and ``end``. Offsets that are neither verified nor different have not been compared.
    """

    partition: int
    start: int | None
    end: int | None
    verified_to: int | None
    verified: int | None
    differences: int
    verified_at: datetime | None
    first_difference: dict[str, Any] | None = None  # includes record contents, which need READ_RECORDS

    @property
    def comparable(self) -> int | None:
        """The number of offsets that mirror and source have in common, as last reported; None if unknown."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def unverified(self) -> int | None:
        """The number of comparable offsets that are not verified; None if unknown."""
        return None if self.comparable is None or self.verified is None else self.comparable - self.verified


def coverage(*, mirror: MirrorTopic) -> list[PartitionCoverage]:
    """Return the verified offsets of each partition. Two queries."""
    ledger: dict[int, list[VerifiedRange]] = defaultdict(list)
    for row in mirror.verified_ranges.all():
        ledger[row.partition].append(row)
    return [_coverage(row, ledger[row.partition]) for row in mirror.partitions.all()]


def missing_beginnings(
    *, mirror: MirrorTopic, source: Mapping[int, int], mirrored: Mapping[int, int]
) -> dict[int, OffsetRange]:
    """Return the offsets, by partition, that the source has before the log start of the mirror.

    ``source`` and ``mirrored`` are the log start offsets. Empty if the mirror has its own retention. Two queries.
    """
    if not follows_start(mirror.link.sync_include):
        return {}
    return ranges.missing_beginnings(source=source, mirror=mirrored, heads=pairs.first_offsets(mirror))


def missing_as_reported(*, mirror: MirrorTopic) -> dict[int, OffsetRange]:
    """Return ``missing_beginnings`` by the log start offsets of the last reports; empty if the mirror is no longer copied."""
    if mirror.state not in GATED:
        return {}
    rows = [row for row in mirror.partitions.all() if row.source_start is not None and row.mirror_start is not None]
    source = {row.partition: row.source_start or 0 for row in rows}
    return missing_beginnings(mirror=mirror, source=source, mirrored={row.partition: row.mirror_start or 0 for row in rows})


def is_continuous(*, link: ClusterLink) -> bool:
    """Return True if continuous verification is on for the link. No query if its configs are prefetched."""
    return link.config("verify.continuous.enable") == "true"


def continuous_links() -> QuerySet[ClusterLink]:
    """Return the links for which ``is_continuous`` holds."""
    name = "verify.continuous.enable"
    switched_off = LinkConfig.objects.filter(name=name).exclude(value__in=("", "true"))
    return ClusterLink.objects.exclude(pk__in=switched_off.values("link")).order_by()


def is_watched(mirror: MirrorTopic) -> bool:
    """Return True if new records of a mirror are verified where continuous verification is on."""
    return mirror.state in WATCHED and mirror.drill_id is None and mirror.deletion_requested_at is None


def list_ranges(*, mirror: MirrorTopic, limit: int) -> list[VerifiedRange]:
    """Return the verified ranges by partition and offset."""
    return list(mirror.verified_ranges.all()[:limit])


def _coverage(row: MirrorPartition, checked_ranges: Sequence[VerifiedRange]) -> PartitionCoverage:
    end = row.stopped_end if row.stopped_end is not None else row.mirror_end
    start = None if end is None else comparable_start(source=row.source_start, mirror=row.mirror_start, end=end)
    equal = [(checked.start, checked.end) for checked in checked_ranges if not checked.differences]
    verified_to, verified = start, None if start is None or end is None else count_within(equal, start=start, end=end)
    for low, high in equal:
        if end is not None and verified_to is not None and low <= verified_to < high:
            verified_to = min(high, end)
    return PartitionCoverage(
        partition=row.partition,
        start=start,
        end=end,
        verified_to=verified_to,
        verified=verified,
        differences=sum(checked.differences for checked in checked_ranges),
        verified_at=max((checked.verified_at for checked in checked_ranges), default=None),
        first_difference=next((checked.first_difference for checked in checked_ranges if checked.first_difference), None),
    )


# --- failover reports -------------------------------------------------------------------------------------------------
#
# Reports outlive their mirrors and links, so lists and permissions use the names that a report has. The clamped consumer
# offsets are read with them.


CLAMPED_SHOWN = 100  # rows per report; the list of the mirror has all


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTotals:
    """The totals of the newest reports of the mirrors of a link. Unknown is None, never 0."""

    mirrors: int
    records_not_copied: int | None
    worst_rpo_ms: int | None
    worst_rto_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """The clamped consumer offsets of a report: the first rows, and the total number."""

    rows: Sequence[ClampedOffset]
    total: int


def list_reports(*, mirror: MirrorTopic, limit: int) -> list[StopReport]:
    """Return the reports of a mirror, newest first."""
    return list(_with_links(StopReport.objects.filter(drill=None, mirror=mirror))[:limit])


def link_reports(*, link: ClusterLink, by: Actor) -> QuerySet[StopReport]:
    """Return all reports of the link that the actor may see, newest first."""
    return _with_links(visible_reports(by).filter(link=link))


def all_reports(*, by: Actor) -> QuerySet[StopReport]:
    """Return all reports that the actor may see, also of deleted links, newest first."""
    return _with_links(visible_reports(by))


def get_report(*, report_id: int, by: Actor) -> StopReport:
    """Return a report; raise NotFoundError if it is not visible."""
    report = _with_links(visible_reports(by).filter(pk=report_id)).first()
    if report is None:
        raise NotFoundError(
            gettext_lazy(
                "Failover report %(report_id)s does not exist. Check the number, and that you have a role on its link.",
                report_id=report_id,
            ),
            code="UNKNOWN_REPORT",
        )
    return report


def operation_reports(*, number: int, by: Actor) -> QuerySet[StopReport]:
    """Return the reports of the topics of an operation that the actor may see, by name."""
    return _with_links(visible_reports(by).filter(operation_number=number)).order_by("mirror_name", "-writable_at", "-pk")


def link_totals(*, link: ClusterLink, by: Actor) -> StopTotals:
    """Return the totals of all reports that ``link_reports`` returns."""
    return totals_of(link_reports(link=link, by=by))


def totals_of(reports: QuerySet[StopReport]) -> StopTotals:
    """Return the totals of a QuerySet of reports (newest first), without loading their partitions. One query."""
    return total_of(reports.select_related(None).defer("partitions", "refused", "checklist"))


def groups_of(reports: Sequence[StopReport]) -> dict[int, set[str]]:
    """Return the groups whose offsets were clamped, by primary key of the report. One query."""
    groups: dict[int, set[str]] = defaultdict(set)
    rows: Iterable[Any] = _clamped(reports).order_by().values_list("report", "group").distinct()
    for report, group in rows:
        groups[report].add(group)
    return dict(groups)


def clamped_of(reports: Sequence[StopReport]) -> dict[int, Clamped]:
    """Return the clamped offsets, by primary key of the report. Two queries."""
    counts: Iterable[Any] = _clamped(reports).order_by().values_list("report").annotate(Count("pk"))
    rows: dict[int | None, list[ClampedOffset]] = defaultdict(list)
    for row in _first_of_each(_clamped(reports)):
        rows[row.report_id].append(row)
    return {report: Clamped(rows=rows[report], total=total) for report, total in counts}


def total_of(reports: Iterable[StopReport]) -> StopTotals:
    """Return the totals of reports (newest first). If a value is unknown, the total is unknown."""
    newest: dict[tuple[str, str, str], StopReport] = {}
    for report in reports:
        newest.setdefault((report.destination_cluster_id, report.link_name, report.mirror_name), report)
    rows = list(newest.values())
    return StopTotals(
        mirrors=len(rows),
        records_not_copied=_all_known(sum, [row.records_not_copied for row in rows]),
        worst_rpo_ms=_all_known(max, [row.rpo_ms for row in rows]),
        worst_rto_ms=max((row.rto_ms for row in rows), default=None),
    )


def _clamped(reports: Sequence[StopReport]) -> QuerySet[ClampedOffset]:
    return ClampedOffset.objects.filter(report__in=[report.pk for report in reports])


def _first_of_each(rows: QuerySet[ClampedOffset]) -> QuerySet[ClampedOffset]:
    """Limit the rows per report: a common limit could omit all rows of older reports."""
    place = Window(RowNumber(), partition_by=["report"], order_by=["group", "partition"])
    return rows.annotate(place=place).filter(place__lte=CLAMPED_SHOWN).order_by("report", "group", "partition")


def _with_links(reports: QuerySet[StopReport]) -> QuerySet[StopReport]:
    return reports.select_related("mirror__link__destination", "link__destination")


def _all_known(add_up: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return add_up(known) if known and len(known) == len(values) else None


# --- cost of a failover now -------------------------------------------------------------------------------------------
#
# From the newest reports of copy workers. The clusters are not contacted.


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRisk:
    """The records at risk and the time lag of the mirrors that a failover would stop. Unknown is None, never 0."""

    records: Mapping[int, int | None]  # by primary key of the mirror
    rpo_ms: int | None  # of the worst partition
    unknown_time_lags: int  # partitions that lack records since an unknown time, and mirrors without partitions

    @property
    def known_records(self) -> int:
        """The records at risk of the mirrors for which they are known."""
        return sum(count for count in self.records.values() if count is not None)

    @property
    def unknown(self) -> int:
        """The number of mirrors whose records at risk are unknown."""
        return sum(count is None for count in self.records.values())


def records_at_risk(mirror: MirrorTopic, seen: Observation) -> int | None:
    """Return ``FailoverRisk.records`` of a stoppable mirror from ``mirror_page``; None if unknown. No query."""
    listed: int = mirror.source_partitions or 0  # type: ignore[attr-defined]  # as ``mirror_page`` has read it
    missing = seen.missing.get(mirror.pk)
    return None if missing is None else missing.known_for(max(mirror.num_partitions, listed))


def failover_risk(link: ClusterLink, seen: Observation, *, now: datetime) -> FailoverRisk:
    """Return the risk of the mirrors that were seen. One query, for source topics with more partitions than their mirrors."""
    mirror = FilteredRelation("link__mirrors", condition=Q(link__mirrors__source_topic=F("name")))
    topics = SourceTopic.objects.filter(link=link).annotate(mirror=mirror).order_by()
    records = dict(seen.records_at_risk)
    for pk, partitions in topics.filter(partitions__gt=F("mirror__num_partitions")).values_list("mirror", "partitions"):
        if pk in records:
            records[pk] = seen.missing[pk].known_for(partitions) if pk in seen.missing else None
    total = seen.stoppable_total
    return FailoverRisk(records=records, rpo_ms=total.oldest_ms(now), unknown_time_lags=total.unknown_time_lags)

"""Failover reports of a mirror, a link or an operation, with the consumer offsets that were clamped.

Reports outlive their mirrors and links, so lists and permissions use the names that a report has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from console.access import visible_reports
from console.actors import Actor
from console.errors import NotFoundError
from console.models import ClampedOffset, ClusterLink, MirrorTopic, StopReport

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


def all_reports(*, by: Actor, search: str = "") -> QuerySet[StopReport]:
    """Return all reports that the actor may see, also of deleted links, newest first.

    ``search`` is a part of the name of a mirror topic, a link or the user.
    """
    reports = _with_links(visible_reports(by))
    if not search:
        return reports
    return reports.filter(Q(mirror_name__icontains=search) | Q(link_name__icontains=search) | Q(requested_by__icontains=search))


def get_report(*, report_id: int, by: Actor) -> StopReport:
    """Return a report; raise NotFoundError if it is not visible."""
    report = _with_links(visible_reports(by).filter(pk=report_id)).first()
    if report is None:
        raise NotFoundError(f"Failover report {report_id} does not exist.", code="UNKNOWN_REPORT")
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

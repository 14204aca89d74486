"""Failover reports of a mirror or a link, with the consumer offsets that were clamped."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, QuerySet, Window
from django.db.models.functions import RowNumber

from console.access import visible_mirrors
from console.actors import Actor
from console.models import ClampedOffset, ClusterLink, MirrorTopic, StopReport

CLAMPED_SHOWN = 100  # rows per report; the list of the mirror has all
_NONE = 0  # no report yet


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
    return list(_reports().filter(mirror=mirror)[:limit])


def link_reports(*, link: ClusterLink, by: Actor) -> QuerySet[StopReport]:
    """Return all reports of the link's mirrors that the actor may see, newest first."""
    return _reports().filter(mirror__in=visible_mirrors(by).filter(link=link))


def link_totals(*, link: ClusterLink, by: Actor) -> StopTotals:
    """Return the totals of all reports that ``link_reports`` returns."""
    return total_of(link_reports(link=link, by=by).select_related(None).defer("partitions"))


def groups_of(reports: Sequence[StopReport]) -> dict[int, set[str]]:
    """Return the groups whose offsets were clamped, by primary key of the report. Two queries."""
    report_of = _finder(reports)
    groups: dict[int, set[str]] = defaultdict(set)
    for mirror, since, group in _clamped(reports).order_by().values_list("mirror", "stopping_since", "group").distinct():
        groups[report_of(mirror, since)].add(group)
    return dict(groups)


def clamped_of(reports: Sequence[StopReport]) -> dict[int, Clamped]:
    """Return the clamped offsets, by primary key of the report. Three queries."""
    report_of = _finder(reports)
    totals: dict[int, int] = defaultdict(int)
    for mirror, since, count in _clamped(reports).order_by().values_list("mirror", "stopping_since").annotate(Count("pk")):
        totals[report_of(mirror, since)] += count
    rows: dict[int, list[ClampedOffset]] = defaultdict(list)
    for row in _first_of_each_stop(_clamped(reports)):
        rows[report_of(row.mirror_id, row.stopping_since)].append(row)
    return {report: Clamped(rows=rows[report], total=total) for report, total in totals.items()}


def total_of(reports: Iterable[StopReport]) -> StopTotals:
    """Return the totals of reports (newest first). If a value is unknown, the total is unknown."""
    newest: dict[int, StopReport] = {}
    for report in reports:
        newest.setdefault(report.mirror_id, report)
    rows = list(newest.values())
    return StopTotals(
        mirrors=len(rows),
        records_not_copied=_all_known(sum, [row.records_not_copied for row in rows]),
        worst_rpo_ms=_all_known(max, [row.rpo_ms for row in rows]),
        worst_rto_ms=max((row.rto_ms for row in rows), default=None),
    )


def _clamped(reports: Sequence[StopReport]) -> QuerySet[ClampedOffset]:
    return ClampedOffset.objects.filter(mirror__in={report.mirror_id for report in reports})


def _first_of_each_stop(rows: QuerySet[ClampedOffset]) -> QuerySet[ClampedOffset]:
    """Limit the rows per stop: a common limit could omit all rows of older stops."""
    place = Window(RowNumber(), partition_by=["mirror", "stopping_since"], order_by=["group", "partition"])
    return rows.annotate(place=place).filter(place__lte=CLAMPED_SHOWN).order_by("-stopping_since", "group", "partition")


def _finder(reports: Sequence[StopReport]) -> Callable[[int, datetime], int]:
    """Return a function that finds the report of a stop by mirror and start time; ``_NONE`` if it has not finished. One query.

    A stop starts before its topic becomes writable and after the previous stop finished, so a clamped offset belongs to the
    first report at or after its start time.
    """
    stops: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    rows = StopReport.objects.filter(mirror__in={report.mirror_id for report in reports}).order_by("writable_at", "pk")
    for mirror, at, key in rows.values_list("mirror", "writable_at", "pk"):
        stops[mirror].append((at, key))

    def report_of(mirror: int, since: datetime) -> int:
        place = bisect_left(stops[mirror], (since, 0))
        return stops[mirror][place][1] if place < len(stops[mirror]) else _NONE

    return report_of


def _reports() -> QuerySet[StopReport]:
    return StopReport.objects.filter(mirror__drill=None).select_related("mirror__link__destination", "mirror__link__source")


def _all_known(add_up: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return add_up(known) if known and len(known) == len(values) else None

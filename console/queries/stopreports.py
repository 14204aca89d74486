"""Reports of promotions and failovers: of one mirror, of a link, with the groups they set back."""

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

CLAMPED_SHOWN = 100  # rows of each stop; the mirror's own list of them has the rest
_NONE = 0  # key of no report


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTotals:
    """The stops of a link added up, each mirror by its newest one. Unknown is None, never 0."""

    mirrors: int
    records_not_copied: int | None
    worst_rpo_ms: int | None
    worst_rto_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """What one stop did to offsets of groups: the first of them, and how many there are."""

    rows: Sequence[ClampedOffset]
    total: int


def list_reports(*, mirror: MirrorTopic, limit: int) -> list[StopReport]:
    """List the reports of a mirror, the newest first."""
    return list(_reports().filter(mirror=mirror)[:limit])


def link_reports(*, link: ClusterLink, by: Actor) -> QuerySet[StopReport]:
    """List the reports of a link's mirrors that the actor may see, the newest first; as many as there are."""
    return _reports().filter(mirror__in=visible_mirrors(by).filter(link=link))


def link_totals(*, link: ClusterLink, by: Actor) -> StopTotals:
    """Add up all that ``link_reports`` lists, however many rows of them are shown."""
    return total_of(link_reports(link=link, by=by).select_related(None).defer("partitions"))


def groups_of(reports: Sequence[StopReport]) -> dict[int, set[str]]:
    """Answer by report which groups its stop set back, all of them; two queries."""
    report_of = _finder(reports)
    found: dict[int, set[str]] = defaultdict(set)
    for mirror, since, group in _clamped(reports).order_by().values_list("mirror", "stopping_since", "group").distinct():
        found[report_of(mirror, since)].add(group)
    return dict(found)


def clamped_of(reports: Sequence[StopReport]) -> dict[int, Clamped]:
    """Answer by report what its stop did to groups; three queries."""
    report_of = _finder(reports)
    totals: dict[int, int] = defaultdict(int)
    for mirror, since, count in _clamped(reports).order_by().values_list("mirror", "stopping_since").annotate(Count("pk")):
        totals[report_of(mirror, since)] += count
    rows: dict[int, list[ClampedOffset]] = defaultdict(list)
    for row in _first_of_each_stop(_clamped(reports)):
        rows[report_of(row.mirror_id, row.stopping_since)].append(row)
    return {report: Clamped(rows=rows[report], total=total) for report, total in totals.items()}


def total_of(reports: Iterable[StopReport]) -> StopTotals:
    """Add reports up, newest first; one unknown makes the sum unknown."""
    newest: dict[int, StopReport] = {}
    for report in reports:
        newest.setdefault(report.mirror_id, report)
    rows = list(newest.values())
    return StopTotals(
        mirrors=len(rows),
        records_not_copied=_all_known(sum, [one.records_not_copied for one in rows]),
        worst_rpo_ms=_all_known(max, [one.rpo_ms for one in rows]),
        worst_rto_ms=max((one.rto_ms for one in rows), default=None),
    )


def _clamped(reports: Sequence[StopReport]) -> QuerySet[ClampedOffset]:
    return ClampedOffset.objects.filter(mirror__in={one.mirror_id for one in reports})


def _first_of_each_stop(rows: QuerySet[ClampedOffset]) -> QuerySet[ClampedOffset]:
    """Cut each stop by itself: cut together, the newest would leave nothing of the others, as if they had set nobody back."""
    place = Window(RowNumber(), partition_by=["mirror", "stopping_since"], order_by=["group", "partition"])
    return rows.annotate(place=place).filter(place__lte=CLAMPED_SHOWN).order_by("-stopping_since", "group", "partition")


def _finder(reports: Sequence[StopReport]) -> Callable[[int, datetime], int]:
    """Answer how to find the report of a stop by its mirror and beginning, ``_NONE`` while it is under way; one query.

    A stop begins before its topic is writable and after the one before was, so an offset belongs to the first report from its
    beginning on.
    """
    stops: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    rows = StopReport.objects.filter(mirror__in={one.mirror_id for one in reports}).order_by("writable_at", "pk")
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

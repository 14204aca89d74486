"""Reports of promotions and failovers: of one mirror, of a link, with the groups they set back."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from console.access import visible_mirrors
from console.actors import Actor
from console.models import ClampedOffset, ClusterLink, MirrorTopic, StopReport

CLAMPED_SHOWN = 1000  # rows over all reports of a list; a mirror's own list has the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTotals:
    """The stops of a link added up, each mirror by its newest one. Unknown is None, never 0."""

    mirrors: int
    records_not_copied: int | None
    worst_rpo_ms: int | None
    worst_rto_ms: int | None


def list_reports(*, mirror: MirrorTopic, limit: int) -> list[StopReport]:
    """List the reports of a mirror, the newest first."""
    return list(_reports().filter(mirror=mirror)[:limit])


def list_link_reports(*, link: ClusterLink, by: Actor, limit: int = 1000) -> list[StopReport]:
    """List the reports of a link's mirrors that the actor may see, the newest first."""
    return list(_reports().filter(mirror__in=visible_mirrors(by).filter(link=link))[:limit])


def clamped_of(reports: Sequence[StopReport]) -> dict[int, list[ClampedOffset]]:
    """Answer by report which groups its stop set back; two queries.

    A stop begins before its topic is writable and after the one before was, so an offset belongs to the first report from its
    beginning on.
    """
    mirrors = {one.mirror_id for one in reports}
    stops: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for mirror, at, key in StopReport.objects.filter(mirror__in=mirrors).values_list("mirror", "writable_at", "pk"):
        stops[mirror].append((at, key))
    found: dict[int, list[ClampedOffset]] = defaultdict(list)
    rows = ClampedOffset.objects.filter(mirror__in=mirrors).order_by("-stopping_since", "group", "partition")
    for row in rows[:CLAMPED_SHOWN]:
        ordered = sorted(stops[row.mirror_id])
        place = bisect_left(ordered, (row.stopping_since, 0))
        if place < len(ordered):
            found[ordered[place][1]].append(row)
    return dict(found)


def total_of(reports: Sequence[StopReport]) -> StopTotals:
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


def _reports() -> QuerySet[StopReport]:
    return StopReport.objects.filter(mirror__drill=None).select_related("mirror__link__destination", "mirror__link__source")


def _all_known(add_up: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return add_up(known) if known and len(known) == len(values) else None

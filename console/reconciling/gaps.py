"""Filled ranges become the gap ledger: as few rows as possible, and an alarm where records were lost."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

import structlog
from django.db import transaction
from django.db.models import F, Sum

from console.models import GapRange, MirrorTopic
from console.models.mirrors import RECORDS_LOST
from console.reconciling import troubles
from linkengine.domain.ranges import Gap, OffsetRange, merge_gaps
from linkengine.domain.states import GapReason

log = structlog.get_logger(__name__)


def store_gaps(*, mirror: MirrorTopic, gaps: Mapping[int, Iterable[Gap]], now: datetime) -> bool:
    """Merge gaps (by partition) into the ledger of a mirror; answer whether there was anything new."""
    reported = {partition: tuple(some) for partition, some in gaps.items()}
    reported = {partition: some for partition, some in reported.items() if some}
    if not reported:
        return False
    known = _known(mirror, first=min(gap.range.start for some in reported.values() for gap in some))
    news = {p: some for p, some in reported.items() if not _covers(known[p], some)}
    for partition, some in news.items():
        _merge(mirror, partition, rows=known[partition], gaps=some, now=now)
    if any(gap.reason is GapReason.LOST for some in news.values() for gap in some):
        _alarm(mirror, now=now)
    return bool(news)


def note_head(*, mirror: MirrorTopic, seeded: Iterable[tuple[int, int]], now: datetime) -> None:
    """Note what was filled below the source's log start when the mirror began."""
    heads = {partition: (Gap(OffsetRange(0, start), GapReason.HEAD),) for partition, start in seeded if start > 0}
    store_gaps(mirror=mirror, gaps=heads, now=now)


def _known(mirror: MirrorTopic, *, first: int) -> dict[int, list[GapRange]]:
    """Read the rows that the new gaps may touch: those that do not end before the first of them."""
    rows: dict[int, list[GapRange]] = defaultdict(list)
    for row in GapRange.objects.filter(mirror=mirror, end__gte=first):
        rows[row.partition].append(row)
    return rows


def _covers(rows: Iterable[GapRange], gaps: Iterable[Gap]) -> bool:
    """Tell whether every gap lies in a row of its reason; rows of one reason never overlap. Transactions make thousands."""
    ledger: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.start):
        ledger[row.reason].append((row.start, row.end))
    return all(_lies_in(ledger[gap.reason], gap.range) for gap in gaps)


def _lies_in(ledger: list[tuple[int, int]], wanted: OffsetRange) -> bool:
    at = bisect_right(ledger, wanted.start, key=lambda one: one[0]) - 1
    return at >= 0 and wanted.end <= ledger[at][1]


def _merge(mirror: MirrorTopic, partition: int, *, rows: list[GapRange], gaps: Iterable[Gap], now: datetime) -> None:
    old = {_gap(row): row for row in rows}
    merged = set(merge_gaps([*old, *gaps]))
    replaced = [row.pk for gap, row in old.items() if gap not in merged]
    fresh = [
        GapRange(mirror=mirror, partition=partition, start=gap.range.start, end=gap.range.end, reason=gap.reason, noted_at=now)
        for gap in merged - old.keys()
    ]
    with transaction.atomic():
        GapRange.objects.filter(pk__in=replaced).delete()
        GapRange.objects.bulk_create(fresh)


def _gap(row: GapRange) -> Gap:
    return Gap(OffsetRange(row.start, row.end), GapReason(row.reason))


def _alarm(mirror: MirrorTopic, *, now: datetime) -> None:
    lost = GapRange.objects.filter(mirror=mirror, reason=GapReason.LOST).aggregate(n=Sum(F("end") - F("start")))["n"] or 0
    message = (
        f"{lost} offsets of '{mirror.source_topic}' were deleted by its retention before they could be copied; the mirror "
        "holds fillers there (see the gap ledger). Lengthen the source's retention, or look for what held the copy up."
    )
    troubles.note(mirror=mirror, code=RECORDS_LOST, message=message, now=now)
    log.warning("records_lost", mirror=mirror.name, link=mirror.link.name, offsets=lost)

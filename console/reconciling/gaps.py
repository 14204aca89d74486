"""Runs of fills become the gap ledger: few rows however busy a topic is, and an alarm where records were lost.

A run keeps its start while it grows (``linkengine.copyjob.fills``), and no two runs of a reason overlap, since every offset is
filled once. So a report that comes twice or late changes nothing. Reports and the answer of a slice come together: whoever
writes reads the ledger under the lock of the mirror's row. What has not grown for SETTLED is joined with its neighbours and,
beyond MOST_ROWS, made coarser (``docs/adr/0005-gap-ledger.md``); HEAD and LOST stay exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Max, Min, Sum

from console.models import GapRange, MirrorPartition, MirrorTopic
from console.models.mirrors import RECORDS_LOST
from console.reconciling import troubles
from linkengine.domain.moments import utc_words
from linkengine.domain.ranges import Gap, OffsetRange, fewer_gaps
from linkengine.domain.states import GapReason

SETTLED = timedelta(minutes=3)  # a slice's last report has come by then
MOST_ROWS = 32  # settled ones per partition and reason; joined when there are twice as many
NAMED_PARTITIONS = 500  # in one query
log = structlog.get_logger(__name__)
Place = tuple[int, str]  # partition, reason


def store_gaps(*, mirror: MirrorTopic, gaps: Mapping[int, Iterable[Gap]], now: datetime) -> bool:
    """Take reported runs (by partition) into the ledger of a mirror; answer whether there was anything new."""
    reported = [(partition, gap) for partition, some in gaps.items() for gap in some]
    if not reported:
        return False
    with transaction.atomic():
        fresh, grown = _taken_in(mirror, reported, now=now)
    if any(row.reason == GapReason.LOST for row in (*fresh, *grown)):
        _alarm(mirror, now=now)
    return bool(fresh or grown)


def _taken_in(
    mirror: MirrorTopic, reported: Sequence[tuple[int, Gap]], *, now: datetime
) -> tuple[list[GapRange], list[GapRange]]:
    """Write what is new; answer the rows that were added, and those that have grown. Within a transaction."""
    if not MirrorTopic.objects.select_for_update(of=("self",)).filter(pk=mirror.pk).exists():
        return [], []  # deleted meanwhile, its ledger with it
    ledger = _known(mirror, reported)
    fresh, grown = [], []
    for partition, gap in reported:
        row = _row_of(gap, ledger[partition, gap.reason])
        if row is None:
            fresh.append(_new_row(mirror, partition, gap, now=now))
        elif _extend(row, gap, now=now):
            grown.append(row)
    _date_losses(mirror, fresh)
    GapRange.objects.bulk_create(fresh, ignore_conflicts=True)
    GapRange.objects.bulk_update(grown, ["end", "filled", "before_ms", "after_ms", "noted_at"], batch_size=200)
    if fresh:
        _settle(mirror, {row.partition for row in fresh}, now=now)
    return fresh, grown


def note_head(*, mirror: MirrorTopic, seeded: Iterable[tuple[int, int]], now: datetime) -> None:
    """Note what was filled below the offset the mirror began with."""
    heads = {partition: (Gap(OffsetRange(0, start), GapReason.HEAD),) for partition, start in seeded if start > 0}
    store_gaps(mirror=mirror, gaps=heads, now=now)


def _known(mirror: MirrorTopic, reported: Iterable[tuple[int, Gap]]) -> dict[Place, list[GapRange]]:
    """Read the rows that the reported runs may be part of, last first."""
    partitions = {partition for partition, _ in reported}
    first = min(gap.range.start for _, gap in reported)
    rows: dict[Place, list[GapRange]] = defaultdict(list)
    found = GapRange.objects.filter(mirror=mirror, end__gt=first)
    if len(partitions) <= NAMED_PARTITIONS:
        found = found.filter(partition__in=partitions)
    for row in found.order_by("-start"):
        rows[row.partition, row.reason].append(row)
    return rows


def _row_of(gap: Gap, rows: Iterable[GapRange]) -> GapRange | None:
    """Answer the row that is this run, or that it was joined into."""
    return next((row for row in rows if row.start <= gap.range.start < row.end), None)


def _new_row(mirror: MirrorTopic, partition: int, gap: Gap, *, now: datetime) -> GapRange:
    return GapRange(
        mirror=mirror,
        partition=partition,
        start=gap.range.start,
        end=gap.range.end,
        reason=gap.reason,
        filled=gap.filled,
        before_ms=gap.before_ms,
        after_ms=gap.after_ms,
        noted_at=now,
    )


def _date_losses(mirror: MirrorTopic, rows: Iterable[GapRange]) -> None:
    """A slice that begins with a loss has copied no record before it: the last one of the slices before tells the time."""
    undated = {row.partition: row for row in rows if row.reason == GapReason.LOST and row.before_ms is None}
    for partition in MirrorPartition.objects.filter(mirror=mirror, partition__in=undated) if undated else ():
        before_ms, after_ms = partition.last_timestamp_ms, undated[partition.partition].after_ms
        if before_ms is not None and before_ms >= 0 and (after_ms is None or before_ms <= after_ms):
            undated[partition.partition].before_ms = before_ms


def _extend(row: GapRange, gap: Gap, *, now: datetime) -> bool:
    """Let the row of a run grow; answer whether it did."""
    told = gap.after_ms is not None and row.after_ms is None and row.end <= gap.range.end
    if gap.range.end <= row.end and not told:
        return False
    row.filled += max(0, gap.filled - row.filled) if row.start == gap.range.start else gap.range.end - row.end
    row.end = max(row.end, gap.range.end)
    row.before_ms = gap.before_ms if row.before_ms is None else row.before_ms
    row.after_ms, row.noted_at = gap.after_ms, now
    return True


def _settle(mirror: MirrorTopic, partitions: set[int], *, now: datetime) -> None:
    """Replace many old rows by fewer."""
    old = GapRange.objects.filter(mirror=mirror, partition__in=partitions, noted_at__lt=now - SETTLED)
    rows: dict[Place, list[GapRange]] = defaultdict(list)
    for row in old:
        rows[row.partition, row.reason].append(row)
    for (partition, _), some in rows.items():
        if len(some) > 2 * MOST_ROWS:
            _join(mirror, partition, some)


def _join(mirror: MirrorTopic, partition: int, rows: list[GapRange]) -> None:
    newest = max(row.noted_at for row in rows)
    old = {gap_of(row): row.pk for row in rows}
    fewer = fewer_gaps(old, most=MOST_ROWS)
    with transaction.atomic():
        GapRange.objects.filter(pk__in=[pk for gap, pk in old.items() if gap not in fewer]).delete()
        GapRange.objects.bulk_create(_new_row(mirror, partition, gap, now=newest) for gap in fewer if gap not in old)


def gap_of(row: GapRange) -> Gap:
    """Answer the row as the engine's value."""
    return Gap(OffsetRange(row.start, row.end), GapReason(row.reason), row.filled, row.before_ms, row.after_ms)


def _alarm(mirror: MirrorTopic, *, now: datetime) -> None:
    lost = GapRange.objects.filter(mirror=mirror, reason=GapReason.LOST).aggregate(
        n=Sum("filled"), first=Min("before_ms"), last=Max("after_ms")
    )
    message = (
        f"{lost['n'] or 0} offsets of '{mirror.source_topic}' were deleted by its retention before they could be copied"
        f"{_between(lost['first'], lost['last'])}; the mirror holds fillers there (see the gap ledger). Lengthen the source's "
        "retention, or look for what held the copy up."
    )
    if troubles.note(mirror=mirror, code=RECORDS_LOST, message=message, now=now):
        log.warning("records_lost", mirror=mirror.name, link=mirror.link.name, offsets=lost["n"])


def _between(first_ms: int | None, last_ms: int | None) -> str:
    known = [f"{word} {utc_words(ms)}" for word, ms in (("after", first_ms), ("before", last_ms)) if ms is not None]
    return f", written {' and '.join(known)}" if known else ""

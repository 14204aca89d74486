"""The gap ledger: stores the runs of filled offsets that copy workers report, and raises the alarm for lost records.

A run keeps its start while it grows (``linkengine.copyjob.partition_counters``), and runs do not overlap, since each offset is
filled once. Therefore a report that arrives twice or late changes nothing. Several processes may store reports at the same
time, so the ledger is read under the lock of the mirror's row. Runs that have not grown for SETTLED are joined with their
neighbours and, beyond MOST_ROWS, made coarser (``docs/adr/0005-gap-ledger.md``); HEAD and LOST stay exact.
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
from console.reconciling import transition_errors
from linkengine.domain.moments import utc_words
from linkengine.domain.ranges import Gap, OffsetRange, fewer_gaps
from linkengine.domain.states import GapReason

SETTLED = timedelta(minutes=3)  # after which no report of the run is still to come
MOST_ROWS = 32  # settled rows per partition and reason; joined when there are twice as many
NAMED_PARTITIONS = 500  # per query
log = structlog.get_logger(__name__)
Place = tuple[int, str]  # partition, reason


def store_gaps(*, mirror: MirrorTopic, gaps: Mapping[int, Iterable[Gap]], now: datetime) -> bool:
    """Store the reported runs (by partition) of a mirror. Returns whether any of them was new or has grown."""
    reported = [(partition, gap) for partition, runs in gaps.items() for gap in runs]
    if not reported:
        return False
    with transaction.atomic():
        fresh, grown = _store_runs(mirror, reported, now=now)
    if any(row.reason == GapReason.LOST for row in (*fresh, *grown)):
        _alarm(mirror, now=now)
    return bool(fresh or grown)


def _store_runs(
    mirror: MirrorTopic, reported: Sequence[tuple[int, Gap]], *, now: datetime
) -> tuple[list[GapRange], list[GapRange]]:
    """Write new and grown runs; returns the rows of each. Runs in a transaction."""
    if not MirrorTopic.objects.select_for_update(of=("self",)).filter(pk=mirror.pk).exists():
        return [], []  # deleted since, with its ledger
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
    """Store what was filled below the first offset of the mirror."""
    heads = {partition: (Gap(OffsetRange(0, start), GapReason.HEAD),) for partition, start in seeded if start > 0}
    store_gaps(mirror=mirror, gaps=heads, now=now)


def _known(mirror: MirrorTopic, reported: Iterable[tuple[int, Gap]]) -> dict[Place, list[GapRange]]:
    """Return the rows that the reported runs may belong to, last first."""
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
    """Return the row of this run, or the row that it was joined into."""
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
    """Set the time before a loss, if the copy worker does not have it.

    A worker that starts with a loss has copied no record before it, so the time of the last record of the previous worker is
    used.
    """
    undated = {row.partition: row for row in rows if row.reason == GapReason.LOST and row.before_ms is None}
    for partition in MirrorPartition.objects.filter(mirror=mirror, partition__in=undated) if undated else ():
        before_ms, after_ms = partition.last_timestamp_ms, undated[partition.partition].after_ms
        if before_ms is not None and before_ms >= 0 and (after_ms is None or before_ms <= after_ms):
            undated[partition.partition].before_ms = before_ms


def _extend(row: GapRange, gap: Gap, *, now: datetime) -> bool:
    """Extend the row of a run. Returns whether it has changed."""
    dated = gap.after_ms is not None and row.after_ms is None and row.end <= gap.range.end
    if gap.range.end <= row.end and not dated:
        return False
    row.filled += max(0, gap.filled - row.filled) if row.start == gap.range.start else gap.range.end - row.end
    row.end = max(row.end, gap.range.end)
    row.before_ms = gap.before_ms if row.before_ms is None else row.before_ms
    row.after_ms, row.noted_at = gap.after_ms, now
    return True


def _settle(mirror: MirrorTopic, partitions: set[int], *, now: datetime) -> None:
    """Replace many settled rows by fewer."""
    old = GapRange.objects.filter(mirror=mirror, partition__in=partitions, noted_at__lt=now - SETTLED)
    rows: dict[Place, list[GapRange]] = defaultdict(list)
    for row in old:
        rows[row.partition, row.reason].append(row)
    for (partition, _), settled in rows.items():
        if len(settled) > 2 * MOST_ROWS:
            _join(mirror, partition, settled)


def _join(mirror: MirrorTopic, partition: int, rows: list[GapRange]) -> None:
    newest = max(row.noted_at for row in rows)
    old = {gap_of(row): row.pk for row in rows}
    fewer = fewer_gaps(old, most=MOST_ROWS)
    with transaction.atomic():
        GapRange.objects.filter(pk__in=[pk for gap, pk in old.items() if gap not in fewer]).delete()
        GapRange.objects.bulk_create(_new_row(mirror, partition, gap, now=newest) for gap in fewer if gap not in old)


def gap_of(row: GapRange) -> Gap:
    """Return the row as the engine's value."""
    return Gap(OffsetRange(row.start, row.end), GapReason(row.reason), row.filled, row.before_ms, row.after_ms)


def _alarm(mirror: MirrorTopic, *, now: datetime) -> None:
    lost = GapRange.objects.filter(mirror=mirror, reason=GapReason.LOST).aggregate(
        n=Sum("filled"), first=Min("before_ms"), last=Max("after_ms")
    )
    message = (
        f"Retention deleted {lost['n'] or 0} offsets of '{mirror.source_topic}' before they could be copied"
        f"{_between(lost['first'], lost['last'])}; the mirror has fillers there (see the gap ledger). Increase the source's "
        "retention, or find out what delayed the copy."
    )
    if transition_errors.note(mirror=mirror, code=RECORDS_LOST, message=message, now=now):
        log.warning("records_lost", mirror=mirror.name, link=mirror.link.name, offsets=lost["n"])


def _between(first_ms: int | None, last_ms: int | None) -> str:
    known = [f"{word} {utc_words(ms)}" for word, ms in (("after", first_ms), ("before", last_ms)) if ms is not None]
    return f", written {' and '.join(known)}" if known else ""

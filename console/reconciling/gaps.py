"""The gap ledger and its alarms: lost records, and deletions that a mirror may have missed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Max, Min, Q, Sum

from console.models import GapRange, MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, RECORDS_LOST, TOMBSTONES_MISSED
from console.reconciling import coverage, transition_errors
from console.reconciling.plans import mirror_key
from console.reconciling.sampling import LEAST_LATENESS, Lateness, lateness_kept, lateness_of
from linkengine.domain.configs import Cleaned, cleaned_before, kept_since, tombstones_would_be_kept_ms
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange, fewer_gaps
from linkengine.domain.states import GapReason
from linkengine.domain.times import utc_words

# --- the gap ledger ---------------------------------------------------------------------------------------------------
#
# A run keeps its start while it grows (``linkengine.copyjob.partition_counters``), and runs do not overlap, since each offset
# is filled once. Therefore a report that arrives twice or late changes nothing. Several processes may store reports at the
# same time, so the ledger is read under the lock of the mirror's row. Runs that have not grown for SETTLED are joined with
# their neighbours and, beyond MOST_ROWS, made coarser (``docs/adr/0005-gap-ledger.md``); HEAD and LOST stay exact.


SETTLED = timedelta(minutes=3)  # after which no report of the run is still to come
MOST_ROWS = 32  # settled rows per partition and reason; joined when there are twice as many
NAMED_PARTITIONS = 500  # per query
_log = structlog.get_logger(__name__)
PartitionReason = tuple[int, str]  # partition, reason


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


def _known(mirror: MirrorTopic, reported: Iterable[tuple[int, Gap]]) -> dict[PartitionReason, list[GapRange]]:
    """Return the rows that the reported runs may belong to, last first."""
    partitions = {partition for partition, _ in reported}
    first = min(gap.range.start for _, gap in reported)
    rows: dict[PartitionReason, list[GapRange]] = defaultdict(list)
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
    rows: dict[PartitionReason, list[GapRange]] = defaultdict(list)
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
        _log.warning("mirror.records_lost", mirror=mirror.name, link=mirror.link.name, offsets=lost["n"])


def _between(first_ms: int | None, last_ms: int | None) -> str:
    known = [f"{word} {utc_words(ms)}" for word, ms in (("after", first_ms), ("before", last_ms)) if ms is not None]
    return f", written {' and '.join(known)}" if known else ""


# --- deletions that a mirror may have missed --------------------------------------------------------------------------
#
# Theory of operation. To delete a key in a compacted topic, a producer writes a tombstone. The source's log cleaner removes
# the key's older records first, and the tombstone no sooner than ``delete.retention.ms`` after it was written. A mirror that
# was complete at some time and is complete again within that span has received every tombstone that was written in between.
# If it takes longer, it may find neither the record nor the tombstone, while it keeps the record that it had copied before.
# Nothing differs at the offsets that are copied afterwards, so continuous verification, which compares only ranges that are
# not verified yet, does not find it. For a first copy, the time at which it began counts: everything that it read was
# removed, if at all, after that.
#
#     complete          tombstone written      tombstone removed          copied again
#     ───┼────────────────────┼──────────────────────┼─────────────────────────┼───►
#        └─ ``since``         └─ delete.retention.ms ┘                ``until`` ┘
#
# The alarm (``TOMBSTONES_MISSED``) is raised if anything is copied that late. It lasts until a verification run of the whole
# mirror that started afterwards finds no difference. Ranges that were verified before the mirror was complete again are
# verified again.
#
# The source's cleanup policy is read only from time to time, and not at all while the mirror is paused or cannot reach the
# source. Therefore not only the current policy counts, but also those of the readings before and after, and of all in between
# (``Cleaned``). Lateness before the next reading is stored with the row and checked again after that reading. A policy that was
# set and removed between two readings is detected by its effect: the copy has a gap where a tombstone was removed.


_TooLate = tuple[Lateness, int]  # with the time for which the source kept tombstones, in ms


def note_lateness(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Sequence[PartitionProgress],
    now: datetime,
) -> bool:
    """Compare reports with their rows before the rows are updated. Return whether the alarm changed, which pages show."""
    seen = {report.key: report for report in reports}
    changed = False
    for mirror in mirrors:
        late = list(_too_late(mirror, rows, seen))
        if late:
            changed |= _handle_late(mirror, late, now=now)
    return changed


def cleaning_fields(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Return the values of ``cleaned_until`` and ``cleaned_kept_ms`` after the source's configs were read.

    Empty while the source is not known to have been compacted.
    """
    known = cleaned_before(
        mirror.source_configs,
        source_configs,
        known=_known_cleaned(mirror),
        needed=lambda former: _is_needed(mirror, former),
        now=now,
    )
    return {"cleaned_until": known.until, "cleaned_kept_ms": known.kept_ms} if known else {}


def cleaning_fields_of_rejoined(mirror: MirrorTopic, source_configs: Mapping[str, str], *, now: datetime) -> dict[str, object]:
    """Return ``cleaning_fields`` for topics that are connected again; their configs were not read in between."""
    sides, known = (mirror.source_configs, source_configs), _known_cleaned(mirror)
    times = [tombstones_would_be_kept_ms(configs) for configs in sides] + ([known.kept_ms] if known else [])
    return {"cleaned_until": now, "cleaned_kept_ms": min(times)}


def mirrors_with_lateness(mirrors: Iterable[MirrorTopic]) -> set[int]:
    """Return the mirrors (primary keys) with stored lateness, which the next reading of the source's configs checks."""
    late = MirrorPartition.objects.filter(mirror__in=[mirror.pk for mirror in mirrors]).exclude(late_until=None)
    return set(late.values_list("mirror_id", flat=True))


def judge_tombstones(mirror: MirrorTopic, *, queried_at: datetime, now: datetime) -> None:
    """Check stored lateness against the source's configs in the row, then delete it.

    Lateness that was stored after ``queried_at``, the time at which the configs were requested, waits for the next reading.
    """
    with transaction.atomic():
        rows = MirrorPartition.objects.select_for_update().filter(mirror=mirror, late_until__lte=queried_at - AHEAD)
        known = list(rows)
        kept = [late for row in known if (late := lateness_kept(row)) is not None]
        found = [
            (late, kept_ms) for late in kept if (kept_ms := _kept_ms(mirror, late)) is not None and _is_over(late, kept_ms)
        ]
        if found:
            _handle_late(mirror, found, now=now)
        MirrorPartition.objects.filter(pk__in=[row.pk for row in known]).update(late_since=None, late_until=None)


def _too_late(
    mirror: MirrorTopic, rows: Mapping[str, MirrorPartition], seen: Mapping[str, PartitionProgress]
) -> Iterator[_TooLate]:
    for number in range(mirror.num_partitions):
        key = f"{mirror_key(mirror)}/{number}"
        row, report = rows.get(key), seen.get(key)
        late = lateness_of(row, report) if row is not None and report is not None else None
        if late is None or report is None:
            continue
        kept_ms = _kept_ms(mirror, late)
        if kept_ms is None and _has_compaction_gaps(report):
            kept_ms = tombstones_would_be_kept_ms(mirror.source_configs)
        if kept_ms is not None and _is_over(late, kept_ms):
            yield late, kept_ms


def _kept_ms(mirror: MirrorTopic, late: Lateness) -> int | None:
    return kept_since(late.since - AHEAD, present=mirror.source_configs, known=_known_cleaned(mirror))


def _has_compaction_gaps(report: PartitionProgress) -> bool:
    return any(gap.reason is GapReason.COMPACTED for gap in report.gaps)


def _is_over(late: Lateness, kept_ms: int) -> bool:
    return _ms(late.until - late.since) > _span_ms(kept_ms)


def _span_ms(kept_ms: int) -> float:
    return max(_ms(LEAST_LATENESS), kept_ms)


def _known_cleaned(mirror: MirrorTopic) -> Cleaned | None:
    if mirror.cleaned_until is None or mirror.cleaned_kept_ms is None:
        return None
    return Cleaned(until=mirror.cleaned_until, kept_ms=mirror.cleaned_kept_ms)


def _is_needed(mirror: MirrorTopic, known: Cleaned) -> bool:
    """Return whether any partition was last complete before that time, or has stored lateness."""
    rows, long_ago = MirrorPartition.objects.filter(mirror=mirror), known.until + AHEAD
    in_sync_later = Q(behind=False, mirror__link__in_sync_at__gt=long_ago)
    lacking = rows.filter(complete_at__lte=long_ago).exclude(in_sync_later)
    return lacking.exists() or rows.exclude(late_until=None).exists()


def _handle_late(mirror: MirrorTopic, late: Collection[_TooLate], *, now: datetime) -> bool:
    alarmed = any(error.code == TOMBSTONES_MISSED for error in mirror.transition_errors.all())
    moved = [(lateness, kept_ms) for lateness, kept_ms in late if lateness.moved]
    complete = [
        lateness.partition
        for lateness, kept_ms in late
        if lateness.is_complete(_span_ms(kept_ms)) and (alarmed or lateness.moved)
    ]
    with transaction.atomic():
        if complete:
            coverage.recheck(mirror=mirror, partitions=complete, now=now)
        if not moved:
            return False
        first, kept_ms = min(moved, key=lambda found: found[0].since)
        return _alarm_tombstones(mirror, first, kept_ms=kept_ms, now=now)


def _alarm_tombstones(mirror: MirrorTopic, first: Lateness, *, kept_ms: int, now: datetime) -> bool:
    message = (
        f"'{mirror.name}' was behind its source from {utc_words(round(first.since.timestamp() * 1000))} on (partition "
        f"{first.partition}) for longer than the source keeps tombstones (delete.retention.ms={kept_ms}). Keys that were "
        "deleted on the source during that time may still have their old records on the mirror."
    )
    changed = transition_errors.note(mirror=mirror, code=TOMBSTONES_MISSED, message=message, now=now)
    if changed:
        _log.warning("tombstones.missed", mirror=mirror.name, link=mirror.link.name, since=first.since.isoformat())
    return changed


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000

"""Stores the reports of copy workers in MirrorPartition rows: latest offsets, totals, rates.

The counters of a report start at zero when a worker takes the partition: when its *hold* begins. The difference between two
reports of the same hold was copied in between; the first report of a new hold counts from zero.

    hold A   report ─── report ───── ending          ending: the last report of a hold, with what it copied since the
    hold B                    report ──── report     report before; it may arrive after the first report of the next hold

Therefore a row contains the counters of two holds, the current one (``hold_*``) and the one before (``former_*``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from console.models import MirrorPartition, MirrorTopic
from console.models.bulk_update import update_each
from console.models.mirrors import AHEAD, is_fresh, shows_source_end
from console.reconciling import lateness
from console.reconciling.isolation import Failures
from console.reconciling.lateness import time_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase, PartitionProgress

SMOOTHING = 0.5  # weight of the newest measurement: steady numbers that follow a change within two seconds
SILENT = timedelta(seconds=5)  # without a report for this long, the rate is unknown
SAME = timedelta(milliseconds=200)  # two readings of the same report differ by less, two reports of the same phase by more
# The source's end may have advanced unobserved: the last one observed would show a lag, perhaps 0, that is in fact unknown.
_SOURCE_UNSEEN = (PartitionPhase.SOURCE_UNREACHABLE, PartitionPhase.LINK_BROKEN)
_TIMES = ("caught_up_at", "whole_at", "late_since", "late_until", "last_source_seen_at", "observed_at")
_COPIED = ("source_start", "source_end", "mirror_start", "mirror_end", "last_timestamp_ms")
_ENDS = ("source_start", "source_end", "last_high_watermark", "mirror_start", "mirror_end")
_SHOWN = (*_ENDS, "phase", "error_code", "error_message")
_WRITTEN = (
    *_COPIED,
    "last_source_end",
    "last_source_seen_at",
    "last_high_watermark",
    "last_source_fetch_offset",
    "source_epoch",
    "source_epoch_end",
    "caught_up_at",
    "whole_at",
    "late_since",
    "late_until",
    "bytes_per_s",
    "records_per_s",
    "bytes_copied",
    "records_copied",
    "hold_id",
    "hold_bytes",
    "hold_records",
    "former_hold_id",
    "former_bytes",
    "former_records",
    "phase",
    "error_code",
    "error_message",
    "observed_at",
)


def store_progress(
    *,
    rows: Mapping[str, MirrorPartition],
    reports: Iterable[PartitionProgress],
    now: datetime,
    endings: Iterable[PartitionProgress] = (),
    failures: Failures | None = None,
) -> bool:
    """Store new reports in their rows (by key), all at once. Return whether anything changed that pages show.

    Of ``endings``, the kept last reports of holds in their order, only the counters are used: a later hold may have reported
    since.
    """
    seen, ended, failures = {report.key: report for report in reports}, _by_key(endings), failures or Failures(strict=True)
    changed, written, moved = False, [], set[str]()
    for key, row in rows.items():
        before, stored = _shown(row), [getattr(row, name) for name in _WRITTEN]
        with failures.of_mirror(row.mirror_id):
            if not _apply(row, seen.get(key), ended[key], now=now):
                continue
            written.append(row)
            moved |= {name for name, old in zip(_WRITTEN, stored, strict=True) if getattr(row, name) != old}
            changed |= _shown(row) != before
    sound = [row for row in written if not failures.has_failed(row.mirror_id)]
    failures.write_isolated(sound, partial(_write, fields=sorted(moved)))
    return changed


def _apply(
    row: MirrorPartition, report: PartitionProgress | None, endings: Iterable[PartitionProgress], *, now: datetime
) -> bool:
    """Apply a report and endings to their row, unsaved. Return whether there was anything new."""
    row.failed_again = False
    fresh = report is not None and _is_new(report, row, now)
    counted = [_count_ending(row, ending) for ending in endings]
    if report is not None and fresh:
        take_over(row, report)
    return any(counted) | fresh | _forget_ahead(row, now) | _forget_rates(row, now) | _forget_source(row, now)


def _write(rows: Sequence[MirrorPartition], *, fields: Sequence[str]) -> None:
    """Write the fields that changed in any of the rows. For an idle link these are little more than the time of the reports."""
    if fields:
        values = [([getattr(row, name) for name in fields], [row.pk]) for row in rows]
        update_each(MirrorPartition, fields=fields, keys=["id"], rows=values)


def ensure_rows(mirror: MirrorTopic) -> list[MirrorPartition]:
    """Return the rows of all partitions of a mirror. Missing rows are created."""
    rows = {row.partition: row for row in mirror.partitions.all()}
    missing = [n for n in range(mirror.num_partitions) if n not in rows]
    if missing:
        fresh = [MirrorPartition(mirror=mirror, partition=number) for number in missing]
        MirrorPartition.objects.bulk_create(fresh, ignore_conflicts=True)
        rows = {row.partition: row for row in MirrorPartition.objects.filter(mirror=mirror)}
    return [rows[number] for number in sorted(rows) if number < mirror.num_partitions]


def note_lacking(mirror: MirrorTopic, *, total: int, why: LinkEngineError) -> None:
    """Create rows with an error for partitions that could not be created on the mirror. Their offsets are unknown."""
    facts = {"error_code": why.code, "error_message": why.message}
    rows = [MirrorPartition(mirror=mirror, partition=number, **facts) for number in range(mirror.num_partitions, total)]
    MirrorPartition.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["mirror", "partition"], update_fields=[*facts]
    )


def take_over(row: MirrorPartition, report: PartitionProgress) -> None:
    """Copy a report into its row, unsaved. Values that are unknown in the report stay as they were."""
    observed_at = time_of(report.observed_at_ms)
    lateness.keep(row, lateness.lateness_of(row, report))
    row.whole_at = lateness.whole_at(row, report)
    row.failed_again = _failed_since(row.observed_at, report)
    _count(row, report, observed_at)
    _copy_known(row, report)
    if report.phase in _SOURCE_UNSEEN:
        row.source_end = None
    elif report.source_end is not None and report.source_seen_at_ms is not None:
        row.last_source_end, row.last_source_seen_at = report.source_end, time_of(report.source_seen_at_ms)
        row.last_high_watermark = report.source_high_watermark  # None if the copy worker does not report it
    if row.mirror_start is not None and row.mirror_end is not None and row.mirror_start > row.mirror_end:
        row.mirror_start = None  # read at different times; the next report has both
    if report.last_fetch_offset is not None:
        row.last_source_fetch_offset = report.last_fetch_offset
    if report.source_epoch is not None and report.mirror_end is not None:
        row.source_epoch, row.source_epoch_end = report.source_epoch, report.mirror_end
    if report.caught_up_at_ms is not None:
        row.caught_up_at = time_of(report.caught_up_at_ms)
    row.since_ms = report.since_ms
    row.phase, row.error_code, row.error_message = report.phase, report.error_code, report.error_message
    if row.stopped_end is not None and row.error_code == ErrorCode.MIRROR_WAS_STOPPED:  # by a stale copy worker; not an error
        row.error_code = row.error_message = ""
    row.observed_at = observed_at


def _copy_known(row: MirrorPartition, report: PartitionProgress) -> None:
    for name in _COPIED:
        value = getattr(report, name)
        if value is not None:
            setattr(row, name, value)
    if row.mirror_end is not None and report.unproven_end is not None:  # foreign writes can make the log longer, not shorter
        row.mirror_end = min(row.mirror_end, report.unproven_end)


def _is_new(report: PartitionProgress, row: MirrorPartition, now: datetime) -> bool:
    if row.observed_at is None or row.observed_at > now + AHEAD or report.hold_id != row.hold_id:
        return True
    later_by = time_of(report.observed_at_ms) - row.observed_at
    return later_by > (SAME if report.phase == row.phase else timedelta(0))


def _failed_since(observed_at: datetime | None, report: PartitionProgress) -> bool:
    """Return whether another attempt to read the source has failed since the last report that was stored."""
    return report.failed_at_ms is not None and (observed_at is None or time_of(report.failed_at_ms) > observed_at)


def _by_key(endings: Iterable[PartitionProgress]) -> dict[str, list[PartitionProgress]]:
    found: dict[str, list[PartitionProgress]] = defaultdict(list)
    for ending in endings:
        found[ending.key].append(ending)
    return found


def _count(row: MirrorPartition, report: PartitionProgress, observed_at: datetime) -> None:
    new_bytes, new_records = _add(row, report)
    elapsed_s = (observed_at - row.observed_at).total_seconds() if row.observed_at else 0.0
    if 0 < elapsed_s <= SILENT.total_seconds():
        row.bytes_per_s = _smooth(row.bytes_per_s, new_bytes / elapsed_s)
        row.records_per_s = _smooth(row.records_per_s, new_records / elapsed_s)


def _count_ending(row: MirrorPartition, ending: PartitionProgress) -> bool:
    """Add what a hold copied since its last report. Skips holds before the last two, whose counters are not stored."""
    current = row.hold_id
    if ending.hold_id not in {current, row.former_hold_id}:
        return False
    added = _add(row, ending)
    _use_counters_of(row, current)
    return any(added)


def _add(row: MirrorPartition, report: PartitionProgress) -> tuple[int, int]:
    """Count what is new in a report. Return the new bytes and records."""
    _use_counters_of(row, report.hold_id)
    new_bytes = max(0, report.bytes_copied - row.hold_bytes)  # a kept report may be older than the last one counted
    new_records = max(0, report.records_copied - row.hold_records)
    row.bytes_copied += new_bytes
    row.records_copied += new_records
    row.hold_bytes, row.hold_records = row.hold_bytes + new_bytes, row.hold_records + new_records
    return new_bytes, new_records


def _use_counters_of(row: MirrorPartition, hold_id: str) -> None:
    """Make this hold the current one of the row. The hold that was current becomes the former one."""
    if hold_id == row.hold_id:
        return
    known, former = (row.hold_id, row.hold_bytes, row.hold_records), (row.former_bytes, row.former_records)
    counted = former if hold_id == row.former_hold_id else (0, 0)
    row.hold_id, (row.hold_bytes, row.hold_records) = hold_id, counted
    row.former_hold_id, row.former_bytes, row.former_records = known


def _smooth(old: float | None, new: float) -> float:
    value = new if old is None else old + SMOOTHING * (new - old)
    return value if value >= 1 else 0.0  # an idle partition shows 0, not a long tail of fractions


def _forget_rates(row: MirrorPartition, now: datetime) -> bool:
    is_current = is_fresh(row.observed_at, now=now, within=SILENT)
    if is_current or (row.bytes_per_s is None and row.records_per_s is None):
        return False
    row.bytes_per_s = row.records_per_s = None
    return True


def _forget_ahead(row: MirrorPartition, now: datetime) -> bool:
    """Remove times in the future, which are stored if a clock is set back afterwards: they are meaningless."""
    ahead = [name for name in _TIMES if (at := getattr(row, name)) is not None and at > now + AHEAD]
    for name in ahead:
        setattr(row, name, None)
    return bool(ahead)


def _forget_source(row: MirrorPartition, now: datetime) -> bool:
    """Make the lag unknown once it is no longer measured: the mirror is paused, failed or stopped, or its copy worker hangs."""
    if row.source_end is None or shows_source_end(row.last_source_seen_at, now=now):
        return False
    row.source_end = None
    return True


def _shown(row: MirrorPartition) -> tuple[object, ...]:
    rates = tuple(None if rate is None else round(rate) for rate in (row.bytes_per_s, row.records_per_s))
    return (*(getattr(row, name) for name in _SHOWN), *rates)

"""Stores reports of copy workers in MirrorPartition rows, and computes how long a partition was incomplete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from console.mirrors import progress
from console.mirrors.progress import time_of
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, is_fresh, shows_source_end
from console.models.row_changes import update_each
from console.reconciling.transition_errors import Failures
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionPhase, PartitionProgress

# --- incomplete partitions and late records ---------------------------------------------------------------------------
#
# A partition is incomplete while it lacks offsets that its source's log cleaner may clean. Lateness with copied records is
# stored in the row (``late_since``, ``late_until``): the configs that the source had during that time may be read only later,
# and they decide whether the records came too late (``gaps``).


# A hand-over between copy workers may take that long. No log cleaner runs twice in this time.
LEAST_LATENESS = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A span of time in which a partition was incomplete."""

    partition: int
    since: datetime
    until: datetime
    moved: bool  # something was copied that late
    complete_at: datetime | None  # when it was last complete, as known now

    def is_complete(self, within_ms: float) -> bool:
        """Return whether the partition is complete again: it was complete within the last ``within_ms`` of the span."""
        return self.complete_at is not None and (self.until - self.complete_at) / timedelta(milliseconds=1) <= within_ms


def lateness_of(row: MirrorPartition, report: PartitionProgress) -> Lateness | None:
    """Return the lateness that a report shows, compared with its row before the report is applied to it.

    None if it is unknown, or at most ``LEAST_LATENESS``.
    """
    if row.complete_at is None or report.mirror_end is None:
        return None
    at = time_of(report.observed_at_ms)
    if at - row.complete_at <= LEAST_LATENESS:
        return None
    known = last_complete_at(row, report)
    return Lateness(partition=row.partition, since=row.complete_at, until=at, moved=_moved(row, report), complete_at=known)


def lateness_kept(row: MirrorPartition) -> Lateness | None:
    """Return the lateness that is stored in the row."""
    if row.late_since is None or row.late_until is None:
        return None
    return Lateness(
        partition=row.partition, since=row.late_since, until=row.late_until, moved=True, complete_at=row.complete_at
    )


def keep_lateness(row: MirrorPartition, late: Lateness | None) -> None:
    """Store lateness in its row, unsaved. It is merged with stored lateness into a single span."""
    if late is None or not late.moved:
        return
    row.late_since = min(row.late_since or late.since, late.since)
    row.late_until = late.until


def last_complete_at(row: MirrorPartition, report: PartitionProgress) -> datetime | None:
    """Return when the mirror was last complete, or when the copy began if it never was."""
    begins = row.complete_at is None and report.mirror_end is not None
    times = (time_of(report.observed_at_ms) if begins else None, reported_complete_at(report), row.complete_at)
    return max((at for at in times if at is not None), default=None)


def reported_complete_at(report: PartitionProgress) -> datetime | None:
    """Return when the mirror was last complete according to a report; None if it does not say.

    The log cleaner cleans nothing after the last stable offset, so a mirror is complete if it has all offsets below that, also
    while open transactions keep the high watermark ahead of it.
    """
    ends = report.mirror_end, report.source_end
    is_complete = ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]
    times = (report.source_seen_at_ms if is_complete else None, report.caught_up_at_ms)
    known = [unix_ms for unix_ms in times if unix_ms is not None]
    return time_of(max(known)) if known else None


def _moved(row: MirrorPartition, report: PartitionProgress) -> bool:
    if row.mirror_end is None or report.mirror_end is None:  # the first report of a mirror, or after its topic was created anew
        return bool(report.bytes_copied or report.gaps)
    return report.mirror_end > row.mirror_end


# --- what is stored, and when -----------------------------------------------------------------------------------------
#
# * Stored immediately, because the reconciler acts on it or a crash must not lose it: phase, error, copy run, a mirror that
#   became shorter, leader epoch, the first report, the last report of a copy run, ``behind``.
# * Stored as samples, at most every ``EVERY``, the rows stored longest ago first: offsets, counters and rates that have
#   changed.
# * Not stored: times of idle partitions, for which ``ClusterLink.in_sync_at`` stands.
#
# The newest values are in Redis (``console.mirrors.progress``).
#
# The counters of a report start at zero when a worker starts the partition, with a new ``copy_run_id``. The difference
# between two reports of the same run was copied in between; the first report of a new run counts from zero.
#
#     run A   report ─── report ───── ending          ending: the last report of a run, with what it copied since the
#     run B                   report ──── report      report before; it may arrive after the first report of the next run
#
# Therefore a row contains the counters of two runs, the current one (``copy_run_*``) and the one before (``former_*``).


EVERY = timedelta(seconds=10)  # between two samples of a partition
SAMPLES = 200  # rows of a link at a time; if more partitions copy records, each is sampled less often
_NEVER = datetime.fromtimestamp(0, tz=UTC)
IN_SYNC_EVERY = timedelta(seconds=4)  # between two updates of ``ClusterLink.in_sync_at``; below ``LEAST_LATENESS``
_FORGETTABLE = ("complete_at", "late_since", "late_until")
_ENDS = ("source_start", "source_end", "last_high_watermark", "mirror_start", "mirror_end")
_SHOWN = (*_ENDS, "phase", "error_code", "error_message")
_RATES = ("bytes_per_s", "records_per_s")  # shown rounded
_AT_ONCE = ("phase", "error_code", "error_message", "copy_run_id", "source_epoch", "behind")
_MOVING = (  # a change of these makes a sample due
    "source_start",
    "last_source_end",
    "last_high_watermark",
    "mirror_start",
    "mirror_end",
    "last_source_fetch_offset",
    "source_epoch_end",
    "last_timestamp_ms",
    "late_since",
    "bytes_per_s",
    "records_per_s",
    "bytes_copied",
    "records_copied",
)
_STORED_WITH_OTHERS = (  # a change of these alone does not store the row
    "source_end",
    "last_source_seen_at",
    "caught_up_at",
    "complete_at",
    "late_until",
    "copy_run_bytes",
    "copy_run_records",
    "former_copy_run_id",
    "former_bytes",
    "former_records",
    "observed_at",
)
_WRITTEN = (*_AT_ONCE, *_MOVING, *_STORED_WITH_OTHERS)
_VALUES = attrgetter(*_WRITTEN)


def store_progress(
    *,
    rows: Mapping[str, MirrorPartition],
    reports: Iterable[PartitionProgress],
    now: datetime,
    endings: Iterable[PartitionProgress] = (),
    failures: Failures | None = None,
    at_once: Collection[int] = (),
    samples: int = SAMPLES,
) -> bool:
    """Apply new reports to their rows (by key), and store the rows that are due. Return whether pages show a change.

    Of ``endings``, the kept last reports of copy runs in their order, only the counters are used: a later run may have reported
    since. ``at_once`` are primary keys of mirrors whose rows are stored whatever changed. ``samples`` limits the number of rows
    that are stored although they are not urgent.
    """
    seen, ended, failures = {report.key: report for report in reports}, _by_key(endings), failures or Failures(strict=True)
    changed, moved = False, set[str]()
    urgent: list[MirrorPartition] = []
    due: list[tuple[datetime, int, MirrorPartition]] = []
    for key, row in rows.items():
        stored = _VALUES(row)
        with failures.of_mirror(row.mirror_id):
            counted = _apply(row, seen.get(key), ended[key], now=now)
            former = {name: old for name, old, new in zip(_WRITTEN, stored, _VALUES(row), strict=True) if new != old}
            changed |= _is_shown(row, former)
            if row.complete_at_is_shared:  # the row has the link's time now and is stored with it, if it is stored
                former.setdefault("complete_at", row.complete_at)
            if counted or _is_urgent(row, former) or (former and row.mirror_id in at_once):
                urgent.append(row)
            elif _is_due(row, former, now=now):
                due.append((_stored_at(row, former), row.pk, row))
            else:
                continue
            moved |= former.keys()
    written = [*urgent, *(row for _, _, row in sorted(due, key=itemgetter(0, 1))[:samples])]
    sound = [row for row in written if not failures.has_failed(row.mirror_id)]
    failures.write_isolated(sound, partial(_write, fields=sorted(moved)))
    return changed


def note_in_sync(link: ClusterLink, rows: Iterable[MirrorPartition], *, now: datetime) -> None:
    """Store, once for all partitions that are not behind, when they were in sync. Call it after their rows were stored."""
    times = [row.complete_at for row in rows if not row.behind and row.complete_at is not None]
    note_in_sync_at(link, min(times, default=None), now=now)


def note_in_sync_at(link: ClusterLink, in_sync_at: datetime | None, *, now: datetime) -> None:
    """Store a time at which all partitions that are not behind were in sync; None: there are no such partitions."""
    if in_sync_at is None:
        return
    known = link.in_sync_at
    # a time ahead of now would hide how late the mirrors of the link are
    if known is None or known > now + AHEAD or in_sync_at - known >= IN_SYNC_EVERY:
        ClusterLink.objects.filter(pk=link.pk).update(in_sync_at=in_sync_at)
        link.in_sync_at = in_sync_at


def raise_complete_at(link: ClusterLink, rows: Iterable[MirrorPartition]) -> None:
    """Raise ``complete_at`` of rows that are not behind to the time that is stored for all of them, unsaved."""
    if link.in_sync_at is None:
        return
    for row in rows:
        if not row.behind and row.complete_at is not None:
            row.complete_at_is_shared = row.complete_at_is_shared or link.in_sync_at > row.complete_at
            row.complete_at = max(row.complete_at, link.in_sync_at)


def copy_report(row: MirrorPartition, report: PartitionProgress) -> None:
    """Copy a report into its row, unsaved. Values that are unknown in the report stay as they were."""
    keep_lateness(row, lateness_of(row, report))
    row.complete_at = last_complete_at(row, report)
    row.failed_again = _failed_since(row.observed_at, report)
    progress.apply(row, report)


def note_missing_partitions(mirror: MirrorTopic, *, total: int, why: LinkEngineError) -> None:
    """Create rows with an error for partitions that could not be created on the mirror. Their offsets are unknown."""
    facts = {"error_code": why.code, "error_message": why.message}
    rows = [MirrorPartition(mirror=mirror, partition=number, **facts) for number in range(mirror.num_partitions, total)]
    MirrorPartition.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["mirror", "partition"], update_fields=[*facts]
    )


def _apply(
    row: MirrorPartition, report: PartitionProgress | None, endings: Iterable[PartitionProgress], *, now: datetime
) -> bool:
    """Apply a report and endings to their row, unsaved. Return whether the endings added to its counters."""
    row.failed_again = False
    fresh = report is not None and progress.is_new(report, row, now)
    counted = [_count_ending(row, ending) for ending in endings]
    if report is not None and fresh:
        copy_report(row, report)
    progress.clear_outdated(row, now)
    if not shows_source_end(row.last_source_seen_at, now=now):
        row.source_end = None
    if row.observed_at is None:
        row.bytes_per_s = row.records_per_s = None
    for name in _FORGETTABLE:
        at = getattr(row, name)
        if at is not None and at > now + AHEAD:  # a clock was set back: a future time would hide missed tombstones
            setattr(row, name, None)
    copying = row.phase == PartitionPhase.COPYING  # ``in_sync_at`` also advances while this partition is not copied
    row.behind = not (copying and is_fresh(row.complete_at, now=now, within=LEAST_LATENESS))
    return any(counted)


# ``former`` below: the stored values of the fields that have changed, by name.


def _is_urgent(row: MirrorPartition, former: Mapping[str, object]) -> bool:
    first = any(name in former and former[name] is None for name in ("observed_at", "complete_at", "mirror_end", "late_since"))
    return first or row.failed_again or any(name in former for name in _AT_ONCE) or _is_set_back(row, former)


def _is_set_back(row: MirrorPartition, former: Mapping[str, object]) -> bool:
    before = former.get("mirror_end")
    return isinstance(before, int) and (row.mirror_end is None or row.mirror_end < before)


def _is_due(row: MirrorPartition, former: Mapping[str, object], *, now: datetime) -> bool:
    """Return whether a sample is due: offsets or counters have changed since the last one, or the partition is behind."""
    if not (row.behind or any(name in former for name in _MOVING)):
        return False
    return bool(former) and not timedelta(0) <= now - _stored_at(row, former) < EVERY


def _stored_at(row: MirrorPartition, former: Mapping[str, object]) -> datetime:
    """Return when the stored values were observed; in 1970 if never."""
    at = former.get("observed_at", row.observed_at)
    return at if isinstance(at, datetime) else _NEVER


def _write(rows: Sequence[MirrorPartition], *, fields: Sequence[str]) -> None:
    """Write the fields that changed in any of the rows."""
    if fields:
        values = [([getattr(row, name) for name in fields], [row.pk]) for row in rows]
        update_each(MirrorPartition, fields=fields, keys=["id"], rows=values)


def _failed_since(observed_at: datetime | None, report: PartitionProgress) -> bool:
    """Return whether another attempt to read the source has failed since the last report that was applied."""
    return report.failed_at_ms is not None and (observed_at is None or time_of(report.failed_at_ms) > observed_at)


def _by_key(endings: Iterable[PartitionProgress]) -> dict[str, list[PartitionProgress]]:
    found: dict[str, list[PartitionProgress]] = defaultdict(list)
    for ending in endings:
        found[ending.key].append(ending)
    return found


def _count_ending(row: MirrorPartition, ending: PartitionProgress) -> bool:
    """Add what a copy run copied since its last report. Skips runs before the last two, whose counters are not stored."""
    current = row.copy_run_id
    if ending.copy_run_id not in {current, row.former_copy_run_id}:
        return False
    added = progress.add_counters(row, ending)
    progress.use_counters_of(row, current)
    return added


def _is_shown(row: MirrorPartition, former: Mapping[str, Any]) -> bool:
    """Return whether pages show any of the changes; ``former`` has the former values of changed fields."""
    if not former:
        return False
    return any(name in former for name in _SHOWN) or any(
        name in former and _rounded(former[name]) != _rounded(getattr(row, name)) for name in _RATES
    )


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)

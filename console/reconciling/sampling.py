"""Reports of copy workers become MirrorPartition rows: what must be durable at once, everything else as samples.

A row is stored at once where the reconciler acts on it or a crash must not lose it: phase, error, owner (hold), a set-back of
the mirror's end, the leader epoch, the first report, the end of a copy, and ``behind``. Offsets, counters and rates that move
are samples: every ``EVERY`` at most, of the rows stored longest ago first. What only got older is not stored at all: idle
partitions cost no write (``ClusterLink.level_at`` stands for them). The newest values are in Redis (``mirrors.progress``).

Counters of a report count since a worker took the partition (its *hold*), so the difference to the last report of the same hold
is what was copied in between; a hold that is seen first counts from zero. What was copied after the last report that was read
is in the hold's ending, which comes when its successor reports already: so the counters of both are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter

from console.mirrors import progress
from console.mirrors.progress import time_of
from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.bulk_update import update_each
from console.models.mirrors import AHEAD, UNSEEN, is_fresh
from console.reconciling import lateness
from console.reconciling.isolation import Failures
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import PartitionPhase, PartitionProgress

EVERY = timedelta(seconds=10)  # between two samples of one partition
SAMPLES = 200  # of one link at a time; with more partitions that move each is sampled less often
LEVEL_EVERY = timedelta(seconds=4)  # between two notes of ``ClusterLink.level_at``; below ``lateness.LEAST``
_FORGETTABLE = ("whole_at", "late_since", "late_until")
_ENDS = ("source_start", "source_end", "last_high_watermark", "mirror_start", "mirror_end")
_SHOWN = (*_ENDS, "phase", "error_code", "error_message")
_AT_ONCE = ("phase", "error_code", "error_message", "hold_id", "source_epoch", "behind")
_MOVING = (
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
_BY_THE_WAY = (
    "source_end",
    "last_source_seen_at",
    "caught_up_at",
    "whole_at",
    "late_until",
    "hold_bytes",
    "hold_records",
    "former_hold_id",
    "former_bytes",
    "former_records",
    "observed_at",
)
_WRITTEN = (*_AT_ONCE, *_MOVING, *_BY_THE_WAY)


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
    """Take new reports into their rows (by key) and store what is due; return whether a page would show something new.

    Of ``endings``, which were kept until now, in their order, only the counters count: later ones may have reported since.
    ``at_once``: mirrors, by primary key, of which everything is stored. ``samples``: so many rows at most that are not urgent.
    """
    seen, ended, failures = {one.key: one for one in reports}, _by_key(endings), failures or Failures(strict=True)
    changed, moved = False, set[str]()
    urgent: list[MirrorPartition] = []
    due: list[tuple[float, int, MirrorPartition]] = []
    for key, row in rows.items():
        before, stored = _shown(row), [getattr(row, name) for name in _WRITTEN]
        with failures.of_mirror(row.mirror_id):
            counted = _take_in(row, seen.get(key), ended[key], now=now)
            news = {name: old for name, old in zip(_WRITTEN, stored, strict=True) if getattr(row, name) != old}
            changed |= bool(news) and _shown(row) != before
            if row.lifted:  # what was noted for all is this row's own from now on, if it is stored
                news.setdefault("whole_at", row.whole_at)
            if counted or _is_urgent(row, news) or (news and row.mirror_id in at_once):
                urgent.append(row)
            elif _is_due(row, news, now=now):
                due.append((_stored_at(row, news), row.pk, row))
            else:
                continue
            moved |= news.keys()
    written = [*urgent, *(row for _, _, row in sorted(due, key=itemgetter(0, 1))[:samples])]
    sound = [row for row in written if not failures.has_failed(row.mirror_id)]
    failures.write_isolated(sound, partial(_write, fields=sorted(moved)))
    return changed


def note_level(link: ClusterLink, rows: Iterable[MirrorPartition], *, now: datetime) -> None:
    """Note, once for all partitions that are not behind, when they had everything. Call it after their rows were stored."""
    times = [at for row in rows if not row.behind and (at := _level_at(row)) is not None]
    note_level_at(link, min(times, default=None), now=now)


def note_level_at(link: ClusterLink, level_at: datetime | None, *, now: datetime) -> None:
    """Note a time at which all partitions that are not behind had everything; None: there are none."""
    if level_at is None:
        return
    known = link.level_at
    if known is None or known > now + AHEAD or level_at - known >= LEVEL_EVERY:
        ClusterLink.objects.filter(pk=link.pk).update(level_at=level_at)
        link.level_at = level_at


def lift_level(link: ClusterLink, rows: Iterable[MirrorPartition]) -> None:
    """Give rows that are not behind the time that was noted for all of them, unsaved."""
    if link.level_at is None:
        return
    for row in rows:
        if not row.behind and row.whole_at is not None:
            row.lifted = row.lifted or link.level_at > row.whole_at
            row.whole_at = max(row.whole_at, link.level_at)


def take_over(row: MirrorPartition, report: PartitionProgress) -> None:
    """Copy one report into its row, unsaved. What the report does not know stays as it was."""
    lateness.keep(row, lateness.lateness_of(row, report))
    row.whole_at = lateness.whole_at(row, report)
    row.failed_again = _failed_since(row.observed_at, report)
    progress.apply(row, report)


def ensure_rows(mirror: MirrorTopic) -> list[MirrorPartition]:
    """Answer the rows of all partitions of a mirror, making those that lack."""
    rows = {row.partition: row for row in mirror.partitions.all()}
    missing = [n for n in range(mirror.num_partitions) if n not in rows]
    if missing:
        fresh = [MirrorPartition(mirror=mirror, partition=number) for number in missing]
        MirrorPartition.objects.bulk_create(fresh, ignore_conflicts=True)
        rows = {row.partition: row for row in MirrorPartition.objects.filter(mirror=mirror)}
    return [rows[number] for number in sorted(rows) if number < mirror.num_partitions]


def note_lacking(mirror: MirrorTopic, *, total: int, why: LinkEngineError) -> None:
    """Give partitions that the source has and the mirror could not be given rows of their own: nobody knows what they hold."""
    facts = {"error_code": why.code, "error_message": why.message}
    rows = [MirrorPartition(mirror=mirror, partition=number, **facts) for number in range(mirror.num_partitions, total)]
    MirrorPartition.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["mirror", "partition"], update_fields=[*facts]
    )


def _take_in(
    row: MirrorPartition, report: PartitionProgress | None, endings: Iterable[PartitionProgress], *, now: datetime
) -> bool:
    """Take a report, and the ends of holds, into their row, unsaved; return whether an end had something to count."""
    row.failed_again = False
    fresh = report is not None and progress.is_new(report, row, now)
    counted = [_count_ending(row, ending) for ending in endings]
    if report is not None and fresh:
        take_over(row, report)
    progress.forget_old(row, now)
    if not is_fresh(row.last_source_seen_at, now=now, within=UNSEEN):
        row.source_end = None
    if row.observed_at is None:
        row.bytes_per_s = row.records_per_s = None
    for name in _FORGETTABLE:
        at = getattr(row, name)
        if at is not None and at > now + AHEAD:  # of a clock that was set back: unknown
            setattr(row, name, None)
    level_at = _level_at(row)
    copying = row.phase == PartitionPhase.COPYING  # ``ClusterLink.level_at`` goes on without those that are not copied
    row.behind = not (copying and is_fresh(level_at, now=now, within=lateness.LEAST))
    return any(counted)


def _level_at(row: MirrorPartition) -> datetime | None:
    """Return when the row last had everything its source may clean, and everything below the high watermark."""
    return None if row.whole_at is None or row.caught_up_at is None else min(row.whole_at, row.caught_up_at)


def _is_urgent(row: MirrorPartition, news: Mapping[str, object]) -> bool:
    first = any(name in news and news[name] is None for name in ("observed_at", "whole_at", "mirror_end", "late_since"))
    return first or row.failed_again or any(name in news for name in _AT_ONCE) or _is_set_back(row, news)


def _is_set_back(row: MirrorPartition, news: Mapping[str, object]) -> bool:
    before = news.get("mirror_end")
    return isinstance(before, int) and (row.mirror_end is None or row.mirror_end < before)


def _is_due(row: MirrorPartition, news: Mapping[str, object], *, now: datetime) -> bool:
    """Return whether a sample is due: something moved since the last one, or the row is behind and ages."""
    if not news or timedelta(0) <= now - datetime.fromtimestamp(_stored_at(row, news), tz=UTC) < EVERY:
        return False
    return row.behind or any(name in news for name in _MOVING)


def _stored_at(row: MirrorPartition, news: Mapping[str, object]) -> float:
    """Return when what the database has was observed (Unix seconds); 0 where it was never."""
    at = news.get("observed_at", row.observed_at)
    return at.timestamp() if isinstance(at, datetime) else 0.0


def _write(rows: Sequence[MirrorPartition], *, fields: Sequence[str]) -> None:
    """Write the fields that have moved in any of the rows."""
    if fields:
        values = [([getattr(row, name) for name in fields], [row.pk]) for row in rows]
        update_each(MirrorPartition, fields=fields, keys=["id"], rows=values)


def _failed_since(observed_at: datetime | None, report: PartitionProgress) -> bool:
    """Tell whether another try has failed since the last report that was taken over."""
    return report.failed_at_ms is not None and (observed_at is None or time_of(report.failed_at_ms) > observed_at)


def _by_key(endings: Iterable[PartitionProgress]) -> dict[str, list[PartitionProgress]]:
    found: dict[str, list[PartitionProgress]] = defaultdict(list)
    for one in endings:
        found[one.key].append(one)
    return found


def _count_ending(row: MirrorPartition, ending: PartitionProgress) -> bool:
    """Add what a hold copied since its last report; of one from before the last two nobody knows what was counted."""
    current = row.hold_id
    if ending.hold_id not in {current, row.former_hold_id}:
        return False
    added = progress.count(row, ending)
    progress.turn_to(row, current)
    return added


def _shown(row: MirrorPartition) -> tuple[object, ...]:
    rates = tuple(None if rate is None else round(rate) for rate in (row.bytes_per_s, row.records_per_s))
    return (*(getattr(row, name) for name in _SHOWN), *rates)

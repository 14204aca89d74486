"""The ledger of verified ranges, its alarm where records differ, and the schedule of continuous verification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import groupby

import structlog
from django.db import transaction

from console import audit
from console.actors import ENGINE
from console.models import (
    ClusterLink,
    MirrorPartition,
    MirrorTopic,
    StateTransitionError,
    VerifiedRange,
    VerifyRun,
    VerifyWatch,
)
from console.models.links import show_change
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import transition_errors
from console.reconciling.plans import config_of, mirror_key
from console.redis import locks
from console.verification import actions as verification_actions
from console.verification.queries import WATCHED, continuous_links
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import PartitionProgress, VerifyReport
from linkengine.domain.ranges import CheckedRange, OffsetRange, RecordDifference, combine

# --- the ledger of verified ranges ------------------------------------------------------------------------------------
#
# Each ``VerifiedRange`` row is a range of offsets of a mirror partition with its hash and number of differences; neighbours
# that are equal on both sides are merged, so that there are as few rows as possible. Offsets without a row are still to be
# compared.
#
# A result counts only for the logs that were compared. It is removed, or not stored,
#
# * if either topic was created anew (``keep_for``),
# * for the offsets that the mirror or its source has lost since (``forget_lost``); a run that was in progress has compared the
#   lost records, so its equal ranges do not count (``ranges_removed_at``),
# * if the source may have compacted keys away whose tombstones the mirror never received (``recheck``).


KNOWN_LOSS_MS = 3_600_000  # since a report with the loss was last processed; longer than any report is kept
_log = structlog.get_logger(__name__)
Covered = dict[int, list[OffsetRange]]


def covered(mirror: MirrorTopic) -> Covered:
    """Return the offsets that were compared, by partition, including those that differ."""
    found: Covered = defaultdict(list)
    for partition, start, end in mirror.verified_ranges.values_list("partition", "start", "end"):
        found[partition].append(OffsetRange(start, end))
    return found


def note_report(*, mirror: MirrorTopic, report: VerifyReport, now: datetime, run: VerifyRun | None = None) -> bool:
    """Store the result of a verification run and raise the alarm if records differ. Return whether its equal ranges count.

    ``mirror`` is the row as it was when the run started: if a topic was created anew since, the result is dropped, and if the
    ranges were removed since, only the differences count. Only a ``run`` that a user requested can end the alarm.
    """
    with transaction.atomic():
        current = MirrorTopic.objects.select_for_update(of=("self",)).get(
            pk=mirror.pk
        )  # a single writer of the ledger at a time
        if _topics(current) != _topics(mirror):
            return False
        removed_since = current.ranges_removed_at != mirror.ranges_removed_at
        checked = [part for part in report.checked if part.differences or not removed_since]
        ordered = sorted(checked, key=lambda part: (part.partition, part.start))
        before = verification_actions.differing(mirror)
        for partition, ranges in groupby(ordered, key=lambda part: part.partition):
            fresh = [_row(mirror, part, report.first_differences, now=now) for part in ranges]
            _store(mirror, partition, fresh)
        if report.differences:
            _alarm(mirror, now=now)
        elif run is not None and not removed_since:
            _end_differences(mirror, before, run=run, now=now)
            _end_recheck(mirror, run=run, now=now)
        show_change(mirror.link_id)
    return not removed_since


def keep_for(*, mirror: MirrorTopic, made: MirrorCreated, now: datetime) -> None:
    """Drop the ledger if either topic was created anew. Called before the row gets the new topic ids."""
    ids = {"source_topic_id": made.source_topic_id, "mirror_topic_id": made.mirror_topic_id}
    verification_actions.keep_ledger(mirror=mirror, **ids, now=now)


def recheck(*, mirror: MirrorTopic, partitions: Sequence[int], now: datetime) -> None:
    """Remove the equal ranges of partitions: the source may have deleted keys since, and the mirror has no tombstones."""
    with transaction.atomic():
        MirrorTopic.objects.select_for_update(of=("self",)).get(pk=mirror.pk)
        mirror.verified_ranges.filter(partition__in=partitions, differences=0).delete()
        MirrorTopic.objects.filter(pk=mirror.pk).update(ranges_removed_at=now)


def forget_lost(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Iterable[PartitionProgress],
    now: datetime,
    endings: Iterable[PartitionProgress] = (),
) -> bool:
    """Remove the verified ranges that the mirror or its source has lost; called before the rows get the new ends.

    Lost offsets are copied again, with other records. A verification run in progress has compared the lost ones. ``endings``
    are the last reports of leases that have ended. They show losses that no other report showed, but their ends are out of
    date. Returns whether anything was lost.
    """
    running = _running(reports, rows)
    reported = (*_running(endings, rows), *running)
    losses = [report for report in reported if _loss_end(report) is not None and not _is_known(report)]
    found = [(report.key, _loss_end(report)) for report in losses]
    found += [(report.key, _lowest(report)) for report in running if _is_shorter(rows[report.key], report)]
    ends: dict[str, int | None] = {}
    for key, end in found:
        ends[key] = _least(ends.get(key), end)
    for mirror in mirrors if ends else ():
        for number in range(mirror.num_partitions):
            if (end := ends.get(f"{mirror_key(mirror)}/{number}")) is not None:
                _cut(mirror, number, end, now=now)
    for report in losses:  # each further report of the same lease repeats the loss
        locks.claim(_loss_name(report), ttl_ms=KNOWN_LOSS_MS)
    return bool(ends)


def _running(reports: Iterable[PartitionProgress], rows: Mapping[str, MirrorPartition]) -> list[PartitionProgress]:
    """Return the reports of partitions that are not stopped; the fence of a stopped partition marks its end exactly."""
    return [report for report in reports if report.key in rows and rows[report.key].stopped_end is None]


def _is_known(report: PartitionProgress) -> bool:
    """Return whether the loss was processed before; it is repeated in all reports of the lease, which may last for weeks."""
    return locks.prolong_claim(_loss_name(report), ttl_ms=KNOWN_LOSS_MS)


def _loss_name(report: PartitionProgress) -> str:
    return f"set-back:{report.key}:{report.copy_run_id}:{report.set_backs}:{report.source_kept}"


def _loss_end(report: PartitionProgress) -> int | None:
    """Return the offset up to which both sides still have what was copied, None if the report shows no loss."""
    return _least(report.set_back_to, report.source_kept)


def _lowest(report: PartitionProgress) -> int | None:
    return _least(report.seen_end, report.set_back_to, report.source_kept)


def _least(*ends: int | None) -> int | None:
    """Return the lowest of the known ends."""
    return min((end for end in ends if end is not None), default=None)


def _is_shorter(row: MirrorPartition, report: PartitionProgress) -> bool:
    """Return whether the mirror ends before its last known end. Losses that were copied again show in the report only."""
    return row.mirror_end is not None and report.seen_end is not None and report.seen_end < row.mirror_end


def _cut(mirror: MirrorTopic, partition: int, end: int, *, now: datetime) -> None:
    with transaction.atomic():
        MirrorTopic.objects.select_for_update(of=("self",)).get(pk=mirror.pk)
        gone = mirror.verified_ranges.filter(partition=partition, end__gt=end, differences=0)
        kept = [_part(row, row.start, end) for row in gone if row.start < end]
        gone.delete()
        VerifiedRange.objects.bulk_create(kept)
        MirrorTopic.objects.filter(pk=mirror.pk).update(ranges_removed_at=now)
    _log.warning("verify.log_truncated", mirror=mirror.name, link=mirror.link.name, partition=partition, end=end)


def _end_recheck(mirror: MirrorTopic, *, run: VerifyRun, now: datetime) -> None:
    """End the alarm for missed tombstones if none was missed since this run of the whole mirror started."""
    if run.started_at is None:
        return
    missed = StateTransitionError.objects.filter(mirror=mirror, code=TOMBSTONES_MISSED, last_seen_at__lt=run.started_at)
    for error in missed:
        detail = {"run": run.pk, "requested_by": run.requested_by, "message": error.message}
        audit.record(by=ENGINE, action="EndTombstoneAlarm", resource=audit.path_of(mirror), now=now, detail=detail)
    missed.end(now=now)


def _end_differences(mirror: MirrorTopic, before: Sequence[VerifiedRange], *, run: VerifyRun, now: datetime) -> None:
    """End the alarm if each differing offset was found equal or is no longer on the mirror.

    Not called after a run that found a difference.
    """
    for partition, start in mirror.partitions.exclude(mirror_start=None).values_list("partition", "mirror_start"):
        mirror.verified_ranges.filter(partition=partition, differences__gt=0, end__lte=start).delete()
    if not verification_actions.differing(mirror):
        verification_actions.end_alarm(
            mirror=mirror, ended=before, now=now, why={"run": run.pk, "requested_by": run.requested_by}
        )
    elif before:
        _alarm(mirror, now=now)


def _topics(mirror: MirrorTopic) -> tuple[str, str]:
    return mirror.source_topic_id, mirror.mirror_topic_id


def _row(mirror: MirrorTopic, part: CheckedRange, differences: Sequence[RecordDifference], *, now: datetime) -> VerifiedRange:
    first = next((d for d in differences if d.partition == part.partition and part.start <= d.offset < part.end), None)
    return VerifiedRange(
        mirror=mirror,
        partition=part.partition,
        start=part.start,
        end=part.end,
        records=part.records,
        hash=part.hash,
        differences=part.differences,
        first_difference=None if first is None else asdict(first),
        first_verified_at=now,
        verified_at=now,
    )


def _store(mirror: MirrorTopic, partition: int, fresh: list[VerifiedRange]) -> None:
    rows = mirror.verified_ranges.filter(partition=partition, end__gte=fresh[0].start, start__lte=fresh[-1].end)
    old = list(rows)
    rows.delete()
    kept = [rest for row in old for rest in _outside(row, fresh[0].start, fresh[-1].end)]
    VerifiedRange.objects.bulk_create(_merged([*kept, *fresh]))


def _outside(row: VerifiedRange, start: int, end: int) -> Iterable[VerifiedRange]:
    """Return the parts of an older row outside the range that a new result replaces."""
    if row.end <= start or row.start >= end:
        return [_part(row, row.start, row.end)]
    return [_part(row, *piece) for piece in ((row.start, start), (end, row.end)) if piece[0] < piece[1]]


def _part(row: VerifiedRange, start: int, end: int) -> VerifiedRange:
    whole = (start, end) == (row.start, row.end)
    return VerifiedRange(
        mirror_id=row.mirror_id,
        partition=row.partition,
        start=start,
        end=end,
        records=row.records if whole else None,
        hash=row.hash if whole else "",
        differences=row.differences,
        first_difference=row.first_difference,
        first_verified_at=row.first_verified_at,
        verified_at=row.verified_at,
    )


def _merged(rows: Iterable[VerifiedRange]) -> list[VerifiedRange]:
    done: list[VerifiedRange] = []
    for row in sorted(rows, key=lambda row: row.start):
        last = done[-1] if done else None
        if last is None or not _can_merge(last, row):
            done.append(row)
            continue
        last.end, last.hash = row.end, combine(last.hash, row.hash)
        last.records = None if last.records is None or row.records is None else last.records + row.records
        last.first_verified_at = min(last.first_verified_at, row.first_verified_at)
        last.verified_at = max(last.verified_at, row.verified_at)
    return done


def _can_merge(last: VerifiedRange, row: VerifiedRange) -> bool:
    """Return whether two rows are adjacent and equal on both sides. A known hash is not merged with an unknown hash."""
    return last.end == row.start and not last.differences and not row.differences and bool(last.hash) == bool(row.hash)


def _alarm(mirror: MirrorTopic, *, now: datetime) -> None:
    rows = verification_actions.differing(mirror)
    first = next((row.first_difference for row in rows if row.first_difference), None)
    count = sum(row.differences for row in rows)
    message = (
        f"{count} records of '{mirror.name}' differ from the source's.{_describe(first)} Do not change either topic; check "
        "these offsets first."
    )
    transition_errors.note(mirror=mirror, code=RECORDS_DIFFER, message=message, now=now)
    _log.error("verify.records_differ", mirror=mirror.name, link=mirror.link.name, differences=count)


def _describe(first: dict[str, object] | None) -> str:
    """Return the place of the first difference in words. Users who may read records see the contents on pages and in REST."""
    if first is None:
        return ""
    place = f" First difference: partition {first['partition']}, offset {first['offset']}: "
    if first["kind"] in {"missing", "extra"}:
        return f"{place}{'missing on the mirror' if first['kind'] == 'missing' else 'not on the source'}."
    return f"{place}{'other' if first['kind'] == 'headers' else 'another'} {first['kind']}."


# --- the schedule of continuous verification --------------------------------------------------------------------------
#
# In rows of VerifyWatch. A single comparison runs at a time in the whole installation.


REST = 4  # pause after a comparison, as a multiple of its duration: copying needs the machine more
AT_ONCE = 50  # mirrors per pass


def ensure_watches(*, now: datetime) -> None:
    """Create the row of each mirror that is compared. The first comparison follows after an interval."""
    new = MirrorTopic.objects.listed().filter(verify_watch=None, state__in=WATCHED, deletion_requested_at=None)
    new = new.filter(link__in=continuous_links())
    rows = [VerifyWatch(mirror=mirror, next_at=now + watch_interval(mirror.link)) for mirror in new.with_links()[:AT_ONCE]]
    if rows:
        VerifyWatch.objects.bulk_create(rows, ignore_conflicts=True)


def next_due_watch(*, now: datetime) -> VerifyWatch | None:
    """Return the row whose turn it is; mirrors of links without continuous verification have none."""
    due = VerifyWatch.objects.filter(next_at__lte=now, mirror__state__in=WATCHED)
    due = due.filter(mirror__deletion_requested_at=None, mirror__link__in=continuous_links())
    return due.select_related("mirror").order_by("next_at", "pk").first()


def note_attempt(*, mirror: MirrorTopic, started_at: datetime, now: datetime, error: str = "") -> None:
    """Store when the next range is due and the error of this attempt, if any. It is retried in any case."""
    took = now - started_at
    VerifyWatch.objects.filter(mirror=mirror).update(
        next_at=now + max(watch_interval(mirror.link), REST * took),
        finished_at=now,
        duration_ms=round(took.total_seconds() * 1000),
        error_message=error,
    )
    show_change(mirror.link_id)


def watch_interval(link: ClusterLink) -> timedelta:
    """Return ``verify.interval.ms``."""
    return timedelta(milliseconds=int(_value(link, "verify.interval.ms")))


def most_records(link: ClusterLink) -> int:
    """Return ``verify.max.records.per.run``."""
    return int(_value(link, "verify.max.records.per.run"))


def _value(link: ClusterLink, name: str) -> str:
    return config_of(link, name) or LINK_CONFIGS[name].default or ""

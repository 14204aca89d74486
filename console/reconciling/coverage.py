"""The ledger of compared ranges: as few rows as possible, what is still open, and the alarm where records differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby

import structlog
from django.db import transaction

from console import audit, store
from console.actions import verification
from console.actors import ENGINE
from console.models import MirrorPartition, MirrorTopic, VerifiedRange, VerifyRun
from console.models.links import show_change
from console.models.mirrors import RECORDS_DIFFER, TOMBSTONES_MISSED
from console.reconciling import troubles
from console.reconciling.plans import mirror_key
from linkengine.domain.coverage import CheckedRange, RecordDifference, combine
from linkengine.domain.mirrorjobs import MirrorCreated
from linkengine.domain.plans import PartitionProgress, VerifyReport
from linkengine.domain.ranges import OffsetRange

TOLD_MS = 3_600_000  # longer than any report is kept
_log = structlog.get_logger(__name__)
Covered = dict[int, list[OffsetRange]]


def covered(mirror: MirrorTopic) -> Covered:
    """Answer which offsets were compared, by partition; those that differ are among them."""
    found: Covered = defaultdict(list)
    for partition, start, end in mirror.verified_ranges.values_list("partition", "start", "end"):
        found[partition].append(OffsetRange(start, end))
    return found


def note_report(*, mirror: MirrorTopic, report: VerifyReport, now: datetime, run: VerifyRun | None = None) -> bool:
    """Keep what a comparison saw; raise the alarm where records differ. Only a ``run`` that somebody asked for can end it.

    ``mirror`` is the row as it was when the comparison began: of topics that were created anew meanwhile it says nothing, and
    where the ledger was doubted meanwhile only the differences count. Answer whether what it found equal counts.
    """
    with transaction.atomic():
        now_is = MirrorTopic.objects.select_for_update(of=("self",)).get(pk=mirror.pk)  # one writer of the ledger at a time
        if _topics(now_is) != _topics(mirror):
            return False
        doubted = now_is.doubted_at != mirror.doubted_at
        checked = [one for one in report.checked if one.differences or not doubted]
        ordered = sorted(checked, key=lambda one: (one.partition, one.start))
        before = verification.differing(mirror)
        for partition, ranges in groupby(ordered, key=lambda one: one.partition):
            fresh = [_row(mirror, one, report.first_differences, now=now) for one in ranges]
            _store(mirror, partition, fresh)
        if report.differences:
            _alarm(mirror, now=now)
        elif run is not None and not doubted:
            _end_differences(mirror, before, run=run, now=now)
            _end_doubt(mirror, run=run, now=now)
        show_change(mirror.link_id)
    return not doubted


def keep_for(*, mirror: MirrorTopic, made: MirrorCreated, now: datetime) -> None:
    """Drop the ledger where one of the two topics was created anew: what was compared is gone. Before the row says so."""
    ids = {"source_topic_id": made.source_topic_id, "mirror_topic_id": made.mirror_topic_id}
    verification.keep_ledger(mirror=mirror, **ids, now=now)


def doubt(*, mirror: MirrorTopic, partitions: Sequence[int], now: datetime) -> None:
    """Have partitions compared anew: what was equal may hold keys by now that the source has deleted unseen."""
    with transaction.atomic():
        MirrorTopic.objects.select_for_update(of=("self",)).get(pk=mirror.pk)
        mirror.verified_ranges.filter(partition__in=partitions, differences=0).delete()
        MirrorTopic.objects.filter(pk=mirror.pk).update(doubted_at=now)


def forget_lost(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Iterable[PartitionProgress],
    now: datetime,
    endings: Iterable[PartitionProgress] = (),
) -> bool:
    """Take back what was compared of offsets that a mirror or its source has lost since, before the rows forget where it ended.

    What a mirror lost is copied again, as others; a comparison that is under way has seen the lost ones. Answer whether there
    were any. The ``endings`` of slices tell what no report told; where the mirror ended then says nothing of now.
    """
    living = _living(reports, rows)
    told = [one for one in (*_living(endings, rows), *living) if _told_end(one) is not None and not _is_known(one)]
    found = [(one.key, _told_end(one)) for one in told]
    found += [(one.key, _lowest(one)) for one in living if _is_shorter(rows[one.key], one)]
    ends: dict[str, int | None] = {}
    for key, end in found:
        ends[key] = _least(ends.get(key), end)
    for mirror in mirrors if ends else ():
        for number in range(mirror.num_partitions):
            if (end := ends.get(f"{mirror_key(mirror)}/{number}")) is not None:
                _cut(mirror, number, end, now=now)
    for one in told:  # it is told for the rest of the slice
        store.claim(_name_of(one), ttl_ms=TOLD_MS)
    return bool(ends)


def _living(reports: Iterable[PartitionProgress], rows: Mapping[str, MirrorPartition]) -> list[PartitionProgress]:
    return [one for one in reports if one.key in rows and rows[one.key].stopped_end is None]  # a fence knows better


def _is_known(report: PartitionProgress) -> bool:
    return store.is_claimed(_name_of(report))


def _name_of(report: PartitionProgress) -> str:
    return f"set-back:{report.key}:{report.hold_id}:{report.set_backs}:{report.source_kept}"


def _told_end(report: PartitionProgress) -> int | None:
    """Answer how far back the copier says that either side has fallen."""
    return _least(report.set_back_to, report.source_kept)


def _lowest(report: PartitionProgress) -> int | None:
    return _least(report.seen_end, report.set_back_to, report.source_kept)


def _least(*ends: int | None) -> int | None:
    """Answer the lowest end of those that are known."""
    return min((end for end in ends if end is not None), default=None)


def _is_shorter(row: MirrorPartition, report: PartitionProgress) -> bool:
    """Tell whether the mirror ends before where it was last seen; what it lost and has got again shows in the report only."""
    return row.mirror_end is not None and report.seen_end is not None and report.seen_end < row.mirror_end


def _cut(mirror: MirrorTopic, partition: int, end: int, *, now: datetime) -> None:
    with transaction.atomic():
        MirrorTopic.objects.select_for_update(of=("self",)).get(pk=mirror.pk)
        gone = mirror.verified_ranges.filter(partition=partition, end__gt=end, differences=0)
        kept = [_part(row, row.start, end) for row in gone if row.start < end]
        gone.delete()
        VerifiedRange.objects.bulk_create(kept)
        MirrorTopic.objects.filter(pk=mirror.pk).update(doubted_at=now)
    _log.warning("verify.a_side_became_shorter", mirror=mirror.name, link=mirror.link.name, partition=partition, end=end)


def _end_doubt(mirror: MirrorTopic, *, run: VerifyRun, now: datetime) -> None:
    """End the alarm of missed tombstones: nothing was copied late any more when this comparison of everything began."""
    if run.started_at is None:
        return
    missed = mirror.transition_errors.filter(code=TOMBSTONES_MISSED, last_seen_at__lt=run.started_at)
    for one in missed:
        detail = {"run": run.pk, "requested_by": run.requested_by, "message": one.message}
        audit.record(by=ENGINE, action="EndTombstoneAlarm", resource=audit.path_of(mirror), now=now, detail=detail)
    missed.delete()


def _end_differences(mirror: MirrorTopic, before: Sequence[VerifiedRange], *, run: VerifyRun, now: datetime) -> None:
    """End the alarm if every offset that differed was found equal, or is not on the mirror any more. No other one is equal."""
    for partition, start in mirror.partitions.exclude(mirror_start=None).values_list("partition", "mirror_start"):
        mirror.verified_ranges.filter(partition=partition, differences__gt=0, end__lte=start).delete()
    if not verification.differing(mirror):
        verification.end_alarm(mirror=mirror, ended=before, now=now, why={"run": run.pk, "requested_by": run.requested_by})
    elif before:
        _alarm(mirror, now=now)


def _topics(mirror: MirrorTopic) -> tuple[str, str]:
    return mirror.source_topic_id, mirror.mirror_topic_id


def _row(mirror: MirrorTopic, one: CheckedRange, differences: Sequence[RecordDifference], *, now: datetime) -> VerifiedRange:
    first = next((d for d in differences if d.partition == one.partition and one.start <= d.offset < one.end), None)
    return VerifiedRange(
        mirror=mirror,
        partition=one.partition,
        start=one.start,
        end=one.end,
        records=one.records,
        hash=one.hash,
        differences=one.differences,
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
    """Answer what of an older row lies outside a comparison that replaces the rest of it."""
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
    for row in sorted(rows, key=lambda one: one.start):
        last = done[-1] if done else None
        if last is None or not _are_one(last, row):
            done.append(row)
            continue
        last.end, last.hash = row.end, combine(last.hash, row.hash)
        last.records = None if last.records is None or row.records is None else last.records + row.records
        last.first_verified_at = min(last.first_verified_at, row.first_verified_at)
        last.verified_at = max(last.verified_at, row.verified_at)
    return done


def _are_one(last: VerifiedRange, row: VerifiedRange) -> bool:
    """Neighbours that are equal on both sides; a hash that is known is not given up for one that is not."""
    return last.end == row.start and not last.differences and not row.differences and bool(last.hash) == bool(row.hash)


def _alarm(mirror: MirrorTopic, *, now: datetime) -> None:
    rows = verification.differing(mirror)
    first = next((row.first_difference for row in rows if row.first_difference), None)
    count = sum(row.differences for row in rows)
    message = (
        f"{count} records of '{mirror.name}' are not what the source holds.{_named(first)} Keep both topics as they are and "
        "look at these offsets first."
    )
    troubles.note(mirror=mirror, code=RECORDS_DIFFER, message=message, now=now)
    _log.error("verify.records_differ", mirror=mirror.name, link=mirror.link.name, differences=count)


def _named(first: dict[str, object] | None) -> str:
    """Name the place; what the records hold is left to pages and REST, which know who may read them."""
    if first is None:
        return ""
    place = f" The first: partition {first['partition']}, offset {first['offset']}: "
    if first["kind"] in {"missing", "extra"}:
        return f"{place}{'missing on the mirror' if first['kind'] == 'missing' else 'not on the source'}."
    return f"{place}{'other' if first['kind'] == 'headers' else 'another'} {first['kind']}."

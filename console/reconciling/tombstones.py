"""Tells when a mirror may have missed the deletion of a key: it was behind for longer than its source keeps tombstones.

Theory of operation. The source's cleaner removes a deleted key's record first, and its tombstone no sooner than
``delete.retention.ms`` after it was written. A copier that had everything at some time and has everything again within that
span has read each tombstone written between. Later it may find neither record nor tombstone, while the mirror keeps the record
it copied before: nothing differs at the offsets that are copied from then on, so nobody looks again. Of a first copy, the time
at which it began counts: what it read before it was removed was removed after that.

So the alarm is raised when anything is copied that late. It stands until a comparison of the whole mirror that began
afterwards finds all equal; and what was compared before the mirror had everything again is compared anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from console.models import MirrorPartition, MirrorTopic
from console.models.mirrors import TOMBSTONES_MISSED
from console.reconciling import coverage, troubles
from console.reconciling.plans import mirror_key
from console.reconciling.sampling import time_of, whole_at
from linkengine.domain.compaction import tombstones_kept_ms
from linkengine.domain.moments import utc_words
from linkengine.domain.plans import PartitionProgress

LEAST_MS = 10_000  # no cleaner comes by twice in this time, and a hand-over between slices may take it
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """A partition that was not whole for longer than tombstones are kept."""

    partition: int
    since: datetime
    moved: bool  # something was copied that late
    whole: bool  # it has everything again


def note_lateness(
    *,
    mirrors: Iterable[MirrorTopic],
    rows: Mapping[str, MirrorPartition],
    reports: Sequence[PartitionProgress],
    now: datetime,
) -> bool:
    """Compare reports with the rows before they are stored in them; answer whether a page would show something new."""
    seen = {one.key: one for one in reports}
    changed = False
    for mirror in mirrors:
        kept_ms = tombstones_kept_ms(mirror.source_configs)
        late = [] if kept_ms is None else list(_late(mirror, rows, seen, kept_ms=max(LEAST_MS, kept_ms)))
        if late:
            changed |= _doubt(mirror, late, kept_ms=kept_ms or 0, now=now)
    return changed


def _late(
    mirror: MirrorTopic, rows: Mapping[str, MirrorPartition], seen: Mapping[str, PartitionProgress], *, kept_ms: int
) -> Iterator[_Late]:
    for number in range(mirror.num_partitions):
        key = f"{mirror_key(mirror)}/{number}"
        row, report = rows.get(key), seen.get(key)
        if row is None or report is None or row.whole_at is None or report.mirror_end is None:
            continue
        at, again = time_of(report.observed_at_ms), whole_at(row, report)
        if _ms(at - row.whole_at) > kept_ms:
            whole = again is not None and _ms(at - again) <= kept_ms
            yield _Late(partition=number, since=row.whole_at, moved=_moved(row, report), whole=whole)


def _moved(row: MirrorPartition, report: PartitionProgress) -> bool:
    if row.mirror_end is None or report.mirror_end is None:  # the first report of a mirror's new life
        return bool(report.bytes_copied or report.gaps)
    return report.mirror_end > row.mirror_end


def _doubt(mirror: MirrorTopic, late: Sequence[_Late], *, kept_ms: int, now: datetime) -> bool:
    alarmed = any(one.code == TOMBSTONES_MISSED for one in mirror.transition_errors.all())
    moved = [one for one in late if one.moved]
    whole = [one.partition for one in late if one.whole and (alarmed or one.moved)]
    with transaction.atomic():
        if whole:
            coverage.doubt(mirror=mirror, partitions=whole, now=now)
        return bool(moved) and _alarm(mirror, min(moved, key=lambda one: one.since), kept_ms=kept_ms, now=now)


def _alarm(mirror: MirrorTopic, first: _Late, *, kept_ms: int, now: datetime) -> bool:
    message = (
        f"'{mirror.name}' did not hold all of its source from {utc_words(round(first.since.timestamp() * 1000))} on (partition "
        f"{first.partition}) for longer than the source keeps tombstones (delete.retention.ms={kept_ms}). Keys that were "
        "deleted there meanwhile may still have their old records here."
    )
    changed = troubles.note(mirror=mirror, code=TOMBSTONES_MISSED, message=message, now=now)
    if changed:
        _log.warning("tombstones.missed", mirror=mirror.name, link=mirror.link.name, since=first.since.isoformat())
    return changed


def _ms(span: timedelta) -> float:
    return span.total_seconds() * 1000

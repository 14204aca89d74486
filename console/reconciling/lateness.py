"""Computes how long a mirror partition was incomplete, and whether it copied records that late. Reads rows and reports only.

A partition is incomplete while it lacks offsets that its source's log cleaner may clean. Lateness with copied records is stored
in the row (``late_since``, ``late_until``): the configs that the source had during that time may be read only later, and they
decide whether the records came too late (``tombstones``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from console.mirrors.progress import time_of
from console.models import MirrorPartition
from linkengine.domain.plans import PartitionProgress

LEAST = timedelta(seconds=10)  # no log cleaner runs twice in this time; a handover between copy workers may take that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A span of time in which a partition was incomplete."""

    partition: int
    since: datetime
    until: datetime
    moved: bool  # something was copied that late
    whole_at: datetime | None  # when it was last complete, as known now

    def is_whole(self, within_ms: float) -> bool:
        """Return whether it is complete again: it was within the last ``within_ms`` of the span."""
        return self.whole_at is not None and (self.until - self.whole_at) / timedelta(milliseconds=1) <= within_ms


def lateness_of(row: MirrorPartition, report: PartitionProgress) -> Lateness | None:
    """Compare a report with its row, which must not contain it yet. Return None if unknown, or if it is not late at all."""
    if row.whole_at is None or report.mirror_end is None:
        return None
    at, completed_at = time_of(report.observed_at_ms), whole_at(row, report)
    if at - row.whole_at <= LEAST:
        return None
    return Lateness(partition=row.partition, since=row.whole_at, until=at, moved=_moved(row, report), whole_at=completed_at)


def lateness_kept(row: MirrorPartition) -> Lateness | None:
    """Return the lateness that is stored in the row."""
    if row.late_since is None or row.late_until is None:
        return None
    return Lateness(partition=row.partition, since=row.late_since, until=row.late_until, moved=True, whole_at=row.whole_at)


def keep(row: MirrorPartition, late: Lateness | None) -> None:
    """Store lateness in its row, unsaved. It is merged with stored lateness into a single span."""
    if late is None or not late.moved:
        return
    row.late_since = min(row.late_since or late.since, late.since)
    row.late_until = late.until


def whole_at(row: MirrorPartition, report: PartitionProgress) -> datetime | None:
    """Return when the mirror was last complete, or when the copy began if it never was."""
    begins = row.whole_at is None and report.mirror_end is not None
    times = (time_of(report.observed_at_ms) if begins else None, completed_at(report), row.whole_at)
    return max((at for at in times if at is not None), default=None)


def completed_at(report: PartitionProgress) -> datetime | None:
    """Return when the mirror was last complete according to a report; None if it does not say.

    The log cleaner cleans nothing after the last stable offset, so a mirror is complete if it has all offsets below that, also
    while open transactions keep the high watermark ahead of it.
    """
    ends = report.mirror_end, report.source_end
    is_complete = ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]
    times = (report.source_seen_at_ms if is_complete else None, report.caught_up_at_ms)
    return max((time_of(unix_ms) for unix_ms in times if unix_ms is not None), default=None)


def _moved(row: MirrorPartition, report: PartitionProgress) -> bool:
    if row.mirror_end is None or report.mirror_end is None:  # the first report of a mirror, or after its topic was created anew
        return bool(report.bytes_copied or report.gaps)
    return report.mirror_end > row.mirror_end

"""Since when a mirror partition lacks something its source may clean, and what comes that late. Arithmetic on rows and reports.

What was late is kept with the row (``late_since``, ``late_until``) when it is: the configs that the source had meanwhile may be
read later only, and whether it was too late depends on them (``tombstones``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from console.mirrors.progress import time_of
from console.models import MirrorPartition
from linkengine.domain.plans import PartitionProgress

LEAST = timedelta(seconds=10)  # no cleaner comes by twice in this time, and a hand-over between slices may take it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A partition that did not have everything for a while."""

    partition: int
    since: datetime
    until: datetime
    moved: bool  # something was copied that late
    whole_at: datetime | None  # when it last had everything by now

    def is_whole(self, within_ms: float) -> bool:
        """Tell whether it has everything again, as seen lately enough."""
        return self.whole_at is not None and (self.until - self.whole_at) / timedelta(milliseconds=1) <= within_ms


def lateness_of(row: MirrorPartition, report: PartitionProgress) -> Lateness | None:
    """Compare a report with its row, which does not know it yet; None where nobody knows, or it is not late at all."""
    if row.whole_at is None or report.mirror_end is None:
        return None
    at, again = time_of(report.observed_at_ms), whole_at(row, report)
    if at - row.whole_at <= LEAST:
        return None
    return Lateness(partition=row.partition, since=row.whole_at, until=at, moved=_moved(row, report), whole_at=again)


def lateness_kept(row: MirrorPartition) -> Lateness | None:
    """Answer what the row keeps of what was late."""
    if row.late_since is None or row.late_until is None:
        return None
    return Lateness(partition=row.partition, since=row.late_since, until=row.late_until, moved=True, whole_at=row.whole_at)


def keep(row: MirrorPartition, late: Lateness | None) -> None:
    """Keep what was late in its row, unsaved; together with what is kept of it already it is one stretch."""
    if late is None or not late.moved:
        return
    row.late_since = min(row.late_since or late.since, late.since)
    row.late_until = late.until


def whole_at(row: MirrorPartition, report: PartitionProgress) -> datetime | None:
    """Answer when the mirror last had everything its source may clean; before it ever had, when the copy began.

    Nothing is cleaned behind an open transaction, so there it has everything at the last stable offset, too.
    """
    ends = report.mirror_end, report.source_end
    level = ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]
    begins = row.whole_at is None and report.mirror_end is not None
    times = (
        report.source_seen_at_ms if level else None,
        report.observed_at_ms if begins else None,
        report.caught_up_at_ms,
    )
    known = [time_of(one) for one in times if one is not None] + ([row.whole_at] if row.whole_at else [])
    return max(known, default=None)


def _moved(row: MirrorPartition, report: PartitionProgress) -> bool:
    if row.mirror_end is None or report.mirror_end is None:  # the first report of a mirror's new life
        return bool(report.bytes_copied or report.gaps)
    return report.mirror_end > row.mirror_end

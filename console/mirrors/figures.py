"""Sums over the progress of partitions, and the offsets that a stop has to copy or loses. Unknown is never 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import NamedTuple

from console.models import MirrorPartition, MirrorTopic, SourceTopic
from console.models.mirrors import UNSEEN
from linkengine.domain.failover import estimated_bytes
from linkengine.domain.states import MirrorState

# --- sums over partitions ---------------------------------------------------------------------------------------------
#
# Unknown values are counted separately, never as 0.


_COUNTS = (
    "partitions",
    "unknown_lags",
    "lacking_partitions",
    "unknown_time_lags",
    "held_unknown",
    "unsized",
    "total_lag",
    "held",
    "lag_size",
    "bytes_copied",
    "records_copied",
)


@dataclass(slots=True)
class Figures:
    """The figures of a set of partitions."""

    partitions: int = 0
    unknown_lags: int = 0  # partitions whose lag is unknown
    lacking_partitions: int = 0  # partitions that lack records, or may (``is_lacking``)
    unknown_time_lags: int = 0  # of these, partitions without a known time lag
    held_unknown: int = 0  # partitions whose records behind open transactions are unknown
    unsized: int = 0  # partitions whose lag in bytes is unknown
    max_lag: int | None = None  # of partitions whose lag is known
    total_lag: int = 0  # of partitions whose lag is known
    held: int = 0  # offsets behind open transactions
    lag_size: int = 0  # estimated bytes of the lag
    behind_since: datetime | None = None  # the earliest known time since which a partition lacks records
    bytes_per_s: float | None = None
    records_per_s: float | None = None
    bytes_copied: int = 0
    records_copied: int = 0

    @property
    def lag_bytes(self) -> int | None:
        """The estimated bytes of the lag; None without partitions, or if the estimate of any partition is unknown."""
        return None if self.unsized or not self.partitions else self.lag_size

    def add_unseen(self, count: int) -> None:
        """Count mirrors without partitions as a partition each, whose figures are unknown."""
        self.partitions += count
        self.unknown_lags += count
        self.lacking_partitions += count
        self.unknown_time_lags += count
        self.held_unknown += count
        self.unsized += count

    def add(self, other: Figures) -> None:
        """Add the figures of other partitions."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_lag = max((lag for lag in (self.max_lag, other.max_lag) if lag is not None), default=None)
        self.behind_since = min((at for at in (self.behind_since, other.behind_since) if at is not None), default=None)
        self.bytes_per_s = _sum(self.bytes_per_s, other.bytes_per_s)
        self.records_per_s = _sum(self.records_per_s, other.records_per_s)

    def oldest_ms(self, now: datetime) -> int | None:
        """Return the age of the oldest lacking record, 0 if none is lacking; None while unknown, or without partitions."""
        if not self.partitions:
            return None
        if not self.lacking_partitions:
            return 0
        return None if self.unknown_time_lags else self.known_age_ms(now)

    def known_age_ms(self, now: datetime) -> int | None:
        """Return the largest known age; None if no age is known."""
        since = self.behind_since
        return None if since is None else max(0, int((now - since).total_seconds() * 1000))


def newest_report(rows: Iterable[MirrorPartition]) -> datetime | None:
    """Return the time of the newest report on partitions that were updated by ``console.mirrors.progress``."""
    return max((row.observed_at for row in rows if row.observed_at is not None), default=None)


def figures_of(rows: Iterable[MirrorPartition], *, now: datetime) -> Figures:
    """Add up partitions that were updated by ``console.mirrors.progress``."""
    found = Figures()
    for row in rows:
        found.partitions += 1
        lag = row.lag_at(now)
        _add_lag(found, row, lag)
        _add_age(found, row, lag)
        found.bytes_copied += row.bytes_copied
        found.records_copied += row.records_copied
        if row.observed_at is None or row.observed_at >= now - UNSEEN:  # an older rate is not the current one
            found.bytes_per_s = _sum(found.bytes_per_s, row.bytes_per_s)
            found.records_per_s = _sum(found.records_per_s, row.records_per_s)
    return found


def is_lacking(row: MirrorPartition, lag: int | None) -> bool:
    """Return whether a partition lacks records of its source, or may: those behind open transactions count."""
    watermark, end = row.last_high_watermark, row.mirror_end
    return lag is None or watermark is None or end is None or watermark > end


def _add_lag(found: Figures, row: MirrorPartition, lag: int | None) -> None:
    watermark, end = row.last_high_watermark, row.source_end
    if lag is None or watermark is None:
        found.held_unknown += 1
    elif end is not None:
        found.held += max(0, watermark - end)
    if lag is None:
        found.unknown_lags += 1
        found.unsized += 1
        return
    found.max_lag = lag if found.max_lag is None else max(found.max_lag, lag)
    found.total_lag += lag
    size = estimated_bytes(lag=lag, bytes_copied=row.bytes_copied, records_copied=row.records_copied) if lag else 0
    found.unsized += size is None
    found.lag_size += size or 0


def _add_age(found: Figures, row: MirrorPartition, lag: int | None) -> None:
    if not is_lacking(row, lag):
        return
    found.lacking_partitions += 1
    at = row.caught_up_at
    if at is None:
        found.unknown_time_lags += 1
    else:
        found.behind_since = at if found.behind_since is None else min(found.behind_since, at)


def _sum(total: float | None, rate: float | None) -> float | None:
    if rate is None:
        return total
    return rate if total is None else total + rate


# --- offsets that a stop has to copy or loses -------------------------------------------------------------------------
#
# One rule for the confirmation of a stop, its preview and its report.
#
# A sum is known only if each partition of the mirror and of its source topic was measured within ``UNSEEN``
# (``console.models.mirrors.shows_source_end``). Otherwise it is None, never 0: records may be in a partition that was added to
# the source and not to the mirror yet, which happens while a mirror is paused.


def source_partitions(mirrors: Iterable[MirrorTopic]) -> dict[int, int]:
    """Return the number of partitions of each mirror's source topic as last listed, 0 if it is not listed, by primary key.

    One query.
    """
    chosen = list(mirrors)
    listed = SourceTopic.objects.filter(
        link__in={mirror.link_id for mirror in chosen}, name__in={mirror.source_topic for mirror in chosen}
    )
    counts = {(topic.link_id, topic.name): topic.partitions for topic in listed}
    return {mirror.pk: counts.get((mirror.link_id, mirror.source_topic), 0) for mirror in chosen}


def unmeasured_partitions(mirror: MirrorTopic, rows: Iterable[MirrorPartition], *, source_partitions: int) -> list[int]:
    """Return the partitions without a row: those that only the source has, and those that were never reported."""
    reported = {row.partition for row in rows}
    return [number for number in range(max(mirror.num_partitions, source_partitions)) if number not in reported]


def records_at_risk(mirror: MirrorTopic, *, source_partitions: int) -> int | None:
    """Return the offsets that a failover now would not copy, including those behind open transactions; None if unknown."""
    rows = list(mirror.partitions.all())
    return missing_of(rows).known_for(max(mirror.num_partitions, source_partitions))


class Missing(NamedTuple):
    """The offsets that a failover now would not copy, of the partitions that have a row."""

    complete: int  # partitions from 0 on that have a row
    records: int | None

    def known_for(self, partitions: int) -> int | None:
        """Return the records if none of so many partitions lacks a row; otherwise None.

        ``partitions`` is the larger number of those of the mirror and of its source topic.
        """
        return self.records if self.complete >= partitions else None


def missing_of(rows: Sequence[MirrorPartition]) -> Missing:
    """Add up the offsets that a failover now would not copy."""
    reported = {row.partition for row in rows}
    complete = next(number for number in count() if number not in reported)
    return Missing(complete, sum_if_known([row.missing for row in rows]))


def records_at_risk_of(mirrors: Sequence[MirrorTopic]) -> dict[int, int | None]:
    """Return ``records_at_risk`` of mirrors with prefetched partitions, by primary key. One query."""
    counts = source_partitions(mirrors)
    return {mirror.pk: records_at_risk(mirror, source_partitions=counts[mirror.pk]) for mirror in mirrors}


def records_to_copy(mirror: MirrorTopic, *, source_partitions: int) -> int | None:
    """Return the offsets that a promotion or reversal copies first; None if unknown."""
    rows = list(mirror.partitions.all())
    missing = unmeasured_partitions(mirror, rows, source_partitions=source_partitions)
    return None if missing else sum_if_known([row.lag for row in rows])


def records_held(mirror: MirrorTopic) -> int | None:
    """Return the offsets of a topic to be deleted; None if unknown, as for a writable topic, which has no samples."""
    rows = list(mirror.partitions.all())
    if mirror.state == MirrorState.STOPPED or len(rows) < mirror.num_partitions:
        return None
    ends = [(row.mirror_start, row.mirror_end) for row in rows]
    return sum_if_known([None if start is None or end is None else end - start for start, end in ends])


def sum_if_known(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if there are no counts or any of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None

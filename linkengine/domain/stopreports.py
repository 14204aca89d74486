"""The cost of a stop (failover report): records left behind, age of the loss (RPO), time until writable (RTO).

Pure arithmetic over the last observations. Unknown is None, never 0: an unknown loss is reported as unknown. Times are Unix ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkengine.domain.states import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAtStop:
    """One partition at the time of the fence."""

    partition: int
    mirrored_end: int | None  # offset after the last mirrored record; None: the partition was never set up
    source_end: int | None  # failover: the source's last observed high watermark; promotion: its end after the fence
    source_seen_at_ms: int | None
    caught_up_at_ms: int | None  # when the mirror last held everything the source had
    last_timestamp_ms: int | None  # newest timestamp among the mirrored records
    stable_end: int | None = None  # failover: last stable offset; offsets from there to source_end are in open transactions
    outdated: bool = False  # the source was last observed so long before the stop that its end does not show the loss

    @property
    def not_copied(self) -> int | None:
        """Number of offsets that the source had and the mirror lacks; None if the source's end is unknown."""
        return None if self.outdated else self.missing_when_seen

    @property
    def missing_when_seen(self) -> int | None:
        """Number of offsets that the mirror lacked when the source was last observed, however long ago: a lower bound."""
        if self.mirrored_end is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.mirrored_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCost:
    """The cost of a stop in three numbers.

    ``records_not_copied`` counts offsets, including those behind an open transaction, with markers and aborted records among
    them. It is None if the source was not observed shortly before the stop. ``rpo_ms`` is an upper bound: the mirror has
    everything that the source had at that age before the stop.
    """

    records_not_copied: int | None
    rpo_ms: int | None
    rto_ms: int


def cost_of_stop(
    partitions: Sequence[PartitionAtStop], *, reason: StopReason, requested_at_ms: int, writable_at_ms: int
) -> StopCost:
    """Return the cost of a stop.

    A promotion fences a mirror without lag and then reads the source's end once more: only that shows whether producers
    continued to write to the source. Its RPO is measured up to the end, since copying continued after the request.
    """
    promoted = reason is StopReason.PROMOTE
    lost, until_ms = _sum(partition.not_copied for partition in partitions), writable_at_ms if promoted else requested_at_ms
    caught_up = [partition.caught_up_at_ms for partition in partitions]
    ages = [None if at_ms is None else max(0, until_ms - at_ms) for at_ms in caught_up]
    rpo_ms = 0 if promoted and lost == 0 else _worst(ages)
    return StopCost(records_not_copied=lost, rpo_ms=rpo_ms, rto_ms=max(0, writable_at_ms - requested_at_ms))


def estimated_bytes(*, lag: int | None, bytes_copied: int, records_copied: int) -> int | None:
    """Return a lag in bytes, estimated from the mean size of copied records; None if lag or mean size is unknown."""
    if lag is None or (lag and not records_copied):
        return None
    return round(lag * bytes_copied / records_copied) if lag else 0


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if not known or None in known else sum(count for count in known if count is not None)


def _worst(ages: Sequence[int | None]) -> int | None:
    return None if not ages or None in ages else max(age for age in ages if age is not None)

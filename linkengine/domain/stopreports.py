"""What a stop of a mirror cost: records left behind, age of the loss (RPO), time until writable (RTO).

Pure arithmetic over what was last seen. Unknown is None, never 0: a report that cannot know says so. Times are Unix ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkengine.domain.states import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAtStop:
    """One partition at the moment of the fence."""

    partition: int
    mirrored_end: int | None  # offset after the last mirrored one; None: it was never set up
    source_end: int | None  # failover: high watermark of the source, as last seen; promotion: its end after the fence
    source_seen_at_ms: int | None
    caught_up_at_ms: int | None  # when the mirror last held everything the source had
    last_timestamp_ms: int | None  # newest timestamp among the mirrored records
    stable_end: int | None = None  # failover: last stable offset; from there to source_end stood behind an open transaction
    outdated: bool = False  # the source was last seen so long before the stop that its end says nothing of the loss

    @property
    def not_copied(self) -> int | None:
        """Count the offsets that the source had and the mirror has not; None where the source's end is not known."""
        return None if self.outdated else self.missing_when_seen

    @property
    def missing_when_seen(self) -> int | None:
        """Count the offsets that the mirror lacked when the source was last seen, however long ago: a lower bound."""
        if self.mirrored_end is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.mirrored_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCost:
    """A stop in three numbers.

    ``records_not_copied`` counts offsets, behind an open transaction too, where markers and aborted records are among them. It
    is None where the source was not seen shortly before the stop. ``rpo_ms`` is an upper bound:
    everything the source had at that age before the stop is in the mirror.
    """

    records_not_copied: int | None
    rpo_ms: int | None
    rto_ms: int


def cost_of_stop(
    partitions: Sequence[PartitionAtStop], *, reason: StopReason, requested_at_ms: int, writable_at_ms: int
) -> StopCost:
    """Work out a stop.

    A promotion fences what was equal on both sides, and the source is asked once more afterwards: only that tells whether
    somebody went on writing to it. Its age of loss counts to the end, since it copied on after the request.
    """
    promoted = reason is StopReason.PROMOTE
    lost, until_ms = _sum(one.not_copied for one in partitions), writable_at_ms if promoted else requested_at_ms
    ages = [None if one.caught_up_at_ms is None else max(0, until_ms - one.caught_up_at_ms) for one in partitions]
    rpo_ms = 0 if promoted and lost == 0 else _worst(ages)
    return StopCost(records_not_copied=lost, rpo_ms=rpo_ms, rto_ms=max(0, writable_at_ms - requested_at_ms))


def estimated_bytes(*, lag: int | None, bytes_copied: int, records_copied: int) -> int | None:
    """Estimate a lag in bytes from the mean size of what was copied; None where either is unknown."""
    if lag is None or (lag and not records_copied):
        return None
    return round(lag * bytes_copied / records_copied) if lag else 0


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if not known or None in known else sum(count for count in known if count is not None)


def _worst(ages: Sequence[int | None]) -> int | None:
    return None if not ages or None in ages else max(age for age in ages if age is not None)

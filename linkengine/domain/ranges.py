"""Half-open offset ranges ``[start, end)`` and the gap ledger's arithmetic. An empty range is legal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from linkengine.domain.states import GapReason


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``start`` (inclusive) to ``end`` (exclusive)."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a range: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def touches(self, other: OffsetRange) -> bool:
        """Tell whether both can be written as one range (they overlap or are neighbours)."""
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A filled range with its reason."""

    range: OffsetRange
    reason: GapReason


def merge(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Answer the fewest ranges that cover the same offsets, ascending."""
    merged: list[OffsetRange] = []
    for one in sorted(ranges):
        if merged and merged[-1].touches(one):
            merged[-1] = OffsetRange(merged[-1].start, max(merged[-1].end, one.end))
        elif len(one):
            merged.append(one)
    return tuple(merged)


def merge_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Merge neighbours of the same reason, ascending by range, so that a ledger stays small."""
    by_reason: dict[GapReason, list[OffsetRange]] = {}
    for gap in gaps:
        by_reason.setdefault(gap.reason, []).append(gap.range)
    return tuple(sorted(Gap(one, reason) for reason, ranges in by_reason.items() for one in merge(ranges)))

"""Half-open offset ranges ``[start, end)`` and the arithmetic of the gap ledger. An empty range is legal."""

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
        """Return whether both can be written as one range (they overlap or are adjacent)."""
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True)
class Gap:
    """Filled offsets and the reason. If ``filled`` is less than the range's length, there are records between them.

    For LOST, ``before_ms`` and ``after_ms`` are the timestamps of the records around the gap, None if unknown.
    """

    range: OffsetRange
    reason: GapReason
    filled: int = -1  # number of filled offsets; -1: all of the range
    before_ms: int | None = None
    after_ms: int | None = None

    def __post_init__(self) -> None:
        if self.filled < 0:
            object.__setattr__(self, "filled", len(self.range))
        if self.filled > len(self.range):
            raise ValueError(f"{self.filled} filled offsets do not fit into [{self.range.start}, {self.range.end})")

    @property
    def exact(self) -> bool:
        """Whether every offset of the range is filled."""
        return self.filled == len(self.range)

    def joined(self, later: Gap) -> Gap:
        """Return a gap that spans this and a later gap of the same reason."""
        span = OffsetRange(self.range.start, later.range.end)
        return Gap(span, self.reason, self.filled + later.filled, self.before_ms, later.after_ms)


def merge(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the fewest ranges that cover the same offsets, ascending."""
    merged: list[OffsetRange] = []
    for offsets in sorted(ranges):
        if merged and merged[-1].touches(offsets):
            merged[-1] = OffsetRange(merged[-1].start, max(merged[-1].end, offsets.end))
        elif len(offsets):
            merged.append(offsets)
    return tuple(merged)


EXACT_REASONS = frozenset({GapReason.HEAD, GapReason.LOST})  # few, and each offset matters to users


def fewer_gaps(gaps: Iterable[Gap], *, most: int) -> tuple[Gap, ...]:
    """Return disjoint gaps with the same reason, ascending, as at most ``most`` (2 or more) gaps with the same number of
    offsets.

    Adjacent gaps are joined first, which loses nothing. Then the older ones are joined in pairs, repeatedly: the newest
    half of ``most`` stays as it is, older gaps get coarser. HEAD and LOST are only joined with adjacent gaps.
    """
    found = _neighbours_joined(sorted(gaps, key=lambda gap: gap.range))
    while len(found) > most and found[0].reason not in EXACT_REASONS:
        older, newer = found[: -(most // 2)], found[-(most // 2) :]
        found = [*_pairs_joined(older), *newer]
    return tuple(found)


def _neighbours_joined(gaps: Iterable[Gap]) -> list[Gap]:
    found: list[Gap] = []
    for gap in gaps:
        if found and found[-1].exact and gap.exact and found[-1].range.end == gap.range.start:
            found[-1] = found[-1].joined(gap)
        else:
            found.append(gap)
    return found


def _pairs_joined(gaps: list[Gap]) -> list[Gap]:
    odd = len(gaps) % 2  # the oldest stays alone: it is the coarsest
    pairs = zip(gaps[odd::2], gaps[odd + 1 :: 2], strict=True)
    return [*gaps[:odd], *(older.joined(newer) for older, newer in pairs)]

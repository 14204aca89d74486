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


@dataclass(frozen=True, slots=True)
class Gap:
    """Filled offsets and why. Where ``filled`` is less than the range's length, records lie between them.

    Of what was LOST, ``before_ms`` and ``after_ms`` are the timestamps of the records around it, None while unknown.
    """

    range: OffsetRange
    reason: GapReason
    filled: int = -1  # number of filled offsets; not given: all of the range
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
        """Answer one gap that spans this and a later one of the same reason."""
        span = OffsetRange(self.range.start, later.range.end)
        return Gap(span, self.reason, self.filled + later.filled, self.before_ms, later.after_ms)


def merge(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Answer the fewest ranges that cover the same offsets, ascending."""
    merged: list[OffsetRange] = []
    for one in sorted(ranges):
        if merged and merged[-1].touches(one):
            merged[-1] = OffsetRange(merged[-1].start, max(merged[-1].end, one.end))
        elif len(one):
            merged.append(one)
    return tuple(merged)


EXACT_REASONS = frozenset({GapReason.HEAD, GapReason.LOST})  # few, and somebody will want to know each offset


def fewer_gaps(gaps: Iterable[Gap], *, most: int) -> tuple[Gap, ...]:
    """Answer disjoint gaps of one reason, ascending, as at most ``most`` (2 or more) gaps with the same number of offsets.

    Neighbours are joined first, which loses nothing. Then the older ones are joined in pairs, again and again: the newest
    half of ``most`` stays as it is, what lies further back gets coarser. HEAD and LOST are only joined with neighbours.
    """
    found = _neighbours_joined(sorted(gaps, key=lambda one: one.range))
    while len(found) > most and found[0].reason not in EXACT_REASONS:
        older, newer = found[: -(most // 2)], found[-(most // 2) :]
        found = [*_pairs_joined(older), *newer]
    return tuple(found)


def _neighbours_joined(gaps: Iterable[Gap]) -> list[Gap]:
    found: list[Gap] = []
    for one in gaps:
        if found and found[-1].exact and one.exact and found[-1].range.end == one.range.start:
            found[-1] = found[-1].joined(one)
        else:
            found.append(one)
    return found


def _pairs_joined(gaps: list[Gap]) -> list[Gap]:
    odd = len(gaps) % 2  # the oldest stays alone, it is the coarsest
    pairs = zip(gaps[odd::2], gaps[odd + 1 :: 2], strict=True)
    return [*gaps[:odd], *(one.joined(other) for one, other in pairs)]

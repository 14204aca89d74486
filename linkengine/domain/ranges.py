"""Half-open offset ranges ``[start, end)``: the arithmetic of the gap ledger and of verified ranges. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkengine.domain.messages import gettext_lazy, join_messages, ngettext_lazy
from linkengine.domain.states import GapReason

# --- ranges and gaps -----------------------------------------------------------------------------------------------------
# An empty range is legal.


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


def comparable_start(*, source: int | None, mirror: int | None, end: int) -> int | None:
    """Return from which offset on, up to ``end``, source and mirror can be compared, by their log starts; None if unknown.

    A source whose start is unknown does not limit it.
    """
    return None if mirror is None else min(max(mirror, source or 0), end)


def count_within(ranges: Iterable[tuple[int, int]], *, start: int, end: int) -> int:
    """Return how many offsets between ``start`` and ``end`` are in ranges ``(start, end)`` that do not overlap."""
    return sum(max(0, min(high, end) - max(low, start)) for low, high in ranges)


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

    Adjacent gaps are joined first, which loses nothing. Then the older gaps are joined in pairs, repeatedly: the newest
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


# --- verified ranges -----------------------------------------------------------------------------------------------------
# Which offsets of a mirror were compared, with a hash each, and which offsets to compare next. The hash of a range is the
# exclusive or of two 64-bit hashes of each record in it (``verifyjob/digests.sql``), written as 32 hexadecimal digits. The
# offset is part of the hashed data, so a record at another offset changes the hash. The hash of two adjacent ranges is the
# exclusive or of their hashes: ranges are merged without reading a record again.


HASH_DIGITS = 32
NO_RECORDS = "0" * HASH_DIGITS  # hash of a range without records; neutral when hashes are combined
NAMED_AT_MOST = 3  # partitions named in a message
_HALF = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDifference:
    """A record that differs between both sides; ``kind`` is a column name, "missing" or "extra"."""

    partition: int
    offset: int
    kind: str
    source_value: str | None = None  # shortened, printable
    mirror_value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRange:
    """Compared offsets ``[start, end)``; ``records`` and ``hash`` describe the mirror's records there."""

    partition: int
    start: int
    end: int
    records: int
    hash: str = NO_RECORDS
    differences: int = 0


def missing_beginnings(
    *, source: Mapping[int, int], mirror: Mapping[int, int], heads: Mapping[int, int]
) -> dict[int, OffsetRange]:
    """Return, by partition, the offsets that the source holds before the mirror's log start.

    ``source`` and ``mirror`` are log start offsets. ``heads``: where a copy began that was not meant to have what lies before.
    """
    begins = {partition: max(source[partition], heads.get(partition, 0)) for partition in sorted(mirror) if partition in source}
    return {number: OffsetRange(first, mirror[number]) for number, first in begins.items() if first < mirror[number]}


def missing_words(missing: Mapping[int, OffsetRange]) -> str:
    """Return the missing ranges as a sentence, "" if there are none."""
    if not missing:
        return ""
    named: list[str] = [
        gettext_lazy("partition %(number)s: %(what)s", number=number, what=f"[{offsets.start}, {offsets.end})")
        for number, offsets in list(missing.items())[:NAMED_AT_MOST]
    ]
    listed: str = join_messages(", ", named)
    if len(missing) > NAMED_AT_MOST:
        listed = gettext_lazy("%(listed)s and more", listed=listed)
    return ngettext_lazy(
        "%(count)s offset that the source still holds is no longer on the mirror (%(listed)s).",
        "%(count)s offsets that the source still holds are no longer on the mirror (%(listed)s).",
        sum(len(offsets) for offsets in missing.values()),
        listed=listed,
    )


def not_reached(*, source: Mapping[int, int], compared: Mapping[int, int]) -> int:
    """Return how many offsets below the source's ends a comparison up to ``compared`` left out, in all partitions."""
    return sum(max(0, end - compared.get(partition, 0)) for partition, end in source.items())


def hash_of(first: int, second: int) -> str:
    """Return the hash of a range from two signed 64-bit hashes, as Spark returns them."""
    return f"{first & _HALF:016x}{second & _HALF:016x}"


def combine(first: str, second: str) -> str:
    """Return the hash of two ranges that do not overlap; "" (unknown) if either is unknown."""
    if not first or not second:
        return ""
    return f"{int(first, 16) ^ int(second, 16):0{HASH_DIGITS}x}"


def joined(ranges: Iterable[CheckedRange]) -> tuple[CheckedRange, ...]:
    """Return the ranges with equal neighbours merged; ranges with differences stay apart from ranges without."""
    done: list[CheckedRange] = []
    for checked in sorted(
        (checked for checked in ranges if checked.start < checked.end), key=lambda checked: (checked.partition, checked.start)
    ):
        if done and _can_merge(done[-1], checked):
            done.append(_union(done.pop(), checked))
        else:
            done.append(checked)
    return tuple(done)


def _union(last: CheckedRange, following: CheckedRange) -> CheckedRange:
    return CheckedRange(
        partition=following.partition,
        start=last.start,
        end=following.end,
        records=last.records + following.records,
        hash=combine(last.hash, following.hash),
        differences=last.differences + following.differences,
    )


def _can_merge(last: CheckedRange, following: CheckedRange) -> bool:
    adjacent = (last.partition, last.end) == (following.partition, following.start)
    return adjacent and bool(last.differences) == bool(following.differences)


def next_pieces(
    *, wanted: Mapping[int, OffsetRange], covered: Mapping[int, Iterable[OffsetRange]], most: int
) -> dict[int, OffsetRange]:
    """Return what to compare next: the lowest offsets of each partition that were not compared, ``most`` offsets in all.

    Partitions get equal shares; what a partition does not need is given to the others.
    """
    open_pieces = {partition: first_open(offsets, covered.get(partition, ())) for partition, offsets in wanted.items()}
    ordered = sorted((len(piece), partition) for partition, piece in open_pieces.items() if len(piece))
    pieces, left = {}, most
    for done, (size, partition) in enumerate(ordered):
        share = min(size, left // (len(ordered) - done))
        if share:
            start = open_pieces[partition].start
            pieces[partition] = OffsetRange(start, start + share)
            left -= share
    return pieces


def first_open(wanted: OffsetRange, covered: Iterable[OffsetRange]) -> OffsetRange:
    """Return the first part of ``wanted`` that is not covered; an empty range if all is covered."""
    start = wanted.start
    for done in merge(covered):
        if done.start > start:
            return OffsetRange(start, max(start, min(done.start, wanted.end)))
        start = max(start, done.end)
    return OffsetRange(start, wanted.end) if start < wanted.end else OffsetRange(wanted.end, wanted.end)

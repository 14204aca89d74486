"""Verified ranges of a mirror: which offsets were compared, with a hash each, and which offsets to compare next.

The hash of a range is the exclusive or of two 64-bit hashes of each record in it (``verifyjob/digests.sql``), written as 32
hexadecimal digits. The offset is part of the hashed data, so a record at another offset changes the hash. The hash of two
adjacent ranges is the exclusive or of their hashes: ranges are merged without reading a record again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkengine.domain.ranges import OffsetRange, merge

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
    count = sum(len(offsets) for offsets in missing.values())
    named = [f"partition {number}: [{offsets.start}, {offsets.end})" for number, offsets in missing.items()]
    more = " and more" if len(named) > NAMED_AT_MOST else ""
    subject = "1 offset that the source still holds is" if count == 1 else f"{count:,} offsets that the source still holds are"
    return f"{subject} no longer on the mirror ({', '.join(named[:NAMED_AT_MOST])}{more})."


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

"""How much of a mirror was compared: checked ranges with a hash each, and which offsets are to be compared next.

The hash of a range is the exclusive or of two 64-bit hashes of each record in it (``verifyjob/digests.sql``), written as 32
hexadecimal digits. The offset is part of what is hashed, so that a record that moved changes the hash, and the hash of two
neighbours is the exclusive or of theirs: ranges are merged without reading a record again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkengine.domain.ranges import OffsetRange, merge

HASH_DIGITS = 32
NO_RECORDS = "0" * HASH_DIGITS  # the hash of a range without a record; neutral when hashes are combined
NAMED_AT_MOST = 3  # partitions in one sentence
_HALF = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDifference:
    """One record that is not equal on both sides; ``kind`` is a column name, "missing" or "extra"."""

    partition: int
    offset: int
    kind: str
    source_value: str | None = None  # shortened, printable
    mirror_value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRange:
    """Offsets ``[start, end)`` that were compared; ``records`` and ``hash`` are of what the mirror holds there."""

    partition: int
    start: int
    end: int
    records: int
    hash: str = NO_RECORDS
    differences: int = 0


def missing_beginnings(
    *, source: Mapping[int, int], mirror: Mapping[int, int], heads: Mapping[int, int]
) -> dict[int, OffsetRange]:
    """Answer by partition what the source holds before the mirror's first offset, of both log starts.

    ``heads``: where a copy began that was never meant to have what lies before.
    """
    begins = {partition: max(source[partition], heads.get(partition, 0)) for partition in sorted(mirror) if partition in source}
    return {number: OffsetRange(first, mirror[number]) for number, first in begins.items() if first < mirror[number]}


def missing_words(missing: Mapping[int, OffsetRange]) -> str:
    """Name what the source holds and the mirror does not, "" where nothing is missing."""
    if not missing:
        return ""
    count = sum(len(one) for one in missing.values())
    named = [f"partition {number}: [{one.start}, {one.end})" for number, one in missing.items()]
    more = " and more" if len(named) > NAMED_AT_MOST else ""
    subject = "1 offset that the source still holds is" if count == 1 else f"{count:,} offsets that the source still holds are"
    return f"{subject} not on the mirror any more ({', '.join(named[:NAMED_AT_MOST])}{more})."


def not_reached(*, source: Mapping[int, int], compared: Mapping[int, int]) -> int:
    """Count the offsets below the source's ends that a comparison up to ``compared`` left out, of all partitions."""
    return sum(max(0, end - compared.get(partition, 0)) for partition, end in source.items())


def hash_of(first: int, second: int) -> str:
    """Write two signed 64-bit hashes, as Spark answers them, as the hash of a range."""
    return f"{first & _HALF:016x}{second & _HALF:016x}"


def combine(one: str, other: str) -> str:
    """Answer the hash of two ranges that do not overlap; "" (not known) makes the whole unknown."""
    if not one or not other:
        return ""
    return f"{int(one, 16) ^ int(other, 16):0{HASH_DIGITS}x}"


def joined(ranges: Iterable[CheckedRange]) -> tuple[CheckedRange, ...]:
    """Merge equal neighbours; what differs stays apart, so that it is not lost in a long range."""
    done: list[CheckedRange] = []
    for one in sorted((one for one in ranges if one.start < one.end), key=lambda one: (one.partition, one.start)):
        if done and _are_one(done[-1], one):
            done.append(_union(done.pop(), one))
        else:
            done.append(one)
    return tuple(done)


def _union(last: CheckedRange, one: CheckedRange) -> CheckedRange:
    return CheckedRange(
        partition=one.partition,
        start=last.start,
        end=one.end,
        records=last.records + one.records,
        hash=combine(last.hash, one.hash),
        differences=last.differences + one.differences,
    )


def _are_one(last: CheckedRange, one: CheckedRange) -> bool:
    return (last.partition, last.end) == (one.partition, one.start) and bool(last.differences) == bool(one.differences)


def next_pieces(
    *, wanted: Mapping[int, OffsetRange], covered: Mapping[int, Iterable[OffsetRange]], most: int
) -> dict[int, OffsetRange]:
    """Answer what to compare next: of each partition the lowest offsets nobody compared, ``most`` offsets in all.

    Partitions share evenly; what one does not need the others get.
    """
    open_pieces = {partition: first_open(one, covered.get(partition, ())) for partition, one in wanted.items()}
    ordered = sorted((len(one), partition) for partition, one in open_pieces.items() if len(one))
    pieces, left = {}, most
    for done, (size, partition) in enumerate(ordered):
        share = min(size, left // (len(ordered) - done))
        if share:
            start = open_pieces[partition].start
            pieces[partition] = OffsetRange(start, start + share)
            left -= share
    return pieces


def first_open(wanted: OffsetRange, covered: Iterable[OffsetRange]) -> OffsetRange:
    """Answer the first stretch of ``wanted`` that is not covered; an empty range where all is."""
    start = wanted.start
    for one in merge(covered):
        if one.start > start:
            return OffsetRange(start, max(start, min(one.start, wanted.end)))
        start = max(start, one.end)
    return OffsetRange(start, wanted.end) if start < wanted.end else OffsetRange(wanted.end, wanted.end)

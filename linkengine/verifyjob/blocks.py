"""Blocks of offsets: the unit in which both sides are compared first. Knows no Spark: rows in, checked ranges out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from linkengine.domain.coverage import CheckedRange, combine, hash_of, joined
from linkengine.domain.ranges import OffsetRange

LEAST_OFFSETS = 4096  # a block that differs is read again, record by record
MOST_BLOCKS = 4096  # rows that come back, about

Place = tuple[int, int]  # partition and number of a block
Pieces = Mapping[int, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a block holds on the mirror; ``differences`` is known after a second look only."""

    partition: int
    number: int
    records: int
    bytes: int
    hash: str
    equal: bool
    differences: int = 0

    @property
    def place(self) -> Place:
        return self.partition, self.number


def block_offsets(pieces: Pieces) -> int:
    """Choose how many offsets make a block: a power of two, so that long topics have few and short ones small blocks."""
    size, total = LEAST_OFFSETS, sum(len(one) for one in pieces.values())
    while total // size > MOST_BLOCKS:
        size *= 2
    return size


def block_of(row: Any) -> Block:
    """Read a row of ``blocks.sql``."""
    return Block(
        partition=row["partition"],
        number=row["block"],
        records=row["records"],
        bytes=row["bytes"],
        hash=hash_of(row["first_hash"], row["second_hash"]),
        equal=row["equal"],
    )


def doubtful(blocks: Iterable[Block], pieces: Pieces, *, size: int) -> dict[int, OffsetRange]:
    """Answer per partition from the first block that is not equal to the last one."""
    found: dict[int, OffsetRange] = {}
    for block in blocks:
        if not block.equal:
            own = span(block.number, pieces[block.partition], size=size)
            first = found.get(block.partition, own)
            found[block.partition] = OffsetRange(min(first.start, own.start), max(first.end, own.end))
    return found


def checked_ranges(blocks: Iterable[Block], pieces: Pieces, *, size: int) -> tuple[CheckedRange, ...]:
    """Cut the pieces into ranges that are equal and ranges that are not. Blocks without records are equal."""
    by_partition: dict[int, list[Block]] = {}
    for block in blocks:
        by_partition.setdefault(block.partition, []).append(block)
    return joined(
        one for partition, piece in pieces.items() for one in _cut(piece, by_partition.get(partition, ()), partition, size)
    )


def still_held(blocks: Iterable[Block], pieces: Pieces, *, starts: Mapping[int, int], size: int) -> dict[int, OffsetRange]:
    """Answer the pieces without what retention took while they were read, of which the log starts tell as they are now.

    Where a block differs that holds records of before its partition's start, nobody can tell which: it is left out, and all
    before it. Whatever lies behind it counts.
    """
    held = dict(pieces)
    for block in blocks:
        own = span(block.number, pieces[block.partition], size=size)
        if block.differences and own.start < starts.get(block.partition, 0):
            kept = held[block.partition]
            held[block.partition] = OffsetRange(max(kept.start, own.end), kept.end)
    return held


def span(number: int, piece: OffsetRange, *, size: int) -> OffsetRange:
    """Answer the offsets of a block within its piece."""
    return OffsetRange(max(piece.start, number * size), min(piece.end, (number + 1) * size))


def _cut(piece: OffsetRange, blocks: Iterable[Block], partition: int, size: int) -> Iterator[CheckedRange]:
    reached, records, digest = piece.start, 0, combine("0", "0")
    for block in sorted(blocks, key=lambda one: one.number):
        place = span(block.number, piece, size=size)
        if block.differences:
            yield CheckedRange(partition=partition, start=reached, end=place.start, records=records, hash=digest)
            yield CheckedRange(
                partition=partition, start=place.start, end=place.end,
                records=block.records, hash=block.hash, differences=block.differences,
            )  # fmt: skip
            reached, records, digest = place.end, 0, combine("0", "0")
        else:
            records, digest = records + block.records, combine(digest, block.hash)
    yield CheckedRange(partition=partition, start=reached, end=piece.end, records=records, hash=digest)

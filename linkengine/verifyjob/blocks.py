"""Blocks of offsets, the unit of the first comparison. Plain Python without Spark: rows in, checked ranges out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from linkengine.domain.coverage import CheckedRange, combine, hash_of, joined
from linkengine.domain.ranges import OffsetRange

LEAST_OFFSETS = 4096  # a block that differs is read again, record by record
MOST_BLOCKS = 4096  # approximate limit of the rows that the first comparison returns

Place = tuple[int, int]  # partition and number of a block
Pieces = Mapping[int, OffsetRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The contents of a block on the mirror; ``differences`` is set after the record comparison only."""

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
    """Return the number of offsets per block: a power of two, so that long topics have few and short ones small blocks."""
    size, total = LEAST_OFFSETS, sum(len(piece) for piece in pieces.values())
    while total // size > MOST_BLOCKS:
        size *= 2
    return size


def block_of(row: Any) -> Block:
    """Return the block of a row of ``blocks.sql``."""
    return Block(
        partition=row["partition"],
        number=row["block"],
        records=row["records"],
        bytes=row["bytes"],
        hash=hash_of(row["first_hash"], row["second_hash"]),
        equal=row["equal"],
    )


def differing_ranges(blocks: Iterable[Block], pieces: Pieces, *, size: int) -> dict[int, OffsetRange]:
    """Return, per partition, the range from the first to the last block that is not equal."""
    found: dict[int, OffsetRange] = {}
    for block in blocks:
        if not block.equal:
            own = span(block.number, pieces[block.partition], size=size)
            first = found.get(block.partition, own)
            found[block.partition] = OffsetRange(min(first.start, own.start), max(first.end, own.end))
    return found


def checked_ranges(blocks: Iterable[Block], pieces: Pieces, *, size: int) -> tuple[CheckedRange, ...]:
    """Return the pieces cut into ranges that are equal and ranges that are not. Blocks without records are equal."""
    by_partition: dict[int, list[Block]] = {}
    for block in blocks:
        by_partition.setdefault(block.partition, []).append(block)
    return joined(
        checked
        for partition, piece in pieces.items()
        for checked in _cut(piece, by_partition.get(partition, ()), partition, size)
    )


def without_deleted(blocks: Iterable[Block], pieces: Pieces, *, starts: Mapping[int, int], size: int) -> dict[int, OffsetRange]:
    """Return the pieces without the offsets that retention deleted during the run; ``starts`` are the log starts now.

    If a block differs and begins below its partition's log start, the deleted records cannot be told apart from missing ones:
    the block and everything before it are left out. The blocks behind it count.
    """
    held = dict(pieces)
    for block in blocks:
        own = span(block.number, pieces[block.partition], size=size)
        if block.differences and own.start < starts.get(block.partition, 0):
            kept = held[block.partition]
            held[block.partition] = OffsetRange(max(kept.start, own.end), kept.end)
    return held


def span(number: int, piece: OffsetRange, *, size: int) -> OffsetRange:
    """Return the offsets of a block within its piece."""
    return OffsetRange(max(piece.start, number * size), min(piece.end, (number + 1) * size))


def _cut(piece: OffsetRange, blocks: Iterable[Block], partition: int, size: int) -> Iterator[CheckedRange]:
    reached, records, digest = piece.start, 0, combine("0", "0")
    for block in sorted(blocks, key=lambda block: block.number):
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

"""Read a topic with Spark's Kafka source, in blocks of offsets: credentials, time limits and memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.ranges import CheckedRange, OffsetRange, combine, hash_of, joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession


# --- reading -------------------------------------------------------------------------------------------------------------
# Credentials are passed as source options. Spark redacts an option whose name or value matches ``spark.redaction.regex`` (a
# JAAS line does, by the word password), and a batch read prints no options in its plan. Kafka's own log redacts passwords and
# keys.


READERS = 4  # tasks per topic: several cores read, and slots are left for the copy workers, which Spark schedules in FIFO order
COLUMNS = ("partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "timestampType", "key", "value", "headers")
TOO_FAR = "overflows when converting to Spark"  # Spark's message for timestamps that Kafka accepts and Spark's type cannot hold
EARLIEST, LATEST = -2, -1  # in Spark's offset JSON: the log start and the log end
TopicReader = Callable[["SparkSession", "TopicPart"], "DataFrame"]  # returns COLUMNS, as ``read_topic`` does
TopicWeigher = Callable[["SparkSession", "TopicPart"], "Heaviest | None"]
# A reader holds the records of a poll, and up to five copies of each: the fetch buffer, its array, its row, and the hash
# input.
POLL_RECORDS = 500  # Kafka's default
POLL_BYTES = 16 << 20  # fewer records per poll if these would be more bytes
LARGE_RECORD = 2 << 20  # topics with larger records are read by a single task per side
LARGEST_RECORD = 16 << 20  # a larger record is not compared: a heap of 1 GB has to hold what two runs read of both sides
LIMITS = {
    "kafka.request.timeout.ms": "15000",  # a response of a broker
    "kafka.default.api.timeout.ms": "20000",  # a call with its retries: an unreachable cluster is detected within 20 s
    "kafka.max.partition.fetch.bytes": str(2 << 20),  # up to 16 readers at a time share the heap
    "kafka.receive.buffer.bytes": str(1 << 20),
    "fetchOffset.numRetries": "1",
    "kafkaConsumer.pollTimeoutMs": "10000",  # how long to wait for a record below the end; there may be none
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPart:
    """The offsets to read of a topic, ``[starts, ends)`` by partition. ``gentle``: with a single task instead of READERS."""

    address: ClusterAddress
    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    gentle: bool
    poll_records: int = POLL_RECORDS  # max.poll.records of a reader
    request_id: str = ""  # ``VerifyPlan.request_id``


@dataclass(frozen=True, slots=True, kw_only=True)
class Heaviest:
    """The largest record of a part of a topic, approximately; ``offset`` is the base offset of its batch."""

    partition: int
    offset: int
    bytes: int


def limited_to_memory(part: TopicPart, heaviest: Heaviest | None) -> TopicPart:
    """Return the part with as few readers and records per poll as its largest record requires.

    Raises RECORDS_TOO_LARGE if that record is too large for Spark's memory, which the copy workers share.
    """
    size = 0 if heaviest is None else heaviest.bytes
    if heaviest is not None and size > LARGEST_RECORD:
        raise LinkEngineError(
            ErrorCode.RECORDS_TOO_LARGE,
            f"Topic {part.topic!r} cannot be compared: partition {heaviest.partition} has a record of {size:,} bytes or more "
            f"in the batch at offset {heaviest.offset}; up to {LARGEST_RECORD:,} bytes are read, since Spark holds several "
            "copies of it in the memory that all copy workers share. Nothing else is affected. Verify again when the record is "
            "gone, or compare it with a consumer of your own.",
        )
    poll_records = max(1, min(POLL_RECORDS, POLL_BYTES // max(1, size)))
    return replace(part, poll_records=poll_records, gentle=part.gentle or size > LARGE_RECORD)


def read_topic(spark: SparkSession, part: TopicPart) -> DataFrame:
    """Return a DataFrame of what a read-committed consumer sees of a topic part; its query fails with ``TOO_FAR`` timestamps.

    A topic with few partitions is split for the READERS. ``failOnDataLoss`` is off: a missing offset is a result of the
    comparison, not a reason to fail.
    """
    readers = 1 if part.gentle else READERS
    options = {
        "assign": json.dumps({part.topic: sorted(part.ends)}),
        "startingOffsets": _offsets(part.topic, part.starts),
        "endingOffsets": _offsets(part.topic, part.ends),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "minPartitions": str(readers),
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": str(part.poll_records),
        **LIMITS,
        **{f"kafka.{name}": value for name, value in properties_of(part.address).items()},
    }
    topic_rows = spark.read.format("kafka").options(**options).load()
    return topic_rows.selectExpr(*COLUMNS).coalesce(readers)


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})


# --- blocks --------------------------------------------------------------------------------------------------------------
# The unit of the first comparison. Plain Python without Spark: rows in, checked ranges out.


LEAST_OFFSETS = 4096  # a block that differs is read again, record by record
MOST_BLOCKS = 4096  # approximate limit of the rows that the first comparison returns

BlockKey = tuple[int, int]  # partition and number of a block
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
    def key(self) -> BlockKey:
        return self.partition, self.number


def block_offsets(pieces: Pieces) -> int:
    """Return the number of offsets per block: a power of two, so that long topics have few and short topics small blocks."""
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

    If a block differs and begins below its partition's log start, its deleted records look like missing records:
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
        covered = span(block.number, piece, size=size)
        if block.differences:
            yield CheckedRange(partition=partition, start=reached, end=covered.start, records=records, hash=digest)
            yield CheckedRange(
                partition=partition, start=covered.start, end=covered.end,
                records=block.records, hash=block.hash, differences=block.differences,
            )  # fmt: skip
            reached, records, digest = covered.end, 0, combine("0", "0")
        else:
            records, digest = records + block.records, combine(digest, block.hash)
    yield CheckedRange(partition=partition, start=reached, end=piece.end, records=records, hash=digest)

"""Read a topic with Spark's Kafka source: offsets, credentials and time limits.

Credentials go into source options. Spark redacts an option whose name or value matches ``spark.redaction.regex`` (a JAAS line
does, by the word password), and a batch read prints no options in its plan. Kafka's own log redacts passwords and keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from linkengine.domain.addresses import ClusterAddress, properties_of
from linkengine.domain.errors import ErrorCode, LinkEngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

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

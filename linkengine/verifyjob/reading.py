"""Reading one topic with Spark's Kafka source: which offsets, whose credentials, with which time limits.

Credentials go into source options. Spark hides an option whose name or value matches ``spark.redaction.regex`` (a JAAS line
does, by the word password), and a batch read prints no options in its plan; Kafka's own log hides passwords and keys.
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

READERS = 4  # tasks per topic: several cores read, and slots are left for the copy, which waits behind who came first
COLUMNS = ("partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "timestampType", "key", "value", "headers")
TOO_FAR = "overflows when converting to Spark"  # what Spark says of times that Kafka takes and its own type does not hold
EARLIEST, LATEST = -2, -1  # what Spark's offset JSON says for "whatever the log has"
TopicReader = Callable[["SparkSession", "TopicPart"], "DataFrame"]  # answers COLUMNS, as ``read_topic`` does
TopicWeigher = Callable[["SparkSession", "TopicPart"], "Heaviest | None"]
# A reader holds the records of one poll, and of each one five copies at times: its buffer, array and row, and what is hashed.
POLL_RECORDS = 500  # Kafka's default
POLL_BYTES = 16 << 20  # fewer records are polled at once where more would come
LARGE_RECORD = 2 << 20  # topics with larger ones are read by one task per side
LARGEST_RECORD = 16 << 20  # a larger one is not compared: a heap of 1 GB has to hold what two comparisons read of both sides
LIMITS = {
    "kafka.request.timeout.ms": "15000",  # one answer of a broker
    "kafka.default.api.timeout.ms": "20000",  # one call with its retries: a cluster that is away shows in 20 s
    "kafka.max.partition.fetch.bytes": str(2 << 20),  # up to 16 readers at a time share the heap
    "kafka.receive.buffer.bytes": str(1 << 20),
    "fetchOffset.numRetries": "1",
    "kafkaConsumer.pollTimeoutMs": "10000",  # how long to wait for a record below the end; there may be none after all
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPart:
    """What to read of a topic: ``[starts, ends)`` by partition. ``gentle``: by one task, else by READERS."""

    address: ClusterAddress
    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    gentle: bool
    poll_records: int = POLL_RECORDS  # that a reader takes at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Heaviest:
    """The largest record of a part of a topic, or about that; ``offset`` is its batch's first."""

    partition: int
    offset: int
    bytes: int


def fitted(part: TopicPart, heaviest: Heaviest | None) -> TopicPart:
    """Return the part with as few readers and records at once as its largest record needs.

    Raises RECORDS_TOO_LARGE where that is too large for Spark's memory, which the copy jobs share.
    """
    size = 0 if heaviest is None else heaviest.bytes
    if heaviest is not None and size > LARGEST_RECORD:
        raise LinkEngineError(
            ErrorCode.RECORDS_TOO_LARGE,
            f"Topic {part.topic!r} cannot be compared: partition {heaviest.partition} has a record of {size:,} bytes or more "
            f"in the batch at offset {heaviest.offset}; up to {LARGEST_RECORD:,} bytes are read, since Spark holds several "
            "copies of it in the memory that all copy jobs share. Nothing else is affected. Verify again when the record is "
            "gone, or compare it with a consumer of your own.",
        )
    poll_records = max(1, min(POLL_RECORDS, POLL_BYTES // max(1, size)))
    return replace(part, poll_records=poll_records, gentle=part.gentle or size > LARGE_RECORD)


def read_topic(spark: SparkSession, part: TopicPart) -> DataFrame:
    """Plan to read what a committed reader sees of a part of a topic; raises where a time is ``TOO_FAR``.

    A topic with few partitions is split for the READERS.

    ``failOnDataLoss`` is off: an offset that is not there is what we came to find out, not a reason to give up.
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

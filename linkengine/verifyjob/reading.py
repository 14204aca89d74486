"""Reading one topic with Spark's Kafka source: which offsets, whose credentials, with which time limits.

Credentials go into source options. Spark hides an option whose name or value matches ``spark.redaction.regex`` (a JAAS line
does, by the word password), and a batch read prints no options in its plan; Kafka's own log hides passwords and keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from linkengine.domain.addresses import ClusterAddress, properties_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

READERS = 4  # tasks per topic: several cores read, and slots are left for the copy, which waits behind who came first
COLUMNS = ("partition", "offset", "unix_millis(timestamp) AS timestamp_ms", "timestampType", "key", "value", "headers")
TOO_FAR = "overflows when converting to Spark"  # what Spark says of times that Kafka takes and its own type does not hold
EARLIEST, LATEST = -2, -1  # what Spark's offset JSON says for "whatever the log has"
LIMITS = {
    "kafka.request.timeout.ms": "15000",  # one answer of a broker
    "kafka.default.api.timeout.ms": "20000",  # one call with its retries: a cluster that is away shows in 20 s
    "kafka.max.partition.fetch.bytes": str(2 << 20),  # up to 16 readers at a time share the heap
    "kafka.receive.buffer.bytes": str(1 << 20),
    "fetchOffset.numRetries": "1",
    "kafkaConsumer.pollTimeoutMs": "10000",  # how long to wait for a record below the end; there may be none after all
}


class TopicReader(Protocol):
    """Reads a topic as ``read_topic`` does, with the columns of COLUMNS."""

    def __call__(
        self,
        spark: SparkSession,
        *,
        address: ClusterAddress,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        gentle: bool,
    ) -> DataFrame: ...


def read_topic(
    spark: SparkSession,
    *,
    address: ClusterAddress,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    gentle: bool,
) -> DataFrame:
    """Plan to read what a committed reader sees of ``topic`` within ``[starts, ends)``; raises where a time is ``TOO_FAR``.

    ``gentle``: one task reads it all; else there are READERS, for which a topic with few partitions is split.

    ``failOnDataLoss`` is off: an offset that is not there is what we came to find out, not a reason to give up.
    """
    readers = 1 if gentle else READERS
    options = {
        "assign": json.dumps({topic: sorted(ends)}),
        "startingOffsets": _offsets(topic, starts),
        "endingOffsets": _offsets(topic, ends),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "minPartitions": str(readers),
        "kafka.isolation.level": "read_committed",
        **LIMITS,
        **{f"kafka.{name}": value for name, value in properties_of(address).items()},
    }
    topic_rows = spark.read.format("kafka").options(**options).load()
    return topic_rows.selectExpr(*COLUMNS).coalesce(readers)


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})

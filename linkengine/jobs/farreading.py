"""Reads topics for Spark that Spark's own Kafka source cannot read: Python workers fetch the rows, Spark compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.committedrows import read_rows
from linkengine.verifyjob.reading import READERS, TopicPart

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

ROWS = 500  # per Arrow batch
SCHEMA = (
    "partition int, offset bigint, timestamp_ms bigint, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_Pieces = Mapping[int, tuple[int, int]]


def read_far(spark: SparkSession, part: TopicPart) -> DataFrame:
    """Return a lazy DataFrame like ``verifyjob.reading.read_topic``. The address travels pickled: Spark does not print that."""
    pieces = {partition: (part.starts[partition], end) for partition, end in sorted(part.ends.items())}
    tasks = 1 if part.gentle else max(1, min(READERS, len(pieces)))
    work = partial(_read_share, address=part.address, topic=part.topic, pieces=pieces, tasks=tasks)
    return spark.range(0, tasks, 1, tasks).mapInArrow(work, SCHEMA)


def _read_share(
    batches: Iterable[pyarrow.RecordBatch], *, address: ClusterAddress, topic: str, pieces: _Pieces, tasks: int
) -> Iterator[pyarrow.RecordBatch]:
    """Run in an executor: read each partition of this task."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for partition in sorted(pieces)[number::tasks]:
                start, end = pieces[partition]
                yield from _batches(address, topic, partition=partition, start=start, end=end)


def _batches(address: ClusterAddress, topic: str, *, partition: int, start: int, end: int) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow  # noqa: PLC0415 - the driver's half does not need it

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    numbers = [("partition", pyarrow.int32()), ("offset", pyarrow.int64()), ("timestamp_ms", pyarrow.int64())]
    contents = [("key", pyarrow.binary()), ("value", pyarrow.binary()), ("headers", pyarrow.list_(header))]
    schema = pyarrow.schema([*numbers, ("timestampType", pyarrow.int32()), *contents])
    rows = read_rows(address, topic, partition=partition, start=start, end=end)
    while chunk := list(islice(rows, ROWS)):
        yield pyarrow.RecordBatch.from_pylist(chunk, schema=schema)

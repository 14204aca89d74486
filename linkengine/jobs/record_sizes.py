"""Size of a topic's largest records, measured by Spark's Python workers before Spark reads them into its heap.

A batch of some kilobytes can decompress to records of hundreds of megabytes, which Kafka's consumer allocates as arrays;
Spark's JVM, which all copy workers need, would fail with an OutOfMemoryError. Here batches are read as they are in the log:
decompressed in pieces, and only if their frames do not limit the decompressed size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog

from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, gap_reason
from linkengine.batches.record_size import heaviest_record
from linkengine.batches.view import iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, LATEST, list_offsets
from linkengine.kafka.single_reads import read_committed
from linkengine.kafka.topicviews import Leader, locate
from linkengine.verifyjob.reading import READERS, Heaviest, TopicPart

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.connect.session import SparkSession

SCHEMA = "partition int, offset bigint, bytes bigint"
_Bounds = Mapping[int, tuple[int, int]]
_log = structlog.get_logger(__name__)


def weigh(spark: SparkSession, part: TopicPart) -> Heaviest | None:
    """Return a part's largest record, None if it has none. The address travels pickled: Spark does not print that."""
    bounds = {partition: (part.starts[partition], end) for partition, end in sorted(part.ends.items())}
    tasks = 1 if part.gentle else max(1, min(READERS, len(bounds)))
    work = partial(_weigh_share, address=part.address, topic=part.topic, bounds=bounds, tasks=tasks, request_id=part.request_id)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, SCHEMA).collect()
    found = max(rows, key=lambda row: row["bytes"], default=None)
    return None if found is None else Heaviest(partition=found["partition"], offset=found["offset"], bytes=found["bytes"])


def _weigh_share(
    batches: Iterable[pyarrow.RecordBatch],
    *,
    address: ClusterAddress,
    topic: str,
    bounds: _Bounds,
    tasks: int,
    request_id: str = "",
) -> Iterator[pyarrow.RecordBatch]:
    """Run in an executor: yield the largest record of each partition of this task."""
    import pyarrow  # noqa: PLC0415 - the driver's half does not need it

    bind_request(topic, request_id)
    types = [("partition", pyarrow.int32()), ("offset", pyarrow.int64()), ("bytes", pyarrow.int64())]
    for batch in batches:
        for number in batch.column(0).to_pylist():
            share = {partition: bounds[partition] for partition in sorted(bounds)[number::tasks]}
            _log.info("verify.measuring_records", partitions=list(share))
            rows = heaviest_of(address, topic, share)
            yield pyarrow.RecordBatch.from_pylist(rows, schema=pyarrow.schema(types))


def bind_request(topic: str, request_id: str) -> None:
    """Bind the topic and the id of the request that asked for the comparison to the log lines of this task in an executor."""
    structlog.contextvars.clear_contextvars()  # Python workers are reused
    structlog.contextvars.bind_contextvars(topic=topic, **({"request_id": request_id} if request_id else {}))


def heaviest_of(address: ClusterAddress, topic: str, bounds: _Bounds) -> list[dict[str, int]]:
    """Return (partition, base offset of its batch, bytes) of the largest record of each partition within its bounds."""
    cluster, found = Cluster(address), []
    try:
        views = cluster.newest_topics([topic])
        for partition, (start, end) in bounds.items():
            leader, topic_id = locate(views, topic, partition)
            limits = _limits(cluster, leader, (topic, partition), start=start, end=end)
            connection = cluster.open(leader.broker)
            try:
                heaviest = _heaviest(connection, (topic, topic_id, partition), leader.epoch, limits)
            finally:
                connection.close()
            if heaviest is not None:
                found.append({"partition": partition, "offset": heaviest[0], "bytes": heaviest[1]})
    finally:
        cluster.close()
    return found


def _limits(cluster: Cluster, leader: Leader, place: tuple[str, int], *, start: int, end: int) -> tuple[int, int]:
    """Return the bounds limited to what the log holds; -2 and -1 stand for its start and its end."""
    limits = []
    for timestamp, committed in ((EARLIEST, False), (LATEST, True)):
        error, offset = list_offsets(cluster, leader.broker, [place], timestamp=timestamp, read_committed=committed)[place]
        if error:
            raise BrokerError(error, f"The offsets of {place[0]}-{place[1]} cannot be read")
        limits.append(offset)
    return max(start, limits[0]), limits[1] if end < 0 else min(end, limits[1])


def _heaviest(
    connection: Connection, place: tuple[str, bytes, int], leader_epoch: int, limits: tuple[int, int]
) -> tuple[int, int] | None:
    position, end = limits
    found: tuple[int, int] | None = None
    while position < end:
        error, aborted, data = read_committed(connection, topic=place, leader_epoch=leader_epoch, offset=position)
        if error:
            raise BrokerError(error, f"Records of {place[0]}-{place[2]} from offset {position} on cannot be read")
        transactions = AbortedTransactions([AbortedTransaction(*fields) for fields in aborted])
        before = position
        for at, view in iter_batches(data):
            batch = data[at : at + view.size]
            position = max(position, view.next_offset)
            hidden = gap_reason(view, aborted=transactions.contain(view, batch)) is not None
            if hidden or view.base_offset >= end:
                continue
            size = heaviest_record(view, batch)
            if found is None or size > found[1]:
                found = view.base_offset, size
        if position == before:
            break  # compaction has removed the rest, or remote storage is slow
    return found

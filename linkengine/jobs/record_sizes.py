"""Measure the batches of a topic before a consumer decompresses them.

A batch of some kilobytes can decompress to records of hundreds of megabytes. Here batches are read as they are in the log:
decompressed in pieces, and only if their frames do not limit the decompressed size.

* Spark reads with Kafka's own consumer, which allocates an array per record. Spark's JVM, which all copy workers need, would
  fail with an OutOfMemoryError. So Spark's Python workers measure a topic's largest record first (``weigh``).
* librdkafka decompresses all batches of a response at once, aborted ones too, in a Python worker or a Celery worker. It limits
  zstd to ``receive.message.max.bytes`` and gzip not at all. So its responses are limited (``fetch_bytes``) or checked first
  (``check_responses``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import structlog

from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, gap_reason
from linkengine.batches.record_size import decompressed_limit, decompressed_size, heaviest_record
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, LATEST, list_offsets
from linkengine.kafka.single_reads import read_committed
from linkengine.kafka.topicviews import Leader, TopicView, locate
from linkengine.verifyjob.reading import READERS, Heaviest, TopicPart

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.connect.session import SparkSession

SCHEMA = "partition int, offset bigint, bytes bigint"
MOST_FETCHED = 1 << 20  # stored bytes of a response to librdkafka; its default
RESPONSE = 16 << 20  # decompressed bytes of such a response, or a single larger batch
LARGEST_BATCH = 64 << 20  # decompressed bytes; at most three such batches are in the memory of a Python worker
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


class StoredBatches:
    """Reads the batches of a topic as they are in the log, over connections of its own."""

    def __init__(self, address: ClusterAddress, topic: str) -> None:
        self._topic, self._cluster = topic, Cluster(address)
        self._views: dict[str, TopicView] | None = None

    def close(self) -> None:
        """Close the connections; safe to repeat."""
        self._cluster.close()

    def read(self, partition: int, *, start: int, end: int) -> Iterator[tuple[BatchView, memoryview, bool]]:
        """Yield (header, batch, whether it has no visible record) in ``[start, end)``, up to the last stable offset.

        -2 and -1 stand for the start and the end of the log.
        """
        if self._views is None:
            self._views = self._cluster.newest_topics([self._topic])
        leader, topic_id = locate(self._views, self._topic, partition)
        position, end = self._limits(leader, partition, start=start, end=end)
        with closing(self._cluster.open(leader.broker)) as connection:
            while position < end:
                before = position
                place = (self._topic, topic_id, partition)
                for view, batch, hidden in _batches(connection, place, leader_epoch=leader.epoch, offset=position):
                    position = max(position, view.next_offset)
                    if view.base_offset < end:
                        yield view, batch, hidden
                if position == before:
                    break  # compaction has removed the rest, or remote storage is slow

    def _limits(self, leader: Leader, partition: int, *, start: int, end: int) -> tuple[int, int]:
        """Return the bounds limited to what the log holds."""
        place, limits = (self._topic, partition), []
        for timestamp, committed in ((EARLIEST, False), (LATEST, True)):
            answers = list_offsets(self._cluster, leader.broker, [place], timestamp=timestamp, read_committed=committed)
            error, offset = answers[place]
            if error:
                raise BrokerError(error, f"The offsets of {place[0]}-{place[1]} cannot be read")
            limits.append(offset)
        return max(start, limits[0]), limits[1] if end < 0 else min(end, limits[1])


def _batches(
    connection: Connection, place: tuple[str, bytes, int], *, leader_epoch: int, offset: int
) -> Iterator[tuple[BatchView, memoryview, bool]]:
    """Yield the batches of a response."""
    error, aborted, data = read_committed(connection, topic=place, leader_epoch=leader_epoch, offset=offset)
    if error:
        raise BrokerError(error, f"Records of {place[0]}-{place[2]} from offset {offset} on cannot be read")
    transactions = AbortedTransactions([AbortedTransaction(*fields) for fields in aborted])
    for at, view in iter_batches(data):
        batch = data[at : at + view.size]
        yield view, batch, gap_reason(view, aborted=transactions.contain(view, batch)) is not None


def heaviest_of(address: ClusterAddress, topic: str, bounds: _Bounds) -> list[dict[str, int]]:
    """Return (partition, base offset of its batch, bytes) of the largest record of each partition within its bounds."""
    found = []
    with closing(StoredBatches(address, topic)) as stored:
        for partition, (start, end) in bounds.items():
            batches = stored.read(partition, start=start, end=end)
            sizes = ((heaviest_record(view, batch), view.base_offset) for view, batch, hidden in batches if not hidden)
            size, offset = max(sizes, key=itemgetter(0), default=(-1, -1))
            if size >= 0:
                found.append({"partition": partition, "offset": offset, "bytes": size})
    return found


def fetch_bytes(address: ClusterAddress, topic: str, *, partition: int, start: int, end: int) -> int:
    """Return how many stored bytes librdkafka may fetch at once of a range: decompressed, they have at most RESPONSE bytes.

    A batch is fetched and decompressed whole in any case. Raises RECORDS_TOO_LARGE if one has more than LARGEST_BATCH bytes.
    """
    expansion = 1.0
    with closing(StoredBatches(address, topic)) as stored:
        for view, batch, _ in stored.read(partition, start=start, end=end):  # aborted data is decompressed, too
            size = decompressed_limit(view, batch, most=LARGEST_BATCH)
            if size > LARGEST_BATCH:
                raise _too_large(topic, partition, view.base_offset)
            expansion = max(expansion, size / view.size)
    return max(1, min(MOST_FETCHED, int(RESPONSE / expansion)))


def _too_large(topic: str, partition: int, offset: int) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.RECORDS_TOO_LARGE,
        f"the batch at offset {offset} of partition {partition} of topic {topic!r} has more than {LARGEST_BATCH:,} bytes "
        "decompressed. The topic has timestamps that Spark cannot read, and the consumer that reads such topics decompresses "
        "whole batches in the memory of Spark's Python workers. Nothing else is affected. Verify again when the batch is gone, "
        "or compare it with a consumer of your own.",
    )


def check_responses(stored: StoredBatches, partition: int, *, start: int, end: int, most: int) -> int | None:
    """Return where a response begins that has more than ``most`` bytes decompressed; None if none has.

    Considers each response of MOST_FETCHED stored bytes, or of a larger batch, to a consumer that reads ``[start, end)``. Such
    a response may also hold batches from behind ``end``.
    """
    response: deque[tuple[int, int, int]] = deque()  # base offset, stored bytes, decompressed bytes
    fetched = size = 0
    for view, batch, _ in stored.read(partition, start=start, end=LATEST):
        response.append((view.base_offset, view.size, decompressed_size(view, batch, most=most)))
        fetched, size = fetched + response[-1][1], size + response[-1][2]
        while len(response) > 1 and fetched > MOST_FETCHED:
            _, first_fetched, first_size = response.popleft()
            fetched, size = fetched - first_fetched, size - first_size
        if response[0][0] >= end:
            return None
        if size > most:
            return response[0][0]
    return None

"""Verify a mirror against its source in Spark SQL, after measuring the batches that its consumers decompress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import structlog

from linkengine.batches.large import decompressed_limit, decompressed_size, heaviest_record
from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, gap_reason
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import is_compacted
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import OffsetRange, next_pieces, not_reached
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.committed import read_rows
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, LATEST, list_offsets, newest_ends
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.single_reads import read_committed
from linkengine.kafka.topicviews import Leader, TopicMetadata, locate
from linkengine.verifyjob.job import run_verify
from linkengine.verifyjob.reading import POLL_BYTES, READERS, Heaviest, TopicPart

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession


# --- size of batches -----------------------------------------------------------------------------------------------------
# A batch of some kilobytes can decompress to records of hundreds of megabytes. Before a consumer reads a topic, its batches are
# read as they are in the log: decompressed in pieces, and only if their frames do not limit the decompressed size.
#
# * Spark reads with Kafka's own consumer, which allocates an array per record. Spark's JVM, which all copy workers need, would
#   fail with an OutOfMemoryError. So Spark's Python workers measure a topic's largest record first (``weigh``).
# * librdkafka decompresses all batches of a response at once, also aborted batches, in a Python worker or a Celery worker. It
#   limits zstd to ``receive.message.max.bytes`` and gzip not at all. So its responses are limited (``fetch_bytes``) or checked
#   first (``check_responses``).


SIZES_SCHEMA = "partition int, offset bigint, bytes bigint"
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
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, SIZES_SCHEMA).collect()
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
    """Bind the topic and the id of the request for the comparison to the log lines of this task in an executor."""
    structlog.contextvars.clear_contextvars()  # Python workers are reused
    structlog.contextvars.bind_contextvars(topic=topic, **({"request_id": request_id} if request_id else {}))


class StoredBatches:
    """Reads the batches of a topic as they are in the log, over connections of its own."""

    def __init__(self, address: ClusterAddress, topic: str) -> None:
        self._topic, self._cluster = topic, Cluster(address)
        self._views: dict[str, TopicMetadata] | None = None

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
            responses = list_offsets(self._cluster, leader.broker, [place], timestamp=timestamp, read_committed=committed)
            error, offset = responses[place]
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

    A batch is fetched and decompressed whole in any case. Raises RECORDS_TOO_LARGE for a batch above LARGEST_BATCH bytes.
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


# --- verification --------------------------------------------------------------------------------------------------------
# Of the whole mirror, or of the offsets that were not compared yet. Topics that Spark's own Kafka source cannot read are read
# by Python workers; Spark compares the rows.


RUNS = 3  # retention may delete records of one side while both are read, or the topic may become compacted
CATCH_UP_S = 10.0  # time for a mirror to reach the end that its source had
_POLL_S = 0.2


def verify(plan: VerifyPlan, *, spark_url: str, tag: str = "verify") -> VerifyReport:
    """Compare source and mirror record by record up to ``plan.ends``. Blocks.

    Without ``plan.ends``, up to the mirror's end, after waiting up to CATCH_UP_S for it to reach the source's end.
    The report contains how many offsets it lacked even then.
    """
    source_ends = None if plan.ends else _source_ends(plan)
    _await_mirror(plan, source_ends or {})
    report = _verify(complete(plan), spark_url=spark_url, tag=tag)
    if source_ends is None:
        return report
    compared = {partition: end for partition, _, end in report.partitions}
    return replace(report, not_copied=not_reached(source=source_ends, compared=compared))


def verify_next(
    plan: VerifyPlan, *, covered: Mapping[int, Iterable[OffsetRange]], most: int, spark_url: str, tag: str = "verify"
) -> VerifyReport | None:
    """Compare at most ``most`` offsets that are not covered yet, the lowest first; None if none are left. Blocks."""
    whole = complete(plan)
    starts = dict(whole.starts)
    wanted = {partition: OffsetRange(starts[partition], end) for partition, end in whole.ends}
    pieces = sorted(next_pieces(wanted=wanted, covered=covered, most=most).items())
    if not pieces:
        return None
    narrow = replace(
        whole,
        starts=tuple((partition, piece.start) for partition, piece in pieces),
        ends=tuple((partition, piece.end) for partition, piece in pieces),
    )
    return _verify(narrow, spark_url=spark_url, tag=tag)


def complete(plan: VerifyPlan) -> VerifyPlan:
    """Return the plan with starts, ends, and whether either side is compacted.

    A partition begins at the higher of both log starts: below it, one side's retention has deleted what the other may have.
    """
    source, mirror = ClusterAdmin(plan.source), ClusterAdmin(plan.destination)
    ends = plan.ends or tuple(sorted(mirror.offsets(plan.mirror_topic, OffsetKind.END).items()))
    lowest = (
        dict(plan.starts),
        source.offsets(plan.source_topic, OffsetKind.START),
        mirror.offsets(plan.mirror_topic, OffsetKind.START),
    )
    starts = tuple((partition, min(end, max(begins.get(partition, 0) for begins in lowest))) for partition, end in ends)
    sides = (source.effective_configs(plan.source_topic), mirror.effective_configs(plan.mirror_topic))
    return replace(plan, starts=starts, ends=ends, compacted=plan.compacted or any(is_compacted(configs) for configs in sides))


def _source_ends(plan: VerifyPlan) -> dict[int, int] | None:
    """Return the source's ends for a committed reader; None if they cannot be read now: the records may still be readable."""
    try:
        return newest_ends(plan.source, plan.source_topic).stable
    except LinkEngineError as error:
        _log.warning("verify.source_end_unknown", topic=plan.source_topic, code=error.code, problem=error.message)
        return None


def _await_mirror(plan: VerifyPlan, source_ends: Mapping[int, int]) -> None:
    mirror, deadline = ClusterAdmin(plan.destination), time.monotonic() + CATCH_UP_S
    while source_ends and time.monotonic() < deadline:
        if not not_reached(source=source_ends, compared=mirror.offsets(plan.mirror_topic, OffsetKind.END)):
            break
        time.sleep(_POLL_S)


def _verify(plan: VerifyPlan, *, spark_url: str, tag: str) -> VerifyReport:
    """Repeat a run with differences until they are confirmed under an unchanged plan, or none is left.

    If a log start moves all the time, the last run leaves out what retention was about to delete.
    """
    for _ in range(RUNS - 1):
        report = run_verify(plan, spark_url=spark_url, tag=tag, read_far=read_far, weigh=weigh)
        if not report.differences:
            return report
        later = complete(plan)
        if later == plan and report.first_differences:
            return report
        plan = later
    return run_verify(
        plan,
        spark_url=spark_url,
        tag=tag,
        read_far=read_far,
        weigh=weigh,
        starts_after=lambda: dict(complete(plan).starts),
    )


SCHEMA = (
    "partition int, offset bigint, timestamp_ms bigint, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
_Pieces = Mapping[int, tuple[int, int]]


def read_far(spark: SparkSession, part: TopicPart) -> DataFrame:
    """Return a lazy DataFrame like ``verifyjob.reading.read_topic``. The address travels pickled: Spark does not print that."""
    pieces = {partition: (part.starts[partition], end) for partition, end in sorted(part.ends.items())}
    tasks = 1 if part.gentle else max(1, min(READERS, len(pieces)))
    work = partial(_read_share, part=replace(part, starts={}, ends={}), pieces=pieces, tasks=tasks)
    return spark.range(0, tasks, 1, tasks).mapInArrow(work, SCHEMA)


def _read_share(
    batches: Iterable[pyarrow.RecordBatch], *, part: TopicPart, pieces: _Pieces, tasks: int
) -> Iterator[pyarrow.RecordBatch]:
    """Run in an executor: read each partition of this task."""
    bind_request(part.topic, part.request_id)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            share = sorted(pieces)[number::tasks]
            _log.info("verify.reading_records", partitions=share)
            for partition in share:
                yield from read_piece(part, partition, pieces[partition])


def read_piece(part: TopicPart, partition: int, piece: tuple[int, int]) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a partition in Arrow batches of limited size.

    Raises LinkEngineError if a partition cannot be read, RECORDS_TOO_LARGE if a batch is too large for its reader.
    """
    import pyarrow  # noqa: PLC0415 - the driver's half does not need it

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    numbers = [("partition", pyarrow.int32()), ("offset", pyarrow.int64()), ("timestamp_ms", pyarrow.int64())]
    contents = [("key", pyarrow.binary()), ("value", pyarrow.binary()), ("headers", pyarrow.list_(header))]
    schema = pyarrow.schema([*numbers, ("timestampType", pyarrow.int32()), *contents])
    place = {"partition": partition, "start": piece[0], "end": piece[1]}
    rows = read_rows(part.address, part.topic, **place, fetch_bytes=fetch_bytes(part.address, part.topic, **place))
    for chunk in _chunks(rows, most=part.poll_records):
        yield pyarrow.RecordBatch.from_pylist(chunk, schema=schema)


def _chunks(rows: Iterable[Mapping[str, Any]], *, most: int) -> Iterator[list[Mapping[str, Any]]]:
    """Yield at most ``most`` rows and POLL_BYTES bytes at a time, or a single larger row."""
    chunk: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        added = _bytes_of(row)
        if chunk and (len(chunk) == most or size + added > POLL_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += added
    if chunk:
        yield chunk


def _bytes_of(row: Mapping[str, Any]) -> int:
    texts = [row["key"], row["value"], *(text for header in row["headers"] or () for text in header.values())]
    return sum(len(text) for text in texts if text is not None)

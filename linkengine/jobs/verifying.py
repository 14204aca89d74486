"""Verify a mirror against its source in Spark SQL: all of it, or the offsets that were not compared yet.

Topics that Spark's own Kafka source cannot read are read by Python workers; Spark compares the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from linkengine.domain.configs import is_compacted
from linkengine.domain.coverage import next_pieces, not_reached
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import OffsetRange
from linkengine.jobs.record_sizes import bind_request, fetch_bytes, weigh
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.committed import read_rows
from linkengine.kafka.newest_offsets import newest_ends
from linkengine.verifyjob.job import run_verify
from linkengine.verifyjob.reading import POLL_BYTES, READERS, TopicPart

RUNS = 3  # retention may delete records of one side while both are read, or the topic may become compacted
CATCH_UP_S = 10.0  # time for a mirror to reach the end that its source had
_POLL_S = 0.2
_log = structlog.get_logger(__name__)


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


if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

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

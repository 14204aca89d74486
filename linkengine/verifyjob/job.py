"""The verify job: read both topics, compare them block by block, and name the first records that differ.

First look. Each side is read once and reduced to a few numbers per block of offsets: how many records and bytes, and their
hashes (``digests.sql``). Only these are shuffled and compared. A record's hash covers partition, offset, timestamp, headers
and the SHA-256 of key and value, so that nobody can choose contents that collide; three 64-bit hashes are combined, one of
them with a secret of this run, which even who can write to the mirror cannot know beforehand.

Second look, where blocks are not equal: both sides are joined on partition and offset over the doubtful offsets, counted, and
the first differences are fetched. Keys, headers and timestamps are compared as they are, values by length and SHA-256; they are
never shuffled, since Spark's memory is shared with the copy jobs. With ``plan.compacted`` a record that one side lacks is
accepted where compaction may remove it (``compaction.sql``), which takes reading the whole log: the record that replaced it may
lie beyond the end, and what it replaces before the start.

Kafka takes any time of a record, also one beyond the year 294,000, at which Spark gives up: then both topics are read once more
by what the caller gives for that, and Spark compares what it yields.

Transaction markers, aborted data and fillers are invisible to the committed reader that Spark is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import structlog

from linkengine.domain.coverage import RecordDifference
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import OffsetRange
from linkengine.sparkclient import interrupted_after, session, spark_answers, tagged
from linkengine.verifyjob.blocks import Block, Pieces, Place, block_of, block_offsets, checked_ranges, doubtful, still_held
from linkengine.verifyjob.failures import failure_of
from linkengine.verifyjob.reading import (
    EARLIEST,
    LATEST,
    TOO_FAR,
    TopicPart,
    TopicReader,
    TopicWeigher,
    fitted,
    read_topic,
)
from linkengine.verifyjob.report import difference_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

BOUNDS_SCHEMA = "partition int, first_offset bigint, end_offset bigint"
PLACES_SCHEMA = "partition int, offset bigint"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Eyes:
    """Where to compare, and how to read a topic there."""

    spark: SparkSession
    read: TopicReader
    weigh: TopicWeigher | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What both looks saw; ``recounted`` tells records and bytes of the blocks that were looked at twice."""

    block_offsets: int
    blocks: tuple[Block, ...]
    recounted: dict[Place, tuple[int, int]]
    differences: tuple[RecordDifference, ...] = ()


def run_verify(
    plan: VerifyPlan,
    *,
    spark_url: str,
    tag: str = "verify",
    starts_after: Callable[[], Mapping[int, int]] | None = None,
    read_far: TopicReader | None = None,
    weigh: TopicWeigher | None = None,
) -> VerifyReport:
    """Compare both topics within ``[plan.starts, plan.ends)``, which the caller gives; block until done.

    ``starts_after`` tells where both logs begin by then, by partition: what differs and was being deleted is left out.
    ``read_far`` reads topics that hold times beyond Spark's own; it is slower. ``weigh`` finds the largest record of what is to
    be read of the mirror, whose batches are those of the source, before Spark reads either side.
    Raises LinkEngineError when the ends are missing or a cluster cannot be read, SparkUnavailableError without Spark.
    """
    if not plan.ends:
        message = "There is nothing to verify: the plan names no end offsets. Give the mirror's end of every partition."
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, message)
    started_at = time.monotonic()
    pieces = {partition: one for partition, one in _pieces(plan).items() if len(one)}
    eyes = _Eyes(session(spark_url), read_topic, weigh)
    seen = _seen(eyes, plan, pieces, tag=tag, read_far=read_far)
    if starts_after is not None and any(one.differences for one in seen.blocks):
        pieces = still_held(seen.blocks, pieces, starts=starts_after(), size=seen.block_offsets)
        plan, seen = _narrowed(plan, pieces), _within(seen, pieces)
    return _report(plan, pieces, seen, duration_ms=round((time.monotonic() - started_at) * 1000))


def _seen(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, *, tag: str, read_far: TopicReader | None) -> _Seen:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a second of imports

    try:
        return _look(eyes, plan, pieces, tag=tag)
    except PySparkException as error:
        if read_far in (None, eyes.read) or TOO_FAR not in str(error):
            raise _with_place(failure_of(error, plan=plan), eyes, plan, pieces) from error
        _log.info("verify.times_beyond_sparks", topic=plan.mirror_topic, problem=str(error).partition("\n")[0])
    return _seen(_Eyes(eyes.spark, read_far, eyes.weigh), plan, pieces, tag=tag, read_far=read_far)


def _with_place(failure: LinkEngineError, eyes: _Eyes, plan: VerifyPlan, pieces: Pieces) -> LinkEngineError:
    """Name the source's largest record where it has been too large for Spark, though that of the mirror was not."""
    if failure.code is not ErrorCode.RECORDS_TOO_LARGE or eyes.weigh is None:
        return failure
    starts, ends = ({number: getattr(one, bound) for number, one in pieces.items()} for bound in ("start", "end"))
    part = TopicPart(address=plan.source, topic=plan.source_topic, starts=starts, ends=ends, gentle=plan.gentle)
    try:
        fitted(part, eyes.weigh(eyes.spark, part))
    except LinkEngineError as error:
        return error
    except Exception:  # noqa: BLE001 - Spark may be busy with its memory; what is known already counts
        _log.warning("verify.place_unknown", topic=plan.source_topic, exc_info=True)
    return failure


def _look(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, *, tag: str) -> _Seen:
    with (
        spark_answers("finish the comparison"),
        tagged(eyes.spark, tag),
        interrupted_after(eyes.spark, tag, timeout_s=plan.timeout_s),
    ):
        return _compare(eyes, plan, pieces)


def _pieces(plan: VerifyPlan) -> dict[int, OffsetRange]:
    starts = dict(plan.starts)
    return {partition: OffsetRange(min(starts.get(partition, 0), end), end) for partition, end in plan.ends}


def _narrowed(plan: VerifyPlan, pieces: Pieces) -> VerifyPlan:
    starts = {partition: one.start for partition, one in _pieces(plan).items()}
    return replace(plan, starts=tuple((starts | {partition: one.start for partition, one in pieces.items()}).items()))


def _within(seen: _Seen, pieces: Pieces) -> _Seen:
    """Leave out what lies before the pieces."""
    kept = (one for one in seen.blocks if (one.number + 1) * seen.block_offsets > pieces[one.partition].start)
    named = (one for one in seen.differences if one.offset >= pieces[one.partition].start)
    return replace(seen, blocks=tuple(kept), differences=tuple(named))


def _compare(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces) -> _Seen:
    size = block_offsets(pieces)
    if not pieces:
        return _Seen(block_offsets=size, blocks=(), recounted={})
    blocks = _first_look(eyes, plan, pieces, size=size)
    doubts = doubtful(blocks, pieces, size=size)
    if not doubts:
        return _Seen(block_offsets=size, blocks=blocks, recounted={})
    compared = _judged(eyes, plan, pieces, doubts)
    totals = eyes.spark.sql(_sql("totals"), args={"block_offsets": size}, compared=compared).collect()
    found = {(row["partition"], row["block"]): row["differences"] for row in totals}
    return _Seen(
        block_offsets=size,
        blocks=tuple(replace(one, differences=0 if one.equal else found.get(one.place, 0)) for one in blocks),
        recounted={(row["partition"], row["block"]): (row["records"], row["bytes"]) for row in totals},
        differences=_differences(eyes, plan, pieces, doubts) if any(found.values()) else (),
    )


def _first_look(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, *, size: int) -> tuple[Block, ...]:
    arguments = _digest_arguments(size)
    source, mirror = _read(eyes, plan, pieces)
    rows = eyes.spark.sql(
        _sql("blocks"),
        source=eyes.spark.sql(_sql("digests"), args=arguments, topic=source),
        mirror=eyes.spark.sql(_sql("digests"), args=arguments, topic=mirror),
    ).collect()
    return tuple(block_of(row) for row in rows)


def _digest_arguments(size: int) -> dict[str, object]:
    # a text: Spark writes numbers into the code it generates, which the JVM would have to compile anew for each comparison
    return {"block_offsets": size, "secret": secrets.token_hex(16)}


def _differences(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, doubts: Pieces) -> tuple[RecordDifference, ...]:
    """Find the first places, then fetch only the records there: half a topic that differs must not fill Spark's memory."""
    found = eyes.spark.sql(_sql("places"), compared=_judged(eyes, plan, pieces, doubts)).collect()
    offsets: dict[int, list[int]] = {}
    for row in found:
        offsets.setdefault(row["partition"], []).append(row["offset"])
    narrow = {partition: OffsetRange(min(some), max(some) + 1) for partition, some in offsets.items()}
    places = eyes.spark.createDataFrame([(row["partition"], row["offset"]) for row in found], PLACES_SCHEMA)
    compared = _joined(eyes, _read(eyes, plan, narrow), narrow)
    rows = eyes.spark.sql(_sql("differences"), compared=compared, places=places).collect()
    return tuple(difference_of(row) for row in rows)


def _judged(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, doubts: Pieces) -> DataFrame:
    if not plan.compacted:
        return _joined(eyes, _read(eyes, plan, doubts), doubts)
    whole = {partition: OffsetRange(one.start, pieces[partition].end) for partition, one in doubts.items()}
    compared = _joined(eyes, _read(eyes, plan, whole, all_of_it=True), whole)
    return eyes.spark.sql(_sql("compaction"), compared=compared)


def _joined(eyes: _Eyes, sides: tuple[DataFrame, DataFrame], bounds: Pieces) -> DataFrame:
    source, mirror = (eyes.spark.sql(_sql("records"), topic=side) for side in sides)
    rows = [(partition, one.start, one.end) for partition, one in sorted(bounds.items())]
    table = eyes.spark.createDataFrame(rows, BOUNDS_SCHEMA)
    return eyes.spark.sql(_sql("compare"), source=source, mirror=mirror, bounds=table)


def _read(eyes: _Eyes, plan: VerifyPlan, pieces: Pieces, *, all_of_it: bool = False) -> tuple[DataFrame, DataFrame]:
    starts = {partition: EARLIEST if all_of_it else one.start for partition, one in pieces.items()}
    ends = {partition: LATEST if all_of_it else one.end for partition, one in pieces.items()}
    part = TopicPart(address=plan.destination, topic=plan.mirror_topic, starts=starts, ends=ends, gentle=plan.gentle)
    if eyes.weigh is not None:
        part = fitted(part, eyes.weigh(eyes.spark, part))
    source = eyes.read(eyes.spark, replace(part, address=plan.source, topic=plan.source_topic))
    return source, eyes.read(eyes.spark, part)


def _report(plan: VerifyPlan, pieces: Pieces, seen: _Seen, *, duration_ms: int) -> VerifyReport:
    counted = [seen.recounted.get(one.place, (0, 0)) if not one.equal else (one.records, one.bytes) for one in seen.blocks]
    return VerifyReport(
        records_compared=sum(records for records, _ in counted),
        differences=sum(one.differences for one in seen.blocks),
        first_differences=seen.differences,
        bytes_compared=sum(octets for _, octets in counted),
        duration_ms=duration_ms,
        partitions=tuple((partition, one.start, one.end) for partition, one in sorted(_pieces(plan).items())),
        checked=checked_ranges(seen.blocks, pieces, size=seen.block_offsets),
    )


@cache
def _sql(name: str) -> str:
    return files("linkengine.verifyjob").joinpath(f"{name}.sql").read_text()

"""Verification run: read both topics, compare them block by block, and name the first records that differ.

1. Blocks. Each side is read once and reduced to a few numbers per block of offsets: the number of records and bytes, and
   hashes (``digests.sql``). Only these are shuffled and compared. The hash of a record covers partition, offset, timestamp,
   headers and the SHA-256 of key and value, so that contents cannot be chosen to collide. Three 64-bit hashes are combined;
   one of them includes a secret of this run, which a producer of the mirror cannot know beforehand.
2. Records, where blocks are not equal. Both sides are joined on partition and offset over the doubtful offsets, counted, and
   the first differences are fetched. Keys, headers and timestamps are compared as they are, values by length and SHA-256:
   values are never shuffled, since Spark's memory is shared with the copy workers. With ``plan.compacted``, a record that one
   side lacks is accepted where compaction may remove it (``compaction.sql``). That requires reading the whole logs: the record
   that replaced it may lie beyond the end, and the record that it replaced before the start.

Kafka accepts any timestamp, also beyond the year 294,000, which Spark's timestamp type cannot hold: its query fails. Both
topics are then read again by the reader that the caller passes for this case (``read_far``), and Spark compares what it
yields.

Spark reads with ``read_committed``, so transaction markers, aborted data and fillers are invisible to it.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any

import structlog

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import VerifyPlan, VerifyReport
from linkengine.domain.ranges import OffsetRange, RecordDifference
from linkengine.sparkclient import interrupted_after, load_pyspark, session, tagged, translate_spark_errors
from linkengine.verifyjob.reading import (
    EARLIEST,
    LATEST,
    TOO_FAR,
    Block,
    BlockKey,
    Pieces,
    TopicPart,
    TopicReader,
    TopicWeigher,
    block_of,
    block_offsets,
    checked_ranges,
    differing_ranges,
    limited_to_memory,
    read_topic,
    without_deleted,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

BOUNDS_SCHEMA = "partition int, first_offset bigint, end_offset bigint"
PLACES_SCHEMA = "partition int, offset bigint"
_log = structlog.get_logger(__name__)
SHOWN_BYTES = 60  # of a key or value
CONTEXT_BYTES = 12  # shown before the first byte that differs
_CAUSES = (
    ("UnknownTopicOrPartitionException", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "a topic or partition does not exist"),
    ("TopicAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not read a topic"),
    ("GroupAuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials may not use a consumer group"),
    ("AuthorizationException", ErrorCode.AUTHORIZATION_ERROR, "the credentials lack a right"),
    ("SaslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "a cluster refuses the credentials"),
    ("SslAuthenticationException", ErrorCode.AUTHENTICATION_ERROR, "the TLS handshake failed"),
    ("No resolvable bootstrap urls", ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR, "a bootstrap server's name has no address"),
    ("TimeoutException", ErrorCode.TIMEOUT_ERROR, "a cluster does not respond in time"),
    (TOO_FAR, ErrorCode.INTERNAL_ERROR, "a record has a time that Spark's own type does not hold"),
    ("header whose name is not UTF-8", ErrorCode.INTERNAL_ERROR, "besides such times, a header has a name that is not UTF-8"),
    ("OutOfMemoryError", ErrorCode.RECORDS_TOO_LARGE, "its records are larger than Spark's memory allows"),
    ("OPERATION_CANCELED", ErrorCode.ILLEGAL_STATE, "it was cancelled, or took too long"),
)
_OWN_ERROR = re.compile(rf"Error: (?P<code>{'|'.join(ErrorCode)}): (?P<message>.+)")


@dataclass(frozen=True, slots=True)
class _SparkAccess:
    """The Spark session and the functions that read and weigh a topic with it."""

    spark: SparkSession
    read: TopicReader
    weigh: TopicWeigher | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """The result of both comparisons; ``recounted`` has records and bytes of the blocks that were compared by record."""

    block_offsets: int
    blocks: tuple[Block, ...]
    recounted: dict[BlockKey, tuple[int, int]]
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
    """Compare both topics within ``[plan.starts, plan.ends)``, which the caller sets; block until done.

    ``starts_after`` returns the log starts of both topics after the run, by partition: differences below them were being
    deleted and are left out. ``read_far`` reads topics with timestamps that Spark's type cannot hold; it is slower. ``weigh``
    finds the largest record to be read of the mirror, whose batches are those of the source, before Spark reads either side.
    Raises LinkEngineError if the ends are missing or a cluster cannot be read, SparkUnavailableError without Spark.
    """
    if not plan.ends:
        message = (
            "There is nothing to verify: the plan has no end offsets. Set the end offset of every partition of the mirror."
        )
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, message)
    started_at = time.monotonic()
    pieces = {partition: piece for partition, piece in _pieces(plan).items() if len(piece)}
    access = _SparkAccess(session(spark_url), read_topic, weigh)
    result = _compare_with_fallback(access, plan, pieces, tag=tag, read_far=read_far)
    if starts_after is not None and any(block.differences for block in result.blocks):
        pieces = without_deleted(result.blocks, pieces, starts=starts_after(), size=result.block_offsets)
        plan, result = _narrowed(plan, pieces), _within(result, pieces)
    return _report(plan, pieces, result, duration_ms=round((time.monotonic() - started_at) * 1000))


def _compare_with_fallback(
    access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, *, tag: str, read_far: TopicReader | None
) -> _Result:
    load_pyspark()
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a second of imports

    try:
        return _compare_in_session(access, plan, pieces, tag=tag)
    except PySparkException as error:
        if read_far in (None, access.read) or TOO_FAR not in str(error):
            raise _with_largest_record(failure_of(error, plan=plan), access, plan, pieces) from error
        _log.info("verify.timestamps_unsupported", topic=plan.mirror_topic, problem=str(error).partition("\n")[0])
    return _compare_with_fallback(_SparkAccess(access.spark, read_far, access.weigh), plan, pieces, tag=tag, read_far=read_far)


def _with_largest_record(failure: LinkEngineError, access: _SparkAccess, plan: VerifyPlan, pieces: Pieces) -> LinkEngineError:
    """Return an error that names the source's largest record, if that was too large for Spark though the mirror's was not."""
    if failure.code is not ErrorCode.RECORDS_TOO_LARGE or access.weigh is None:
        return failure
    part = _of_source(plan, _of_mirror(plan, pieces))
    try:
        limited_to_memory(part, access.weigh(access.spark, part))
    except LinkEngineError as error:
        return error
    except Exception:  # noqa: BLE001 - Spark may be out of memory; the error that is known already counts
        _log.warning("verify.place_unknown", topic=plan.source_topic, exc_info=True)
    return failure


def _compare_in_session(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, *, tag: str) -> _Result:
    with (
        translate_spark_errors("finish the comparison"),
        tagged(access.spark, tag),
        interrupted_after(access.spark, tag, timeout_s=plan.timeout_s),
    ):
        return _compare(access, plan, pieces)


def _pieces(plan: VerifyPlan) -> dict[int, OffsetRange]:
    starts = dict(plan.starts)
    return {partition: OffsetRange(min(starts.get(partition, 0), end), end) for partition, end in plan.ends}


def _narrowed(plan: VerifyPlan, pieces: Pieces) -> VerifyPlan:
    starts = {partition: piece.start for partition, piece in _pieces(plan).items()}
    return replace(plan, starts=tuple((starts | {partition: piece.start for partition, piece in pieces.items()}).items()))


def _within(result: _Result, pieces: Pieces) -> _Result:
    """Return the result without what lies before the pieces."""
    kept = (block for block in result.blocks if (block.number + 1) * result.block_offsets > pieces[block.partition].start)
    named = (difference for difference in result.differences if difference.offset >= pieces[difference.partition].start)
    return replace(result, blocks=tuple(kept), differences=tuple(named))


def _compare(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces) -> _Result:
    size = block_offsets(pieces)
    if not pieces:
        return _Result(block_offsets=size, blocks=(), recounted={})
    blocks = _compare_blocks(access, plan, pieces, size=size)
    ranges = differing_ranges(blocks, pieces, size=size)
    if not ranges:
        return _Result(block_offsets=size, blocks=blocks, recounted={})
    compared = _compare_records(access, plan, pieces, ranges)
    totals = access.spark.sql(_sql("totals"), args={"block_offsets": size}, compared=compared).collect()
    found = {(row["partition"], row["block"]): row["differences"] for row in totals}
    return _Result(
        block_offsets=size,
        blocks=tuple(replace(block, differences=0 if block.equal else found.get(block.key, 0)) for block in blocks),
        recounted={(row["partition"], row["block"]): (row["records"], row["bytes"]) for row in totals},
        differences=_differences(access, plan, pieces, ranges) if any(found.values()) else (),
    )


def _compare_blocks(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, *, size: int) -> tuple[Block, ...]:
    arguments = _digest_arguments(size)
    source, mirror = _read(access, plan, pieces)
    rows = access.spark.sql(
        _sql("blocks"),
        source=access.spark.sql(_sql("digests"), args=arguments, topic=source),
        mirror=access.spark.sql(_sql("digests"), args=arguments, topic=mirror),
    ).collect()
    return tuple(block_of(row) for row in rows)


def _digest_arguments(size: int) -> dict[str, object]:
    # A string: Spark inlines numbers into generated code, which the JVM would have to compile again for each comparison.
    return {"block_offsets": size, "secret": secrets.token_hex(16)}


def _differences(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, ranges: Pieces) -> tuple[RecordDifference, ...]:
    """Find the first places, then fetch only the records there: differences of half a topic must not fill Spark's memory."""
    found = access.spark.sql(_sql("places"), compared=_compare_records(access, plan, pieces, ranges)).collect()
    offsets: dict[int, list[int]] = {}
    for row in found:
        offsets.setdefault(row["partition"], []).append(row["offset"])
    narrow = {partition: OffsetRange(min(some), max(some) + 1) for partition, some in offsets.items()}
    places = access.spark.createDataFrame([(row["partition"], row["offset"]) for row in found], PLACES_SCHEMA)
    compared = _joined(access, _read(access, plan, narrow), narrow)
    rows = access.spark.sql(_sql("differences"), compared=compared, places=places).collect()
    return tuple(difference_of(row) for row in rows)


def _compare_records(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, ranges: Pieces) -> DataFrame:
    if not plan.compacted:
        return _joined(access, _read(access, plan, ranges), ranges)
    whole = {partition: OffsetRange(piece.start, pieces[partition].end) for partition, piece in ranges.items()}
    compared = _joined(access, _read(access, plan, whole, all_of_it=True), whole)
    return access.spark.sql(_sql("compaction"), compared=compared)


def _joined(access: _SparkAccess, sides: tuple[DataFrame, DataFrame], bounds: Pieces) -> DataFrame:
    source, mirror = (access.spark.sql(_sql("records"), topic=side) for side in sides)
    rows = [(partition, bound.start, bound.end) for partition, bound in sorted(bounds.items())]
    table = access.spark.createDataFrame(rows, BOUNDS_SCHEMA)
    return access.spark.sql(_sql("compare"), source=source, mirror=mirror, bounds=table)


def _read(access: _SparkAccess, plan: VerifyPlan, pieces: Pieces, *, all_of_it: bool = False) -> tuple[DataFrame, DataFrame]:
    part = _of_mirror(plan, pieces, all_of_it=all_of_it)
    if access.weigh is not None:
        part = limited_to_memory(part, access.weigh(access.spark, part))
    return access.read(access.spark, _of_source(plan, part)), access.read(access.spark, part)


def _of_mirror(plan: VerifyPlan, pieces: Pieces, *, all_of_it: bool = False) -> TopicPart:
    return TopicPart(
        address=plan.destination,
        topic=plan.mirror_topic,
        starts={partition: EARLIEST if all_of_it else piece.start for partition, piece in pieces.items()},
        ends={partition: LATEST if all_of_it else piece.end for partition, piece in pieces.items()},
        gentle=plan.gentle,
        request_id=plan.request_id,
    )


def _of_source(plan: VerifyPlan, part: TopicPart) -> TopicPart:
    return replace(part, address=plan.source, topic=plan.source_topic)


def _report(plan: VerifyPlan, pieces: Pieces, result: _Result, *, duration_ms: int) -> VerifyReport:
    counted = [
        result.recounted.get(block.key, (0, 0)) if not block.equal else (block.records, block.bytes) for block in result.blocks
    ]
    return VerifyReport(
        records_compared=sum(records for records, _ in counted),
        differences=sum(block.differences for block in result.blocks),
        first_differences=result.differences,
        bytes_compared=sum(octets for _, octets in counted),
        duration_ms=duration_ms,
        partitions=tuple((partition, piece.start, piece.end) for partition, piece in sorted(_pieces(plan).items())),
        checked=checked_ranges(result.blocks, pieces, size=result.block_offsets),
    )


@cache
def _sql(name: str) -> str:
    return files("linkengine.verifyjob").joinpath(f"{name}.sql").read_text()


# --- values of the report ------------------------------------------------------------------------------------------------
# Shortened, printable and deterministic. A failed Spark query becomes a LinkEngineError, by the Kafka exception in its stack
# trace. The stack trace itself is not shown: it does not help on a page, and exceptions about settings may quote secrets.


def difference_of(row: Any) -> RecordDifference:
    """Return the difference of a row; each side shows the column that differs, a one-sided record its value."""
    kind = row["kind"]
    source_value, mirror_value = _shown(kind, row["source_record"], row["mirror_record"])
    return RecordDifference(
        partition=row["partition"], offset=row["offset"], kind=kind, source_value=source_value, mirror_value=mirror_value
    )


def _shown(kind: str, source: Any, mirror: Any) -> tuple[str | None, str | None]:
    if kind == "missing":
        return _bytes(source["value"]), None
    if kind == "extra":
        return None, _bytes(mirror["value"])
    if kind == "headers":
        return _headers(source["headers"]), _headers(mirror["headers"])
    if kind == "timestamp":
        return _timestamp(source), _timestamp(mirror)
    return _shown_pair(source[kind], mirror[kind])


def _shown_pair(source: bytes | None, mirror: bytes | None) -> tuple[str, str]:
    """Return both values as text, from shortly before the first byte that differs."""
    if source is None or mirror is None:
        return _bytes(source), _bytes(mirror)
    ends = min(len(source), len(mirror))
    differs_at = next(place for place in count() if place == ends or source[place] != mirror[place])
    start = max(differs_at - CONTEXT_BYTES, 0) if differs_at > SHOWN_BYTES - CONTEXT_BYTES else 0
    return _bytes(source, start=start), _bytes(mirror, start=start)


def _bytes(value: bytes | None, *, start: int = 0) -> str:
    if value is None:
        return "null"
    part = bytes(value[start : start + SHOWN_BYTES])
    text = part.decode("utf-8", errors="backslashreplace")
    text = "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)
    before = f"(from byte {start}) …" if start else ""
    after = f"… ({len(value)} bytes)" if start + len(part) < len(value) else ""
    return f"{before}{text}{after}"


def _headers(headers: Any) -> str:
    return (
        "none"
        if headers is None
        else "; ".join(f"{_bytes(header['key'].encode())}={_bytes(header['value'])}" for header in headers)
    )


def _timestamp(record: Any) -> str:
    kinds = {-1: "none", 0: "CreateTime", 1: "LogAppendTime"}
    return f"{record['timestamp_ms']} {kinds.get(record['timestamp_type'], '?')}"


def failure_of(error: Exception, *, plan: VerifyPlan) -> LinkEngineError:
    """Return the error for the cause in Spark's stack trace; INTERNAL_ERROR for an unknown cause."""
    trace = str(error)
    own_error = _OWN_ERROR.search(trace)
    if own_error is not None:  # raised by this engine in Spark's Python workers
        return LinkEngineError(ErrorCode(own_error["code"]), f"{_what(plan)} could not be compared: {own_error['message']}")
    for word, code, cause in _CAUSES:
        if word in trace:
            return LinkEngineError(code, f"{_what(plan)} could not be compared: {cause}. Correct that and verify again.")
    return LinkEngineError(
        ErrorCode.INTERNAL_ERROR,
        f"{_what(plan)} could not be compared ({type(error).__name__}). See the log of the Spark server for the cause.",
    )


def _what(plan: VerifyPlan) -> str:
    return f"Source topic {plan.source_topic} and mirror topic {plan.mirror_topic}"

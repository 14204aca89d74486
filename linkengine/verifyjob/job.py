"""The verify job: read both topics, join them on partition and offset, count, and name the first records that differ.

Which records are compared. Up to ``plan.ends`` (exclusive), from the first record the source still has: below that the
source's retention took them, and a mirror that still holds them is right. Everything from there on must be on both sides.
With ``plan.compacted`` a record that one side lacks is accepted where compaction may remove it (``compaction.sql``), which
takes reading beyond the ends, since the record that replaced it may lie there.

Equal means equal: keys, headers and timestamps are compared as they are, values by length and SHA-256, which nobody can make
collide, neither by accident nor on purpose; a 64-bit hash could be fooled by whoever can write to the mirror.
Transaction markers, aborted data and fillers are invisible to the committed reader that Spark is.

One pass when all is well. Records that the mirror has below the source's first ask for a second one without them,
differences for two small ones: where are the first, and what do they look like. All read from the first place of doubt only.
Values are never shuffled: Spark's memory is shared with the copy jobs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import RecordDifference, VerifyPlan, VerifyReport
from linkengine.sparkclient import session, spark_answers, tagged
from linkengine.verifyjob.failures import failure_of
from linkengine.verifyjob.reading import LATEST, read_topic
from linkengine.verifyjob.report import difference_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.session import SparkSession

BOUNDS_SCHEMA = "partition int, first_offset bigint, end_offset bigint"
PLACES_SCHEMA = "partition int, offset bigint"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """What of a partition is compared: ``[first, end)``; read from ``first`` where it is known."""

    first: int | None
    end: int


def run_verify(plan: VerifyPlan, *, spark_url: str, tag: str = "verify") -> VerifyReport:
    """Compare both topics up to ``plan.ends``, which the caller always gives; block until done.

    Raises LinkEngineError when the ends are missing or a cluster cannot be read, SparkUnavailableError without Spark.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a second of imports

    if not plan.ends:
        message = "There is nothing to verify: the plan names no end offsets. Give the mirror's end of every partition."
        raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, message)
    started_at = time.monotonic()
    spark = session(spark_url)
    try:
        with spark_answers("finish the comparison"), tagged(spark, tag):
            totals, differences = _compare(spark, plan)
    except PySparkException as error:
        raise failure_of(error, plan=plan) from error
    return _report(plan, totals, differences, duration_ms=round((time.monotonic() - started_at) * 1000))


def _compare(spark: SparkSession, plan: VerifyPlan) -> tuple[list[Any], tuple[RecordDifference, ...]]:
    bounds = {partition: _Bounds(first=None, end=end) for partition, end in plan.ends if end > 0}
    if not bounds:
        return [], ()
    totals = _totals(spark, plan, bounds)
    if any(_extra_below_the_source(row) for row in totals):
        bounds = _from_the_source_start(bounds, totals)
        totals = _totals(spark, plan, bounds)
    differences = _differences(spark, plan, totals) if any(row["differences"] for row in totals) else ()
    return totals, differences


def _extra_below_the_source(row: Any) -> bool:
    return row["first_extra"] is not None and row["first_extra"] < _either(row["first_source_offset"], row["first_extra"] + 1)


def _from_the_source_start(bounds: Mapping[int, _Bounds], totals: list[Any]) -> dict[int, _Bounds]:
    starts = {row["partition"]: row["first_source_offset"] for row in totals}
    return {partition: _Bounds(first=_either(starts.get(partition), one.end), end=one.end) for partition, one in bounds.items()}


def _totals(spark: SparkSession, plan: VerifyPlan, bounds: Mapping[int, _Bounds]) -> list[Any]:
    return list(spark.sql(_sql("totals"), compared=_judged(spark, plan, bounds)).collect())


def _differences(spark: SparkSession, plan: VerifyPlan, totals: list[Any]) -> tuple[RecordDifference, ...]:
    """Find the first places, then fetch only the records there: half a topic that differs must not fill Spark's memory."""
    doubtful = {
        row["partition"]: _Bounds(first=row["first_difference"], end=row["last_difference"] + 1)
        for row in totals
        if row["differences"]
    }
    found = spark.sql(_sql("places"), compared=_judged(spark, plan, doubtful)).collect()
    offsets: dict[int, list[int]] = {}
    for row in found:
        offsets.setdefault(row["partition"], []).append(row["offset"])
    narrow = {partition: _Bounds(first=min(some), end=max(some) + 1) for partition, some in offsets.items()}
    places = spark.createDataFrame([(row["partition"], row["offset"]) for row in found], PLACES_SCHEMA)
    rows = spark.sql(_sql("differences"), compared=_compared(spark, plan, narrow), places=places).collect()
    return tuple(difference_of(row) for row in rows)


def _judged(spark: SparkSession, plan: VerifyPlan, bounds: Mapping[int, _Bounds]) -> DataFrame:
    if not plan.compacted:
        return _compared(spark, plan, bounds)
    return spark.sql(_sql("compaction"), compared=_compared(spark, plan, bounds, beyond_the_end=True))


def _compared(
    spark: SparkSession, plan: VerifyPlan, bounds: Mapping[int, _Bounds], *, beyond_the_end: bool = False
) -> DataFrame:
    starts = {partition: one.first for partition, one in bounds.items() if one.first is not None}
    ends = {partition: LATEST if beyond_the_end else one.end for partition, one in bounds.items()}
    source = read_topic(spark, address=plan.source, topic=plan.source_topic, starts=starts, ends=ends)
    mirror = read_topic(spark, address=plan.destination, topic=plan.mirror_topic, starts=starts, ends=ends)
    return spark.sql(
        _sql("compare"),
        source=spark.sql(_sql("records"), topic=source),
        mirror=spark.sql(_sql("records"), topic=mirror),
        bounds=_bounds_table(spark, bounds),
    )


def _bounds_table(spark: SparkSession, bounds: Mapping[int, _Bounds]) -> DataFrame:
    rows = [(partition, _either(one.first, 0), one.end) for partition, one in sorted(bounds.items())]
    return spark.createDataFrame(rows, BOUNDS_SCHEMA)


def _report(
    plan: VerifyPlan, totals: list[Any], differences: tuple[RecordDifference, ...], *, duration_ms: int
) -> VerifyReport:
    starts = {row["partition"]: row["first_source_offset"] for row in totals}
    return VerifyReport(
        records_compared=sum(row["records"] for row in totals),
        differences=sum(row["differences"] for row in totals),
        first_differences=differences,
        bytes_compared=sum(row["bytes"] for row in totals),
        duration_ms=duration_ms,
        partitions=tuple((partition, _either(starts.get(partition), end), end) for partition, end in sorted(plan.ends)),
    )


def _either(value: int | None, default: int) -> int:
    return default if value is None else value


@cache
def _sql(name: str) -> str:
    return files("linkengine.verifyjob").joinpath(f"{name}.sql").read_text()

"""The copy job: one Spark job per slice, one Spark task per share of the partitions, one outcome per partition.

The driver's half (``submit_copy``) and the executor's half (``run_shares``) meet in ``mapInArrow``. Records never pass
through the JVM; the only rows are task numbers on the way in and outcomes as JSON on the way out. ``run_shares`` is pickled by
reference: executors need this package installed or on their path, and it may be of another version than the driver's
(``linkengine.domain.plantexts``).

The plan holds credentials and the keys that sign reports and verify orders. It travels as text inside the pickled function,
which Spark neither prints nor logs; names of columns, tags and descriptions, which it does print, hold ids only.

When a Python worker dies, Spark runs its task again (``spark.task.maxFailures``), at once and with the same share. The
new attempt waits for the dead one's leases to expire, then goes on from the log's end, until the slice's original end. That end
is told by Redis' clock: those of driver and executor may differ by more than a slice.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from linkengine.coordination.allowance import RedisAllowance
from linkengine.coordination.client import clock_ms
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders
from linkengine.coordination.progress import RedisProgress, from_json, to_json
from linkengine.copyjob.ports import SystemClock
from linkengine.domain.dealing import deal
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.plans import CopyPlan, PartitionAssignment, PartitionProgress
from linkengine.domain.plantexts import other_version, read_plan, write_plan
from linkengine.sparkclient import SparkUnavailableError, interrupted_after, session, spark_answers, tagged

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.connect.session import SparkSession

OUTCOME_SCHEMA = "outcome string"
LATE_S = 20.0  # tasks end with their slice; one that has not by then was never begun, or hangs
MIN_SLICE_MS = 1  # an attempt that comes after the slice's end only looks and reports
COLLECT_AFTER = 50_000  # new objects, instead of 700
RunTask = Callable[..., Sequence[PartitionProgress]]


def submit_copy(plan: CopyPlan, *, spark_url: str, redis_url: str = "", run: RunTask | None = None) -> list[PartitionProgress]:
    """Run one slice and block until it is over; answer the last observation of every partition.

    ``redis_url`` is for executors that reach Redis by another address than the plan's. ``run`` replaces the copy loop.
    """
    shares = deal(plan.assignments, plan.tasks)
    if not shares:
        return []
    text = write_plan(replace(plan, redis_url=redis_url or plan.redis_url), shares)
    work = partial(run_shares, text=text, ends_at_ms=_end_of(plan), run=run)
    spark, tasks = session(spark_url), len(shares)
    with _answered_in_time(spark, plan):
        outcomes = spark.range(0, tasks, 1, tasks).mapInArrow(work, OUTCOME_SCHEMA).toArrow()
    return [from_json(text) for text in outcomes.column(0).to_pylist()]


def interrupt_slice(slice_id: str, *, spark_url: str) -> bool:
    """Free whoever waits for the slice in this process; answer whether there was one.

    The Python workers go on until their slice ends or their orders say stop: Spark does not interrupt them.
    """
    spark = session(spark_url)
    with spark_answers(f"interrupt slice {slice_id}"):
        return bool(spark.interruptTag(_tag(slice_id)))


@contextmanager
def _answered_in_time(spark: SparkSession, plan: CopyPlan) -> Iterator[None]:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a second of imports, of no use to an executor

    tag, timeout_s = _tag(plan.slice_id), plan.tuning.slice_ms / 1000 + LATE_S
    try:
        with (
            spark_answers(f"finish slice {plan.slice_id}"),
            tagged(spark, tag),
            interrupted_after(spark, tag, timeout_s=timeout_s),
        ):
            yield
    except PySparkException as error:
        if (versions := other_version(str(error))) is not None:
            raise versions from error
        if "OPERATION_CANCELED" not in str(error):
            raise
        message = (
            f"Slice {plan.slice_id} was interrupted before all of its tasks had ended. Look whether Spark has free task slots."
        )
        raise SparkUnavailableError(message) from error


def run_shares(
    batches: Iterable[pyarrow.RecordBatch], *, text: str, ends_at_ms: int | None, run: RunTask | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Run in an executor: copy the share of the plan whose number comes in, yield one outcome per partition.

    ``ends_at_ms`` is the slice's end by Redis' clock, None where nobody could tell.
    """
    import pyarrow  # noqa: PLC0415 - the driver's half does not need it

    plan, shares = read_plan(text)
    structlog.contextvars.clear_contextvars()  # Python workers are reused
    structlog.contextvars.bind_contextvars(request_id=plan.request_id, slice_id=plan.slice_id)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with _garbage_collected_rarely():
                outcomes = _copy(_until(plan, ends_at_ms), shares[number], run=run)
            yield pyarrow.RecordBatch.from_pydict({"outcome": [to_json(one) for one in outcomes]})


@contextmanager
def _garbage_collected_rarely() -> Iterator[None]:
    """Keep the garbage collector from what is loaded by now: 100,000 objects of PySpark and Arrow that stay.

    Each full collection stopped the copying for some 70 ms to look at them again. The small ones, after every 700 new objects,
    took a thirtieth of the loop's time and found nothing: batches leave no cycles behind.
    """
    often = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)
        gc.unfreeze()


def _copy(plan: CopyPlan, share: Sequence[PartitionAssignment], *, run: RunTask | None) -> Sequence[PartitionProgress]:
    limit, signer = plan.tuning.bytes_per_s, plan.signer
    return (run or _copy_loop())(
        plan,
        share,
        lease=RedisLease(plan.redis_url, ttl_ms=plan.tuning.lease_ttl_ms),
        orders=RedisOrders(plan.redis_url, plan.link_id, signer),
        progress=RedisProgress(plan.redis_url, plan.link_id, signer),
        clock=SystemClock(),
        allowance=RedisAllowance(plan.redis_url, plan.link_id, bytes_per_s=limit) if limit > 0 else None,
    )


def _copy_loop() -> RunTask:
    from linkengine.copyjob import loop  # noqa: PLC0415 - sockets and codecs: executors only

    run: RunTask = loop.run_task
    return run


def _end_of(plan: CopyPlan) -> int | None:
    now_ms = _now_ms(plan)
    return None if now_ms is None else now_ms + plan.tuning.slice_ms


def _until(plan: CopyPlan, ends_at_ms: int | None) -> CopyPlan:
    """Shorten the slice by the time since it was submitted, so that a task that runs again does not outlive its slice."""
    if ends_at_ms is None or (now_ms := _now_ms(plan)) is None:
        return plan
    left_ms = min(max(ends_at_ms - now_ms, MIN_SLICE_MS), plan.tuning.slice_ms)
    return replace(plan, tuning=replace(plan.tuning, slice_ms=left_ms))


def _now_ms(plan: CopyPlan) -> int | None:
    with suppress(CoordinationUnavailableError):  # nothing is owned without Redis: let the task find out how long that lasts
        return clock_ms(plan.redis_url)
    return None


def _tag(slice_id: str) -> str:
    return f"slice-{slice_id}".replace(",", "-")  # Spark separates tags by commas

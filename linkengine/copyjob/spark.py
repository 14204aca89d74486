"""The copy worker as a Spark job: one job with one task, which runs until the worker is told to end.

The driver's half (``submit_worker``) and the executor's half (``run_in_executor``) meet in ``mapInArrow``. Records never pass
through the JVM; the only row says that the worker has ended. The executor's half is pickled by reference: executors need this
package installed or on their path, and it may be of another version than the driver's (``linkengine.domain.plantexts``).

The setup holds the worker's key. It travels as text inside the pickled function, which Spark neither prints nor logs; names of
columns, tags and descriptions, which it does print, hold ids only.

When a Python worker dies, Spark runs its task again (``spark.task.maxFailures``), at once and with the same setup: the new
process reads the same assignments, waits for the dead one's leases to run out and goes on from the logs' ends.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from linkengine.coordination.allowance import RedisAllowances
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.pool import RedisAssignments
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.plantexts import other_version
from linkengine.domain.workers import WorkerSetup, read_setup, write_setup
from linkengine.sparkclient import SparkUnavailableError, session, spark_answers, tagged

if TYPE_CHECKING:
    import pyarrow

OUTCOME_SCHEMA = "outcome string"
COLLECT_AFTER = 50_000  # new objects, instead of 700
SLOTS_ASKED = 1_000_000  # numbers, which Spark would deal out to all of its slots
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")
RunWorker = Callable[[WorkerSetup], None]


def submit_worker(setup: WorkerSetup, *, spark_url: str, run: RunWorker | None = None) -> None:
    """Run a copy worker and block until it has ended. ``run`` replaces the copy loop."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - a second of imports, of no use to an executor

    work = partial(run_in_executor, text=write_setup(setup), run=run)
    spark, tag = session(spark_url), _tag(setup.worker_id)
    try:
        with spark_answers(f"run copy worker {setup.worker_id}"), tagged(spark, tag):
            spark.range(0, 1, 1, 1).mapInArrow(work, OUTCOME_SCHEMA).toArrow()
    except PySparkException as error:
        if (versions := other_version(str(error))) is not None:
            raise versions from error
        if "OPERATION_CANCELED" not in str(error):
            raise
        raise SparkUnavailableError(f"The Spark job of copy worker {setup.worker_id} was interrupted.") from error


def interrupt_worker(worker_id: str, *, spark_url: str) -> bool:
    """End a worker's Spark job that was submitted by this process, and its task within seconds; answer whether there was
    one.
    """
    spark = session(spark_url)
    with spark_answers(f"interrupt copy worker {worker_id}"):
        return bool(spark.interruptTag(_tag(worker_id)))


def count_slots(spark_url: str) -> int:
    """Answer how many tasks Spark runs at a time, as it plans with itself. Runs nothing, so it needs no free slot."""
    spark = session(spark_url)
    with spark_answers("tell its slots"):
        numbers: Any = spark.range(0, SLOTS_ASKED)
        plan = str(numbers._explain_string())  # noqa: SLF001 - ``explain`` prints it
    return slots_in(plan)


def slots_in(plan: str) -> int:
    """Read out of Spark's plan for a range of numbers into how many tasks it would cut it; 0 where it does not tell."""
    found = _SPLITS.search(plan)
    return int(found[1]) if found else 0


def run_in_executor(
    batches: Iterable[pyarrow.RecordBatch], *, text: str, run: RunWorker | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Run in an executor: be a copy worker, then yield one row."""
    import pyarrow  # noqa: PLC0415 - the driver's half does not need it

    setup = read_setup(text)
    structlog.contextvars.clear_contextvars()  # Python workers are reused
    structlog.contextvars.bind_contextvars(worker=setup.worker_id)
    for batch in batches:
        if batch.num_rows:
            with _garbage_collected_rarely():
                (run or copy_until_the_end)(setup)
            yield pyarrow.RecordBatch.from_pydict({"outcome": [setup.worker_id]})


def copy_until_the_end(setup: WorkerSetup) -> None:
    """Be a copy worker: everything it needs to know comes through Redis."""
    from linkengine.copyjob.steward import StewardPorts  # noqa: PLC0415 - sockets and codecs: executors only
    from linkengine.copyjob.worker import run_worker  # noqa: PLC0415

    assignments = RedisAssignments(setup)
    ports = StewardPorts(
        lease=RedisLease(setup.redis_url, ttl_ms=setup.lease_ttl_ms),
        assignments=assignments,
        progress=RedisProgress(setup.redis_url, assignments.signer_of),
        allowances=RedisAllowances(setup.redis_url),
    )
    run_worker(setup, ports=ports)


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


def _tag(worker_id: str) -> str:
    return f"copy-worker-{worker_id}"

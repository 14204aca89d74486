"""Runs a copy worker as a Spark job with one task, which lasts until the worker's assignments end.

The driver part (``run_copy_worker``) passes the executor part (``run_in_executor``) to ``mapInArrow``. Kafka records never pass
through the JVM; the only row of the result says that the worker has ended. The executor part is pickled by reference, so
executors need this package installed or on their path. Its version may differ from the driver's
(``linkengine.domain.plans``).

The setup contains the worker's key. It is text inside the pickled function, which Spark neither prints nor logs. Names of
columns, tags and descriptions, which Spark does print, contain only ids.

When a Python worker process crashes, Spark runs its task again immediately (``spark.task.maxFailures``) with the same setup.
The new process reads the same assignments, waits until the crashed process's leases expire, and resumes at the mirrors' ends.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from linkengine.coordination.client import RedisAllowances
from linkengine.coordination.lease import RedisLease
from linkengine.coordination.pool import RedisAssignments, key_for
from linkengine.coordination.progress import RedisProgress
from linkengine.domain.plans import other_version
from linkengine.domain.workers import Executor, WorkerSetup, read_setup, write_setup
from linkengine.sparkclient import SparkUnavailableError, load_pyspark, session, tagged, translate_spark_errors

if TYPE_CHECKING:
    import pyarrow

OUTCOME_SCHEMA = "outcome string"
COLLECT_AFTER = 50_000  # new objects until a garbage collection, instead of 700
RunWorker = Callable[[WorkerSetup], None]


def setup_worker(worker_id: str, *, redis_url: str, secrets: tuple[str, ...], lease_ttl_ms: int) -> WorkerSetup:
    """Return the setup of a new worker; its key is derived from the newest of the installation's secrets."""
    key = key_for(secrets[0], worker_id)
    return WorkerSetup(worker_id=worker_id, redis_url=redis_url, key=key, lease_ttl_ms=lease_ttl_ms)


def run_copy_worker(setup: WorkerSetup, *, spark_url: str, run: RunWorker | None = None) -> None:
    """Run a copy worker and block until it has ended. ``run`` replaces the copy loop in tests.

    Raises SparkUnavailableError if the job was interrupted or Spark cannot be reached.
    """
    load_pyspark()
    from pyspark.errors import PySparkException  # noqa: PLC0415 - executors do not need it

    work = partial(run_in_executor, text=write_setup(setup), run=run)
    spark, tag = session(spark_url), _tag(setup.worker_id)
    try:
        with translate_spark_errors(f"run copy worker {setup.worker_id}"), tagged(spark, tag):
            spark.range(0, 1, 1, 1).mapInArrow(work, OUTCOME_SCHEMA).toArrow()
    except PySparkException as error:
        if (versions := other_version(str(error))) is not None:
            raise versions from error
        if "OPERATION_CANCELED" not in str(error):
            raise
        raise SparkUnavailableError(f"The Spark job of copy worker {setup.worker_id} was interrupted.") from error


def interrupt_worker(worker_id: str, *, spark_url: str) -> bool:
    """Interrupt a worker's Spark job that this process submitted; return whether it was found. Its task ends in seconds."""
    spark = session(spark_url)
    with translate_spark_errors(f"interrupt copy worker {worker_id}"):
        return bool(spark.interruptTag(_tag(worker_id)))


def run_in_executor(
    batches: Iterable[pyarrow.RecordBatch], *, text: str, run: RunWorker | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Run a copy worker in this executor, then yield a row."""
    import pyarrow  # noqa: PLC0415 - the driver does not need it

    setup = read_setup(text)
    structlog.contextvars.clear_contextvars()  # Python workers are reused
    structlog.contextvars.bind_contextvars(worker=setup.worker_id)
    for batch in batches:
        if batch.num_rows:
            with _garbage_collected_rarely():
                (run or copy_until_the_end)(setup)
            yield pyarrow.RecordBatch.from_pydict({"outcome": [setup.worker_id]})


def copy_until_the_end(setup: WorkerSetup) -> None:
    """Run the copy loop with its Redis connections until its assignments end."""
    from linkengine.copyjob.coordination_thread import CoordinationPorts  # noqa: PLC0415 - sockets and codecs: executors only
    from linkengine.copyjob.pacing import SystemClock  # noqa: PLC0415
    from linkengine.copyjob.worker import run_worker  # noqa: PLC0415

    assignments, clock = RedisAssignments(setup), SystemClock()
    ports = CoordinationPorts(
        lease=RedisLease(setup.redis_url, ttl_ms=setup.lease_ttl_ms),
        assignments=assignments,
        progress=RedisProgress(setup.redis_url, assignments.signer_of, now_ms=clock.now_ms),
        allowances=RedisAllowances(setup.redis_url),
    )
    run_worker(setup, ports=ports, clock=clock, executor=executor_of(os.getpid()))


def executor_of(pid: int) -> Executor:
    """Return the executor that a process runs in, found in the command lines of the process and its ancestors.

    A Python worker is a child of PySpark's daemon, which is a child of the executor. PySpark's TaskContext does not name the
    executor, but the command line does: standalone, YARN and Kubernetes start a CoarseGrainedExecutorBackend, or a subclass,
    with its id and its cores as arguments. Executor ids are unique within an application; the host makes log lines readable.
    """
    try:
        while pid > 0:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            found = dict(pairwise(words))
            if "--executor-id" in found and found.get("--cores", "").isdecimal():
                return Executor(name=f"{found['--executor-id']}@{socket.gethostname()}", slots=int(found["--cores"]))
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:  # an ancestor has ended, or belongs to another user
        return Executor()
    return Executor()


@contextmanager
def _garbage_collected_rarely() -> Iterator[None]:
    """Freeze the objects that exist now, and collect garbage rarely within the block.

    PySpark and Arrow have loaded about 100,000 permanent objects. Each full collection scanned them and stopped the copy for
    about 70 ms. The small collections, after every 700 new objects, took 3 % of the loop's time and found nothing, because
    batches create no reference cycles.
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

"""Submission of copy jobs by separate processes, as in the product, so that it does not delay the measuring process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.workers import WorkerSetup

AT_ONCE = 4  # copy workers
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitters:
    """Spark, and the processes that submit jobs to it."""

    spark: SparkConnectServer
    processes: Executor

    @classmethod
    @contextmanager
    def to(cls, spark: SparkConnectServer) -> Iterator[Self]:
        """Yield the submitters. They end with this process, also if it is killed."""
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(AT_ONCE, spawn, initializer=_begin, initargs=(os.getpid(),)) as processes:
            yield cls(spark=spark, processes=processes)

    @property
    def pid(self) -> int:
        """Return the process id of Spark, whose child processes copy."""
        return self.spark.pid

    def run_worker(self, setup: WorkerSetup) -> Future[None]:
        """Submit a copy worker; the future is done when the worker has ended."""
        return self.processes.submit(jobs.run_copy_worker, setup, spark_url=self.spark.url)


def _begin(parent: int) -> None:
    """Begin a submitter. It ignores SIGINT: the process that started it ends the copy workers first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone. A submitter waits for work at a pipe that its siblings keep open."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)

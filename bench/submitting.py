"""Submission of copy jobs by separate processes, as in the product, so that it does not delay the measuring process."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.workers import WorkerSetup

AT_ONCE = 4  # copy workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitters:
    """Spark, and the processes that submit jobs to it."""

    spark: SparkConnectServer
    processes: Executor

    @classmethod
    @contextmanager
    def to(cls, spark: SparkConnectServer) -> Iterator[Self]:
        """Yield the submitters. They ignore SIGINT: the process that started them ends the copy workers first."""
        ignore = (signal.SIGINT, signal.SIG_IGN)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(AT_ONCE, spawn, initializer=signal.signal, initargs=ignore) as processes:
            yield cls(spark=spark, processes=processes)

    @property
    def pid(self) -> int:
        """Return the process id of Spark, whose child processes copy."""
        return self.spark.pid

    def run_worker(self, setup: WorkerSetup) -> Future[None]:
        """Submit a copy worker; the future is done when the worker has ended."""
        return self.processes.submit(jobs.run_copy_worker, setup, spark_url=self.spark.url)

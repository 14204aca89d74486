"""Copy jobs are submitted by processes of their own, as the product's worker does: who times records waits for none of it."""

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
    """Spark, and who submits to it."""

    spark: SparkConnectServer
    processes: Executor

    @classmethod
    @contextmanager
    def to(cls, spark: SparkConnectServer) -> Iterator[Self]:
        """An interrupt is left to the process that started them: it ends the copy workers first."""
        ignore = (signal.SIGINT, signal.SIG_IGN)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(AT_ONCE, spawn, initializer=signal.signal, initargs=ignore) as processes:
            yield cls(spark=spark, processes=processes)

    @property
    def pid(self) -> int:
        """Of Spark, whose children do the copying."""
        return self.spark.pid

    def run_worker(self, setup: WorkerSetup) -> Future[None]:
        """Submit a copy worker; the answer tells how it ended."""
        return self.processes.submit(jobs.run_copy_worker, setup, spark_url=self.spark.url)

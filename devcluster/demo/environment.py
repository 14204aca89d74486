"""All parts of the demo, started in parallel as far as possible, and stopped in any case.

Redis, two Kafka clusters, Spark Connect, the console's processes, the loaded topics and the live stream.
"""

import secrets
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devcluster.demo import flights, services
from devcluster.demo.live import LiveFlights
from devcluster.demo.progress import Progress
from devcluster.demo.rest import Rest
from devcluster.kafka import KafkaCluster
from devcluster.processes import Process, ProcessFailedError
from devcluster.redis import RedisServer
from devcluster.spark import PRELOAD, SparkConnectServer

USER = "admin"
SOURCE, DESTINATION = "new-york", "london"  # where the clusters would be; the flights depart from New York
STOP_TIMEOUT_S = 5.0
# With reload, every Spark task starts in a new Python process that imports the current code.
RELOADING_SPARK = {"spark.python.worker.reuse": "false"}


class Demo:
    """The demo's parts; a context manager that stops them all."""

    def __init__(self, directory: Path, *, progress: Progress, reload: bool) -> None:
        """Plan all parts in an emptied directory."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o700)
        self._progress = progress
        self._reload = reload
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(max_workers=6, thread_name_prefix="demo")
        self.source = KafkaCluster(SOURCE, directory=directory / f"kafka-{SOURCE}")
        self.destination = KafkaCluster(DESTINATION, directory=directory / f"kafka-{DESTINATION}")
        self.redis = RedisServer(directory=directory / "redis")
        self.spark = SparkConnectServer(
            directory=directory / "spark",
            preload=() if reload else PRELOAD,
            extra=RELOADING_SPARK if reload else None,
        )
        self.console = services.plan_console(directory, redis_url=self.redis.url, spark_url=self.spark.url)
        self.password = secrets.token_urlsafe(9)
        self.key: dict[str, Any] = {}
        self.services: list[Process] = []

    def __enter__(self) -> Self:
        """Start everything, load the topics, register the clusters."""
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop everything."""
        self._progress.step("stopping everything")
        self._close()

    def rest(self) -> Rest:
        """Return a client of the REST API with the demo's key."""
        return Rest(base_url=self.console.base_url, key=self.key["api_key"], secret=self.key["api_secret"])

    def check_alive(self) -> None:
        """Raise ProcessFailedError with the log's tail if a process of the console has ended."""
        for service in self.services:
            if not service.running():
                raise ProcessFailedError(f"{service.name} has ended. The end of its log:\n{service.log_tail()}")

    def _start(self) -> None:
        self._progress.step("starting Redis, two Kafka clusters, Spark Connect and the console")
        for part in (self.redis, self.source, self.destination, self.spark):
            self._stack.callback(part.stop, timeout_s=STOP_TIMEOUT_S)
        source, destination = self._begin(self._start_cluster, self.source), self._begin(self._start_cluster, self.destination)
        console, spark = self._begin(self._start_console), self._begin(self._start_spark)
        loaded = self._begin(self._load, source)
        registered = self._begin(self._register, source, destination, console)
        _all_or_first_failure(source, destination, console, spark, loaded, registered)
        live = LiveFlights(self.source)
        self._stack.callback(live.stop)
        live.start()
        self._progress.step("a live stream of further flights is running")

    def _begin(self, work: Any, *arguments: Any) -> "Future[None]":
        return self._pool.submit(work, *arguments)

    def _start_cluster(self, cluster: KafkaCluster) -> None:
        cluster.start()
        self._progress.step(f"Kafka cluster {cluster.name} is up: {cluster.bootstrap}")

    def _start_spark(self) -> None:
        self.spark.start()
        self._progress.step(f"Spark Connect is up: {self.spark.address}")

    def _start_console(self) -> None:
        self.redis.start()
        self.key = services.prepare(self.console, user=USER, password=self.password)
        self._progress.step("the database has an administrator and an API key")
        self.services = services.start_services(self.console, reload=self._reload)
        services.wait_ready(self.console, self.services)
        self._progress.step(f"the console is up: {self.console.base_url}")

    def _load(self, source: "Future[None]") -> None:
        source.result()
        flights.load(self.source, log=self._progress.tick, now_ms=time.time_ns() // 1_000_000)
        self._progress.step("the topics flights, planes and weather are loaded, planes is compacted")

    def _register(self, *needed: "Future[None]") -> None:
        _all_or_first_failure(*needed)
        for cluster in (self.source, self.destination):
            services.register_cluster(self.console, name=cluster.name, properties=cluster.client_properties("link"))
        self._progress.step("both clusters are registered")

    def _close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for service in self.services:  # before the parts that they use
            service.stop(timeout_s=services.STOP_TIMEOUT_S)
        self._stack.close()


def _all_or_first_failure(*futures: "Future[None]") -> None:
    done, _ = wait(futures, timeout=services.START_TIMEOUT_S * 3, return_when="FIRST_EXCEPTION")
    for future in done:
        future.result()
    if len(done) < len(futures):
        raise TimeoutError("Not all parts started in time; see the logs in var/demo.")

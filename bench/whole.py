"""The whole product on the clusters of the benchmark: web process, worker, beat and PostgreSQL, with copy workers in Spark."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import psycopg

from devcluster.demo import services
from devcluster.demo.rest import Rest
from devcluster.kafka import KafkaCluster
from devcluster.postgres import PostgresServer
from devcluster.processes import Process
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

TIMEOUT_S = 900.0
_COPIED = "SELECT count(*) FROM console_mirrorpartition WHERE phase = 'COPYING'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The running product."""

    rest: Rest
    base_url: str
    links: str  # path of the destination's links
    processes: Mapping[str, int]  # of the control plane, by name
    database_url: str
    spark: int

    def create_link(self, name: str, source: KafkaCluster, *, prefix: str = "") -> None:
        """Create a link without verification. With ``prefix`` it mirrors all topics whose names begin with it."""
        configs = {**source.client_properties("link"), "verify.continuous.enable": "false"}
        if prefix:
            filters = {"topicFilters": [{"name": prefix, "patternType": "PREFIXED", "filterType": "INCLUDE"}]}
            configs |= {"auto.create.mirror.topics.enable": "true", "auto.create.mirror.topics.filters": json.dumps(filters)}
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        self.rest.post(f"{self.links}?link_name={name}", {"source_cluster_id": source.cluster_id, "configs": rows})

    def copied(self) -> int:
        """Count the partitions in phase COPYING: the database gets each change of a phase immediately."""
        return self.count(_COPIED)

    def count(self, query: str) -> int:
        """Return the number that a query of the database yields."""
        with psycopg.connect(self.database_url) as connection:
            row = connection.execute(query).fetchone()
        return 0 if row is None else int(row[0])


@contextmanager
def running(
    *,
    source: KafkaCluster,
    destination: KafkaCluster,
    redis: RedisServer,
    spark: SparkConnectServer,
    copy_workers: int = 1,
) -> Iterator[Product]:
    """Run the product with both clusters registered."""
    with tempfile.TemporaryDirectory() as directory, PostgresServer() as database:
        console = services.plan_console(
            Path(directory), redis_url=redis.url, spark_url=spark.url, copy_workers=copy_workers
        )  # fmt: skip
        console = replace(console, environment={**console.environment, "CLUSTERLINK_DATABASE_URL": database.url})
        key = services.prepare(console, user="admin", password="not used, only the key is")
        started: list[Process] = services.start_services(console, reload=False)
        try:
            services.wait_ready(console, started)
            for name, cluster in (("source", source), ("destination", destination)):
                services.register_cluster(console, name=name, properties=cluster.client_properties("link"))
            yield Product(
                rest=Rest(base_url=console.base_url, key=key["api_key"], secret=key["api_secret"]),
                base_url=console.base_url,
                links=f"/kafka/v3/clusters/{destination.cluster_id}/links",
                processes=_pids(),
                database_url=database.url,
                spark=spark.pid,
            )
        finally:
            for process in started:
                process.stop()


def wait_for(done: Callable[[], bool], what: str, *, poll_s: float = 0.5) -> None:
    """Wait until ``done``; raise TimeoutError after TIMEOUT_S."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Not {what} within {TIMEOUT_S:.0f} s")
        time.sleep(poll_s)


def _pids() -> dict[str, int]:
    """Return the processes of the control plane that this process has started, by name."""
    words = {"uvicorn": "web", "worker": "worker", "beat": "beat", "redis-server": "Redis", "postgres": "PostgreSQL"}
    found: dict[str, int] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline()[:8])
        except psutil.Error:  # it has just ended
            continue
        for word, name in words.items():
            if word in line and name not in found and "pyspark" not in line and "java" not in line:
                found[name] = process.pid
                break
    return found

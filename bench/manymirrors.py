"""The whole product with 10,000 partitions over 1,000 mirrors: its cost idle and at 10 MB/s, and the time of a failover.

Web process, worker, beat, a copy worker in Spark, Redis and PostgreSQL on the clusters of the benchmark. The control plane is
all of these but the copy worker and the clusters. Rows are those that PostgreSQL counts as inserted, updated or deleted.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.figures import Figure
from bench.load import create_topics
from bench.measure import cpu_times
from devcluster.demo import services
from devcluster.demo.rest import Rest
from devcluster.kafka import KafkaCluster
from devcluster.postgres import PostgresServer
from devcluster.processes import Process
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer

NAME = "ten thousand partitions"
MIRRORS, PARTITIONS = 1_000, 10
RATE, RECORD_BYTES = 10_000, 1_000  # records/s over all partitions: 10 MB/s
READ_EVERY = 20  # every n-th topic is read: a consumer of all topics would be a load of its own
IDLE_S, LOAD_S, SETTLE_S = 30.0, 30.0, 15.0
PREFIX, LINK = "bench-wide-", "bench-wide"
MOST_CREATED_S, MOST_P99_MS, MOST_COPY_CORES = 600.0, 100.0, 1.0
MOST_IDLE_CORES, MOST_ROWS_PER_S, MOST_METRICS_S, MOST_FAILOVER_S = 0.3, 50.0, 1.0, 30.0
_TIMEOUT_S = 900.0
_ROWS = "SELECT sum(tup_inserted + tup_updated + tup_deleted) FROM pg_stat_database WHERE datname = current_database()"
STAMP = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many mirrors with how many partitions each."""

    mirrors: int = MIRRORS
    partitions: int = PARTITIONS

    def __str__(self) -> str:
        return f"{self.mirrors * self.partitions:,} partitions over {self.mirrors:,} mirrors"

    @property
    def names(self) -> list[str]:
        return [f"{PREFIX}{number:04}" for number in range(self.mirrors)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    rest: Rest
    base_url: str
    processes: Mapping[str, int]  # of the control plane, by name
    database_url: str
    spark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    control: Mapping[str, float]  # cores by process
    copying: float  # cores of the copy worker
    rows_per_s: float


def measure_many_mirrors(
    source: KafkaCluster,
    destination: KafkaCluster,
    *,
    redis: RedisServer,
    spark: SparkConnectServer,
    size: Size | None = None,
) -> list[Figure]:
    """Mirror all topics, measure idle and under load, fail all over with one request."""
    size = size or Size()
    create_topics(source, size.names, partitions=size.partitions)
    with _running({"source": source, "destination": destination}, redis=redis, spark=spark) as product:
        path = f"/kafka/v3/clusters/{destination.cluster_id}/links"
        began = time.monotonic()
        _mirror_all(product, path, source, size)
        created_s = time.monotonic() - began
        _say(f"{size} created and copying after {created_s:.0f} s")
        time.sleep(SETTLE_S)
        idle = _cost(product, IDLE_S)
        _say(f"idle: {idle}")
        loaded, delays, metrics_s = _under_load(source, destination, product, size)
        _say(f"10 MB/s: {loaded}, p99 {_share(delays, 0.99):.0f} ms, /metrics {metrics_s:.2f} s")
        began = time.monotonic()
        response = product.rest.post(f"{path}/{LINK}/mirrors:failover", {"mirror_topic_name_pattern": f"{PREFIX}.*"})
        accepted = sum(row.get("error_code") is None for row in response["data"])
        _wait(lambda: _stopped(product, path) >= size.mirrors, "failed over")
        failover_s = time.monotonic() - began
        _say(f"{accepted} failed over after {failover_s:.1f} s")
    times = {"created_s": created_s, "metrics_s": metrics_s, "stopped_s": failover_s}
    return _figures(size, idle=idle, loaded=loaded, delays=delays, times=times)


def _figures(size: Size, *, idle: _Cost, loaded: _Cost, delays: Sequence[float], times: Mapping[str, float]) -> list[Figure]:
    rows = [
        ("created and copying", "s", times["created_s"], MOST_CREATED_S, 0),
        ("control plane idle", "cores", sum(idle.control.values()), MOST_IDLE_CORES, 2),
        *((f"idle, {name}", "cores", cores, None, 3) for name, cores in idle.control.items()),
        ("copy worker idle", "cores", idle.copying, None, 2),
        ("row writes idle", "rows/s", idle.rows_per_s, MOST_ROWS_PER_S, 1),
        ("p50 at 10 MB/s", "ms", _share(delays, 0.5), None, 0),
        ("p99 at 10 MB/s", "ms", _share(delays, 0.99), MOST_P99_MS, 0),
        ("copy worker at 10 MB/s", "cores", loaded.copying, MOST_COPY_CORES, 2),
        ("control plane at 10 MB/s", "cores", sum(loaded.control.values()), None, 2),
        ("row writes at 10 MB/s", "rows/s", loaded.rows_per_s, MOST_ROWS_PER_S, 1),
        ("/metrics", "s", times["metrics_s"], MOST_METRICS_S, 2),
        ("all failed over", "s", times["stopped_s"], MOST_FAILOVER_S, 1),
    ]
    return [
        Figure(what=f"{size}: {what}", unit=unit, found=found, goal=goal, most=True, digits=digits)
        for what, unit, found, goal, digits in rows
    ]


@contextmanager
def _running(clusters: Mapping[str, KafkaCluster], *, redis: RedisServer, spark: SparkConnectServer) -> Iterator[_Product]:
    with tempfile.TemporaryDirectory() as directory, PostgresServer() as database:
        console = services.plan_console(Path(directory), redis_url=redis.url, spark_url=spark.url)
        environment = {**console.environment, "CLUSTERLINK_DATABASE_URL": database.url}
        console = replace(console, environment=environment)
        key = services.prepare(console, user="admin", password="not used, only the key is")
        started: list[Process] = services.start_services(console, reload=False)
        try:
            services.wait_ready(console, started)
            for name, cluster in clusters.items():
                services.register_cluster(console, name=name, properties=cluster.client_properties("link"))
            yield _Product(
                rest=Rest(base_url=console.base_url, key=key["api_key"], secret=key["api_secret"]),
                base_url=console.base_url,
                processes=_pids(),
                database_url=database.url,
                spark=spark.pid,
            )
        finally:
            for process in started:
                process.stop()


def _pids() -> dict[str, int]:
    """Return the processes of the control plane that this process has started, by name."""
    words = {"uvicorn": "web", "worker": "worker", "beat": "beat", "redis-server": "Redis", "postgres": "PostgreSQL"}
    found: dict[str, int] = {}
    for process in psutil.Process().children(recursive=True):
        line = " ".join(process.cmdline()[:8])
        for word, name in words.items():
            if word in line and name not in found and "pyspark" not in line and "java" not in line:
                found[name] = process.pid
                break
    return found


def _mirror_all(product: _Product, path: str, source: KafkaCluster, size: Size) -> None:
    filters = {"topicFilters": [{"name": PREFIX, "patternType": "PREFIXED", "filterType": "INCLUDE"}]}
    configs = {
        **source.client_properties("link"),
        "auto.create.mirror.topics.enable": "true",
        "auto.create.mirror.topics.filters": json.dumps(filters),
        "verify.continuous.enable": "false",
    }
    body = {
        "source_cluster_id": source.cluster_id,
        "configs": [{"name": name, "value": value} for name, value in configs.items()],
    }
    product.rest.post(f"{path}?link_name={LINK}", body)
    _wait(lambda: _copied(product) >= size.mirrors * size.partitions, "mirrored", poll_s=3.0)


def _copied(product: _Product) -> int:
    """Count the partitions in phase COPYING: the database gets each change of a phase immediately."""
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute("SELECT count(*) FROM console_mirrorpartition WHERE phase = 'COPYING'").fetchone()
    return 0 if row is None else int(row[0])


def _stopped(product: _Product, path: str) -> int:
    counts = product.rest.get(f"{path}/{LINK}")["category_counts"]
    return sum(row["count"] for row in counts if row["state_category"] == "NOT_APPLICABLE")


def _cost(product: _Product, seconds: float) -> _Cost:
    before, rows = _times(product), _rows(product)
    began = time.monotonic()
    time.sleep(seconds)
    passed_s, after = time.monotonic() - began, _times(product)
    cores = {name: (after[name] - before[name]) / passed_s for name in before}
    copying = cores.pop("copy worker")
    return _Cost(control=cores, copying=copying, rows_per_s=(_rows(product) - rows) / passed_s)


def _times(product: _Product) -> dict[str, float]:
    found = {name: cpu_times(pid).total_s for name, pid in product.processes.items()}
    return {**found, "copy worker": cpu_times(product.spark).python_s}


def _rows(product: _Product) -> int:
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute(_ROWS).fetchone()
    return 0 if row is None else int(row[0])


def _under_load(
    source: KafkaCluster, destination: KafkaCluster, product: _Product, size: Size
) -> tuple[_Cost, list[float], float]:
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(source, size, stop), daemon=True)
    reader = _Reader(destination, size)
    writer.start()
    try:
        reader.read(until_s=time.monotonic() + SETTLE_S)
        costs: list[_Cost] = []
        watch = threading.Thread(target=lambda: costs.append(_cost(product, LOAD_S)), daemon=True)
        watch.start()
        delays = sorted(reader.read(until_s=time.monotonic() + LOAD_S))
        watch.join()
        began = time.monotonic()
        with urlopen(f"{product.base_url}/metrics", timeout=60) as response:
            response.read()
        return costs[0], delays, time.monotonic() - began
    finally:
        stop.set()
        writer.join(timeout=30)
        reader.close()


def _write(source: KafkaCluster, size: Size, stop: threading.Event) -> None:
    producer = Producer({**source.client(), "linger.ms": 5, "acks": "all", "queue.buffering.max.messages": 500_000})
    places = [(name, number) for number in range(size.partitions) for name in size.names]
    due, number = time.monotonic(), 0
    while not stop.is_set():
        for _ in range(RATE // 100):
            name, partition = places[number % len(places)]
            producer.produce(name, f"{time.time() * 1000:.3f}".ljust(RECORD_BYTES), partition=partition)
            number += 1
        producer.poll(0)
        due += 0.01
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(30)


class _Reader:
    """Reads some of the mirrors from their ends on."""

    def __init__(self, cluster: KafkaCluster, size: Size) -> None:
        self._consumer = Consumer({**cluster.client(), "group.id": "bench-wide", "fetch.wait.max.ms": 50, "fetch.min.bytes": 1})
        places = [(name, number) for name in size.names[::READ_EVERY] for number in range(size.partitions)]
        self._consumer.assign([TopicPartition(name, number, 0) for name, number in places])

    def read(self, *, until_s: float) -> list[float]:
        """Return the delays (ms) of what arrives until then."""
        found: list[float] = []
        while time.monotonic() < until_s:
            for message in self._consumer.consume(1_000, 0.01):
                if message.error() is None:
                    delay = time.time() * 1000 - float((message.value() or b"")[:STAMP])
                    found.append(delay)
        return found

    def close(self) -> None:
        self._consumer.close()


def _share(values: Sequence[float], share: float) -> float:
    return values[int(len(values) * share)] if values else float("nan")


def _wait(done: Callable[[], bool], what: str, *, poll_s: float = 0.5) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The mirrors were not {what} within {_TIMEOUT_S:.0f} s")
        time.sleep(poll_s)


def _say(text: Any) -> None:
    print(f"  {text}", flush=True)

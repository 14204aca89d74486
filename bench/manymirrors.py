"""The whole product with 10,000 partitions over 1,000 mirrors: its cost idle and at 10 MB/s, and the time of a failover.

Web process, worker, beat, a copy worker in Spark, Redis and PostgreSQL on the clusters of the benchmark. The control plane is
all of these but the copy worker and the clusters. Rows are those that PostgreSQL counts as inserted, updated or deleted.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.figures import Figure
from bench.load import create_topics
from bench.measure import cpu_times
from bench.whole import Product, running, wait_for
from bench.writer import BareWriter
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer
from linkengine.batches.records import Record, encode_records

NAME = "ten thousand partitions"
MIRRORS, PARTITIONS = 1_000, 10
RATE, RECORD_BYTES, BATCH = 10_000, 1_000, 10  # records/s over all partitions: 10 MB/s; a partition gets BATCH at a time
INTERVAL_MS = 20  # between two requests
READ_EVERY = 20  # every n-th topic is read: a consumer of all topics would be a load of its own
IDLE_S, LOAD_S, SETTLE_S = 30.0, 30.0, 15.0
PREFIX, LINK = "bench-wide-", "bench-wide"
MOST_CREATED_S, MOST_P99_MS, MOST_COPY_CORES = 600.0, 100.0, 1.0
MOST_IDLE_CORES, MOST_ROWS_PER_S, MOST_METRICS_S, MOST_FAILOVER_S = 0.3, 50.0, 1.0, 30.0
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
    _prefill(source, size)
    with running(source=source, destination=destination, redis=redis, spark=spark) as product:
        path = product.links
        began = time.monotonic()
        product.create_link(LINK, source, prefix=PREFIX)
        wait_for(lambda: product.copied() >= size.mirrors * size.partitions, f"all of {size} mirrored", poll_s=3.0)
        created_s = time.monotonic() - began
        _log(f"{size} created and copying after {created_s:.0f} s")
        time.sleep(SETTLE_S)
        idle = _cost(product, IDLE_S)
        _log(f"idle: {idle}")
        _prefill(source, size)  # the second batch of a partition writes the first entries of its indexes, at both brokers
        time.sleep(SETTLE_S)
        loaded, delays, metrics_s = _under_load(source, destination, product, size)
        _log(f"10 MB/s: {loaded}, p99 {_share(delays, 0.99):.0f} ms, /metrics {metrics_s:.2f} s")
        began = time.monotonic()
        response = product.rest.post(f"{path}/{LINK}/mirrors:failover", {"mirror_topic_name_pattern": f"{PREFIX}.*"})
        accepted = sum(row.get("error_code") is None for row in response["data"])
        wait_for(lambda: _stopped(product, path) >= size.mirrors, f"all of {size} failed over")
        failover_s = time.monotonic() - began
        _log(f"{accepted} failed over after {failover_s:.1f} s")
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


def _stopped(product: Product, path: str) -> int:
    counts = product.rest.get(f"{path}/{LINK}")["category_counts"]
    return sum(row["count"] for row in counts if row["state_category"] == "NOT_APPLICABLE")


def _cost(product: Product, seconds: float) -> _Cost:
    before, rows = _times(product), product.count(_ROWS)
    began = time.monotonic()
    time.sleep(seconds)
    passed_s, after = time.monotonic() - began, _times(product)
    cores = {name: (after[name] - before[name]) / passed_s for name in before}
    copying = cores.pop("copy worker")
    return _Cost(control=cores, copying=copying, rows_per_s=(product.count(_ROWS) - rows) / passed_s)


def _times(product: Product) -> dict[str, float]:
    found = {name: cpu_times(pid).total_s for name, pid in product.processes.items()}
    return {**found, "copy worker": cpu_times(product.spark).python_s}


def _under_load(
    source: KafkaCluster, destination: KafkaCluster, product: Product, size: Size
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
    """Write until ``stop`` with requests of several partitions: a client library needs a core for 10,000 partitions."""
    writer = BareWriter(source, *size.names)
    places = [(name, number) for number in range(size.partitions) for name in size.names]
    per_request = RATE * INTERVAL_MS // 1000 // BATCH
    due, first = time.monotonic(), 0
    try:
        for number in itertools.count():
            if stop.is_set():
                return
            batches: dict[str, list[tuple[int, bytearray]]] = defaultdict(list)
            for name, partition in (places[(first + index) % len(places)] for index in range(per_request)):
                batches[name].append((partition, _batch()))
            writer.append(batches, number=number)
            first += per_request
            due += INTERVAL_MS / 1000
            time.sleep(max(0.0, due - time.monotonic()))
    finally:
        writer.close()


def _prefill(source: KafkaCluster, size: Size) -> None:
    """Write a batch to each partition: its first two writes touch new files at both brokers and take longer than later ones."""
    left = list(size.names)
    wait_for(lambda: not _fill(source, left, size), "written to all partitions", poll_s=1.0)


def _fill(source: KafkaCluster, left: list[str], size: Size) -> int:
    """Write to topics and remove them from the list; return how many remain, of which the broker does not know yet."""
    writer = BareWriter(source, *left)
    try:
        for number in range(len(left)):
            writer.append({left[-1]: [(partition, _batch()) for partition in range(size.partitions)]}, number=number)
            left.pop()
    except RuntimeError as error:
        _log(f"{len(left)} topics left: {error}")
    finally:
        writer.close()
    return len(left)


def _batch() -> bytearray:
    now_ms = time.time() * 1000
    value = f"{now_ms:.3f}".encode().ljust(RECORD_BYTES)
    return encode_records([Record(offset, int(now_ms), None, value, []) for offset in range(BATCH)], codec=0)


class _Reader:
    """Reads some of the mirrors from their ends on."""

    def __init__(self, cluster: KafkaCluster, size: Size) -> None:
        self._consumer = Consumer({**cluster.client(), "group.id": "bench-wide", "fetch.wait.max.ms": 50, "fetch.min.bytes": 1})
        places = [(name, number) for name in size.names[::READ_EVERY] for number in range(size.partitions)]
        self._consumer.assign([TopicPartition(name, number, OFFSET_END) for name, number in places])

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


def _log(text: Any) -> None:
    print(f"  {text}", flush=True)

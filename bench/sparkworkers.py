"""200 partitions over 20 topics on two Spark workers, each a process with one task slot, and a third that is added.

The whole product runs on a Spark standalone cluster. It is set to three copy workers: two copy, and the third waits for a slot
until there is a third Spark worker. With one slot per Spark worker, a copy worker and its executor are the same.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench.figures import Figure
from bench.load import create_topics, discard_topics
from bench.steady import Latencies, Load, Place, TimedReader, writing
from bench.whole import Product, running, wait_for
from devcluster.kafka import KafkaCluster
from devcluster.redis import RedisServer
from devcluster.standalone import StandaloneCluster

NAME = "two Spark workers"
TOPICS, PARTITIONS = 20, 10
RATE, BATCH, RECORD_BYTES = 5_000, 10, 1_000  # records/s over all partitions: 5 MB/s
SECONDS, BALANCE_S, ADDING_S = 20.0, 20.0, 60.0
READ_EVERY_MS = 20
LEAST_SHARE, MOST_LOADED_S, MOST_GAP_S = 0.8, 30.0, 1.0
PREFIX, LINK = "bench-spark-", "bench-spark"
_PLACED = (
    "SELECT mirror.name, part.partition, part.worker_id FROM console_mirrorpartition part "
    "JOIN console_mirrortopic mirror ON mirror.id = part.mirror_id WHERE part.worker_id <> ''"
)


def measure_spark_workers(source: KafkaCluster, destination: KafkaCluster) -> Iterator[Figure]:
    """Measure the rate of each executor, then add a Spark worker and wait until it carries load."""
    topics = [f"{PREFIX}{number:02}" for number in range(TOPICS)]
    places = [(topic, partition) for partition in range(PARTITIONS) for topic in topics]
    create_topics(source, topics, partitions=PARTITIONS)
    try:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            cluster = stack.enter_context(StandaloneCluster(directory / "standalone", cores=1)).start(workers=2)
            spark = stack.enter_context(cluster.connect_server(directory / "connect"))
            redis = stack.enter_context(RedisServer())
            product = stack.enter_context(
                running(source=source, destination=destination, redis=redis, spark=spark, copy_workers=3)
            )
            product.create_link(LINK, source, prefix=PREFIX)
            wait_for(lambda: product.copied() >= len(places), f"all of {len(places)} partitions copied")
            load = Load(places=tuple(places), rate=RATE, batch=BATCH, record_bytes=RECORD_BYTES)
            writer = stack.enter_context(writing(source, load))
            reader = TimedReader(destination, places, writer=writer, every_ms=READ_EVERY_MS)
            stack.callback(reader.close)
            yield from _measure(product, cluster, reader)
    finally:
        for kafka in (source, destination):
            discard_topics(kafka, topics)


def _measure(product: Product, cluster: StandaloneCluster, reader: TimedReader) -> Iterator[Figure]:
    what = f"{TOPICS * PARTITIONS} partitions on two Spark workers"
    reader.catch_up()
    reader.read(until_s=time.monotonic() + BALANCE_S)  # the balance follows measured rates
    placed = _placed(product)
    take = reader.take(SECONDS)
    yield from _shares(take, placed, what, workers=2)
    yield Figure(what=f"{what}: p99", unit="ms", found=take.p99_ms, digits=1)

    watch = _Watch(product, placed)
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(cluster.add_worker)
        take = reader.take(ADDING_S, during=watch.sample)
        adding.result()
    what = "a third Spark worker, from the start of its process"
    if watch.loaded_s is None:
        raise RuntimeError(f"The third Spark worker has no partition after {ADDING_S:.0f} s")
    yield Figure(what=f"{what}: until it has load", unit="s", found=watch.loaded_s, goal=MOST_LOADED_S, most=True)
    if watch.balanced_s is not None:
        yield Figure(what=f"{what}: until it has at least {LEAST_SHARE:.0%} of another's", unit="s", found=watch.balanced_s)
    gap = "longest gap of a partition while load moves"
    yield Figure(what=f"{what}: {gap}", unit="s", found=take.gap_s, goal=MOST_GAP_S, most=True, digits=2)
    what = f"{TOPICS * PARTITIONS} partitions on three Spark workers"
    yield from _shares(reader.take(SECONDS), _placed(product), what, workers=3)


class _Watch:
    """When a worker that was not there before has partitions. The time since its start is measured in whole seconds."""

    def __init__(self, product: Product, before: Mapping[Place, str]) -> None:
        self._product, self._before, self._began = product, set(before.values()), time.monotonic()
        self.loaded_s: float | None = None
        self.balanced_s: float | None = None

    def sample(self) -> None:
        """Read where the partitions are placed."""
        counts = Counter(_placed(self._product).values())
        new = max((count for worker, count in counts.items() if worker not in self._before), default=0)
        passed_s = time.monotonic() - self._began
        if new and self.loaded_s is None:
            self.loaded_s = passed_s
        if new >= LEAST_SHARE * max(counts.values(), default=1) and self.balanced_s is None:
            self.balanced_s = passed_s


def _shares(take: Latencies, placed: Mapping[Place, str], what: str, *, workers: int) -> Iterator[Figure]:
    """Yield the rate of each copy worker, by what arrived of the partitions placed on it."""
    rates: Counter[str] = Counter()
    for place, count in take.counts.items():
        rates[placed[place]] += count
    for number, worker in enumerate(sorted(rates)):
        rate = rates[worker] * RECORD_BYTES / SECONDS / 1e6
        yield Figure(what=f"{what}: executor {number}", unit="MB/s", found=rate, digits=2)
    smallest = min(rates.values()) if len(rates) >= workers else 0
    share = smallest / max(rates.values())
    yield Figure(what=f"{what}: smallest rate as share of the largest", unit="", found=share, goal=LEAST_SHARE, digits=2)


def _placed(product: Product) -> dict[Place, str]:
    with psycopg.connect(product.database_url) as connection:
        return {(topic, partition): worker for topic, partition, worker in connection.execute(_PLACED).fetchall()}

"""Rate of verification: a million records of 1 KB on two clusters, with the same records written to source and mirror before.

The first runs in a new Spark server include the warm-up of its JVM; the fifth is closer to a running installation, which
compares every minute. All are shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from confluent_kafka import Producer

from bench.figures import Figure
from bench.load import create_topic, delete_topic
from bench.measure import cpu_times
from devcluster.kafka import KafkaCluster
from devcluster.spark import SparkConnectServer
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.plans import VerifyPlan
from linkengine.jobs.verifying import verify

NAME = "verification"
RECORDS, RECORD_BYTES = 1_000_000, 1024
MOST_S = 10.0
RUNS = ("first", "second", "third", "fourth", "fifth")
_VALUES = 500  # number of different values; the key makes each record unique
_FLUSH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of a run; CPU seconds are Spark's."""

    run: str
    seconds: float
    records: int
    cpu_s: float


def measure_verifying(
    source: KafkaCluster, destination: KafkaCluster, spark: SparkConnectServer, *, meanwhile: Callable[[], None]
) -> list[Comparison]:
    """Compare once per name in RUNS, then repeatedly during ``meanwhile``; raise RuntimeError if a comparison counts wrong."""
    topic, now_ms = "bench-verifying", time.time_ns() // 1_000_000
    for cluster in (source, destination):
        create_topic(cluster, topic, partitions=1)
        _fill(cluster, topic, now_ms=now_ms)
    plan = VerifyPlan(
        source=address_from_properties(source.client_properties("admin")),
        destination=address_from_properties(destination.client_properties("admin")),
        source_topic=topic,
        mirror_topic=topic,
    )
    found = [_compare(plan, spark, run=f"{run} after the start of Spark") for run in RUNS]
    with _comparing(replace(plan, gentle=True), spark):
        meanwhile()
    for cluster in (source, destination):
        delete_topic(cluster, topic)
    return found


@contextmanager
def _comparing(plan: VerifyPlan, spark: SparkConnectServer) -> Iterator[None]:
    """Compare repeatedly in a thread without pauses; the continuous verification makes pauses."""
    stop, failures = threading.Event(), []

    def run() -> None:
        while not stop.is_set():
            try:
                verify(plan, spark_url=spark.url)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
                return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_FLUSH_TIMEOUT_S)
    if failures:
        raise RuntimeError("The witness failed while something was copied.") from failures[0]


def compare_until(plan: VerifyPlan, *, spark_url: str, until_s: float) -> tuple[int, float]:
    """Compare again and again, at least once, until ``time.monotonic()`` is ``until_s``; return (records, seconds).

    Runs in a process of its own. Raises RuntimeError if records differ.
    """
    began, records = time.monotonic(), 0
    while not records or time.monotonic() < until_s:
        report = verify(plan, spark_url=spark_url)
        if report.differences or not report.records_compared:
            raise RuntimeError(f"The witness saw {report.records_compared} records and {report.differences} differences.")
        records += report.records_compared
    return records, time.monotonic() - began


def table(found: Sequence[Comparison]) -> list[str]:
    """Return the lines of the benchmark page."""
    lines = [
        f"Verification of {RECORDS:,} records of {RECORD_BYTES} B, 1 partition, uncompressed; both topics read in full:",
        "",
        "| comparison | seconds | records/s | CPU-s of Spark |",
        "|---|---:|---:|---:|",
    ]
    return lines + [f"| {row.run} | {row.seconds:.1f} | {row.records / row.seconds:,.0f} | {row.cpu_s:.1f} |" for row in found]


def figure(found: Sequence[Comparison]) -> Figure:
    """Return the last comparison with its goal."""
    last = found[-1]
    what = f"comparison of {last.records:,} records of {RECORD_BYTES} B, {last.run}"
    return Figure(what=what, unit="s", found=last.seconds, goal=MOST_S, most=True, digits=1)


def _compare(plan: VerifyPlan, spark: SparkConnectServer, *, run: str) -> Comparison:
    before, began = cpu_times(spark.pid), time.monotonic()
    report = verify(plan, spark_url=spark.url)
    seconds, cpu = time.monotonic() - began, cpu_times(spark.pid).jvm_s - before.jvm_s
    if (report.records_compared, report.differences) != (RECORDS, 0):
        raise RuntimeError(f"The witness saw {report.records_compared} records and {report.differences} differences.")
    print(f"  {NAME}, {run}: {seconds:.1f} s, {cpu:.1f} CPU-s", flush=True)
    return Comparison(run=run, seconds=seconds, records=RECORDS, cpu_s=cpu)


def _fill(cluster: KafkaCluster, topic: str, *, now_ms: int) -> None:
    producer = Producer({**cluster.client("admin"), "enable.idempotence": True, "linger.ms": 50, "batch.size": 131_072})
    for number in range(RECORDS):
        value = (b"%d " % (number % _VALUES)) * RECORD_BYTES
        while True:
            try:
                producer.produce(topic, value[:RECORD_BYTES], key=b"%d" % number, partition=0, timestamp=now_ms)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(_FLUSH_TIMEOUT_S):
        raise RuntimeError(f"Filling {topic} took longer than {_FLUSH_TIMEOUT_S:.0f} s")

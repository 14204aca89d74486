"""End-to-end latency: a producer writes the time into each record at a steady rate, and a consumer of the copy reads it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Producer

from bench.measure import CpuTimes, PeakMemory, cpu_times
from bench.reader import SessionReader
from bench.steal_time import Stolen, Takes, undisturbed_takes
from bench.workloads import LATENCIES, LatencyWorkload
from devcluster.kafka import KafkaCluster

START_TIMEOUT_S = 60.0
CATCH_UP_S = 90.0
CAUGHT_UP_S = 3.0  # time without stale records until the copy counts as caught up
FRESH_MS = 500.0
LATE_S = 2.0  # time after a take in which its records may still arrive
STAMP = 17  # number of characters of the time in a record


class NothingCameError(Exception):
    """No record of the measured time reached the consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from produce() until the consumer has the record, and the CPU seconds per second of that time."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    cores: CpuTimes
    peak_mb: float  # of the largest worker
    stolen: float  # steal time, as a share of the machine


def measure_latency(
    source: KafkaCluster,
    destination: KafkaCluster,
    *,
    topics: tuple[str, str],
    workload: LatencyWorkload,
    pid: int,
    takes: Takes = LATENCIES,
) -> list[Latency]:
    """Produce at the workload's rate and read the copy at the same time; return the undisturbed takes after settling."""
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(source, topics[0], workload, stop), daemon=True)
    writer.start()
    consumer = None
    try:
        consumer = _consumer(destination, topics[1], workload)
        _catch_up(consumer)
        _read(consumer, until_ms=(time.time() + workload.settle_s) * 1000)
        return undisturbed_takes(partial(_take, consumer, seconds=workload.seconds, pid=pid), takes)
    finally:
        stop.set()
        writer.join(timeout=10)
        if consumer is not None:
            consumer.close()


def _take(consumer: SessionReader, *, seconds: float, pid: int) -> Latency:
    """Measure the records produced within ``seconds``, including those that arrive later: they are the slowest."""
    stolen, before, began_ms = Stolen(), cpu_times(pid), time.time() * 1000
    ended_ms = began_ms + seconds * 1000
    found = _read(consumer, until_ms=ended_ms)
    cores = _share(before, cpu_times(pid), seconds)
    found += _read(consumer, until_ms=ended_ms + LATE_S * 1000)
    delays = sorted(delay for sent_ms, delay in found if began_ms <= sent_ms < ended_ms)
    if not delays:
        raise NothingCameError("No record of the counted time came through.")
    memory = PeakMemory(pid)
    memory.sample()
    return Latency(
        p50_ms=delays[len(delays) // 2],
        p99_ms=delays[int(len(delays) * 0.99)],
        worst_ms=delays[-1],
        cores=cores,
        peak_mb=memory.megabytes,
        stolen=stolen.share(),
    )


def _consumer(destination: KafkaCluster, topic: str, workload: LatencyWorkload) -> SessionReader:
    """Return a consumer that has received a first record."""
    try:
        consumer = SessionReader(
            destination, topic, partitions=workload.partitions, timeout_s=START_TIMEOUT_S, every=workload.read_every
        )
    except TimeoutError as error:
        raise NothingCameError(str(error)) from error
    deadline = time.monotonic() + START_TIMEOUT_S
    while not consumer.read():
        if time.monotonic() > deadline:
            consumer.close()
            raise NothingCameError(f"No record came through within {START_TIMEOUT_S:.0f} s.")
    return consumer


def _catch_up(consumer: SessionReader) -> None:
    """Read the backlog of the start until only fresh records arrive, at most for CATCH_UP_S.

    Brokers need long for the first pages of a new log's indexes (memory-mapped files): a thousand new partitions keep each
    broker busy for many seconds. That happens once per log and is not measured.
    """
    deadline = time.monotonic() + CATCH_UP_S
    caught_up_since: float | None = None
    while time.monotonic() < deadline:
        found = _read(consumer, until_ms=time.time() * 1000 + 100)
        if any(delay >= FRESH_MS for _, delay in found):
            caught_up_since = None
        elif found:
            caught_up_since = caught_up_since or time.monotonic()
            if time.monotonic() - caught_up_since >= CAUGHT_UP_S:
                return


def _read(consumer: SessionReader, *, until_ms: float) -> list[tuple[float, float]]:
    """Return (time sent, delay) of the records that arrive until then."""
    found = []
    while time.time() * 1000 < until_ms:
        values = consumer.read()
        now_ms = time.time() * 1000
        found += [(sent_ms, now_ms - sent_ms) for sent_ms in (float(value[:STAMP]) for value in values)]
    return found


def _share(before: CpuTimes, after: CpuTimes, seconds: float) -> CpuTimes:
    return CpuTimes(total_s=(after.total_s - before.total_s) / seconds, python_s=(after.python_s - before.python_s) / seconds)


def _write(source: KafkaCluster, topic: str, workload: LatencyWorkload, stop: threading.Event) -> None:
    producer = Producer({**source.client(), "linger.ms": 0, "acks": "all"})
    due, number = time.monotonic(), 0
    while not stop.is_set():
        stamp = f"{time.time() * 1000:.3f}".ljust(workload.record_bytes)
        producer.produce(topic, value=stamp, partition=number * 7 % workload.partitions)
        producer.poll(0)
        number += 1
        due += 1 / workload.rate
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(10)

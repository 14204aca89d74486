"""End-to-end latency: a producer at a steady rate writes the time into each record, a consumer of the copy reads it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer

from devcluster.kafka import KafkaCluster

SETTLE_S = 8.0  # after the first record came through: what was produced before is not counted
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds from produce() to the record in the consumer's hands."""

    records: int
    p50_ms: float
    p99_ms: float
    worst_ms: float


def measure_latency(
    source: KafkaCluster, destination: KafkaCluster, *, source_topic: str, copy_topic: str, rate: int, seconds: float
) -> Latency:
    """Produce at `rate` records/s for `seconds` after settling, and read the copy at the same time."""
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(source, source_topic, rate, stop), daemon=True)
    consumer = Consumer(
        {
            **destination.client(),
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([copy_topic])
    writer.start()
    try:
        if consumer.poll(START_TIMEOUT_S) is None:
            raise RuntimeError(f"No record came through within {START_TIMEOUT_S:.0f} s.")
        counted_from_ms = (time.time() + SETTLE_S) * 1000
        delays: list[float] = []
        while time.time() * 1000 < counted_from_ms + seconds * 1000:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None and float(message.value()) >= counted_from_ms:
                delays.append(time.time() * 1000 - float(message.value()))
    finally:
        stop.set()
        writer.join(timeout=10)
        consumer.close()
    return _summary(delays)


def _write(source: KafkaCluster, topic: str, rate: int, stop: threading.Event) -> None:
    producer = Producer({**source.client(), "linger.ms": 0, "acks": "all"})
    due = time.monotonic()
    while not stop.is_set():
        producer.produce(topic, value=f"{time.time() * 1000:.3f}")
        producer.poll(0)
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
    producer.flush(10)


def _summary(delays: list[float]) -> Latency:
    if not delays:
        raise RuntimeError("No record came through: nothing was measured.")
    ordered = sorted(delays)
    return Latency(
        records=len(ordered),
        p50_ms=ordered[len(ordered) // 2],
        p99_ms=ordered[int(len(ordered) * 0.99)],
        worst_ms=ordered[-1],
    )

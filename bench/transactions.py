"""Exactly-once sources: producers that commit all partitions every 100 ms, and threads of a streams application.

A streams application that commits every 100 ms and writes little leaves a single record between two markers. Its log is written
here without the pauses: the copy is the same, and the wait is shorter.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Number of producers, and how often and how much they commit."""

    producers: int
    commit_every_s: float  # not synchronized between producers; 0: immediately
    records_per_commit: int
    own_partitions: bool  # each producer has its own partitions, as streams threads do; else all write to all


ALL_TO_ALL = Rhythm(producers=3, commit_every_s=0.1, records_per_commit=2_000, own_partitions=False)  # 100 per partition
STREAMS = Rhythm(producers=4, commit_every_s=0.0, records_per_commit=5, own_partitions=True)  # 1 per partition of 20


def write_transactions(
    cluster: KafkaCluster, topic: str, *, partitions: int, payloads: list[bytes], records: int, rhythm: Rhythm
) -> None:
    """Write the records; raise RuntimeError if a producer fails."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        own = range(number, partitions, rhythm.producers) if rhythm.own_partitions else range(partitions)
        try:
            _produce(cluster, topic, partitions=own, payloads=payloads, records=records // rhythm.producers, rhythm=rhythm)
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(rhythm.producers)]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(rhythm.commit_every_s / rhythm.producers * (number < rhythm.producers - 1))
    for thread in threads:
        thread.join(TIMEOUT_S)
    if errors or any(thread.is_alive() for thread in threads):
        raise RuntimeError(f"Filling {topic} with transactions failed: {errors}")


def _produce(
    cluster: KafkaCluster, topic: str, *, partitions: Sequence[int], payloads: list[bytes], records: int, rhythm: Rhythm
) -> None:
    linger_ms = 5 if rhythm.commit_every_s else 0
    producer = Producer({**cluster.client(), "transactional.id": f"bench-{uuid.uuid4()}", "linger.ms": linger_ms})
    producer.init_transactions(30)
    due = time.monotonic()
    for first in range(0, records, rhythm.records_per_commit):
        producer.begin_transaction()
        for number in range(first, min(first + rhythm.records_per_commit, records)):
            partition = partitions[number % len(partitions)]
            producer.produce(topic, value=payloads[number % len(payloads)], partition=partition)
        due += rhythm.commit_every_s
        time.sleep(max(0.0, due - time.monotonic()))
        producer.commit_transaction(30)

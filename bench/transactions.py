"""An exactly-once source: producers that commit a transaction every 100 ms, unsynchronised, each over all partitions."""

from __future__ import annotations

import threading
import time
import uuid

from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster

PRODUCERS = 3
COMMIT_EVERY_S = 0.1
RECORDS_PER_COMMIT = 2_000  # of each producer: 100 per partition on 20 partitions
TIMEOUT_S = 120.0


def write_transactions(cluster: KafkaCluster, topic: str, *, partitions: int, payloads: list[bytes], records: int) -> None:
    """Write the records, or raise what stopped a producer."""
    errors: list[BaseException] = []
    share = records // PRODUCERS

    def run() -> None:
        try:
            _produce(cluster, topic, partitions=partitions, payloads=payloads, records=share)
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(PRODUCERS)]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(COMMIT_EVERY_S / PRODUCERS * (number < PRODUCERS - 1))
    for thread in threads:
        thread.join(TIMEOUT_S)
    if errors or any(thread.is_alive() for thread in threads):
        raise RuntimeError(f"Filling {topic} with transactions failed: {errors}")


def _produce(cluster: KafkaCluster, topic: str, *, partitions: int, payloads: list[bytes], records: int) -> None:
    producer = Producer({**cluster.client(), "transactional.id": f"bench-{uuid.uuid4()}", "linger.ms": 5})
    producer.init_transactions(30)
    due = time.monotonic()
    for first in range(0, records, RECORDS_PER_COMMIT):
        producer.begin_transaction()
        for number in range(first, min(first + RECORDS_PER_COMMIT, records)):
            producer.produce(topic, value=payloads[number % len(payloads)], partition=number % partitions)
        due += COMMIT_EVERY_S
        time.sleep(max(0.0, due - time.monotonic()))
        producer.commit_transaction(30)

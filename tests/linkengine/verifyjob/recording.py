"""Topics written record by record, so that every offset is known; gaps are aborted transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from tests.watermarks import watermarks

BASE_MS = time.time_ns() // 1_000_000 - 60_000  # recent: retention would delete older records


@dataclass(frozen=True, slots=True, kw_only=True)
class Rec:
    """A record. With a transaction of its own it takes two offsets: the second holds the marker."""

    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    after_ms: int = 0
    transaction: str = field(default="", metadata={"values": ("", "commit", "abort")})


GAP = Rec(value=b"never seen", transaction="abort")


def create(cluster: KafkaCluster, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    admin = AdminClient(cluster.client("admin"))
    admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})])[topic].result(30)


def write(cluster: KafkaCluster, topic: str, records: Sequence[Rec], *, partition: int = 0) -> None:
    """Append in order; the marker of a transaction is in the log before the next record is sent."""
    plain = Producer({**cluster.client("admin"), "enable.idempotence": True, "linger.ms": 5})
    transactional = Producer({**cluster.client("admin"), "transactional.id": f"{topic}-{partition}-{time.time_ns()}"})
    if any(record.transaction for record in records):
        transactional.init_transactions(30)
    log = Log(cluster, topic, partition=partition)
    expected = log.end()
    for record in records:
        expected += 2 if record.transaction else 1
        if record.transaction:
            assert plain.flush(30) == 0
            _transact(transactional, topic, record, partition=partition)
            log.wait_for(expected)
        else:
            _produce(plain, topic, record, partition=partition)
    assert plain.flush(30) == 0
    log.wait_for(expected)
    log.close()


class Log:
    """The log end offset of a partition, including markers."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, partition: int) -> None:
        self._consumer = Consumer({**cluster.client("admin"), "group.id": "recording"})
        self._partition = TopicPartition(topic, partition)
        self.close = self._consumer.close

    def end(self) -> int:
        return watermarks(self._consumer, self._partition)[1]

    def wait_for(self, end: int, *, timeout_s: float = 90.0) -> None:
        deadline = time.monotonic() + timeout_s
        while self.end() != end:
            assert time.monotonic() < deadline, f"the log ends at {self.end()}, not at {end}"
            time.sleep(0.005)


def _transact(producer: Producer, topic: str, record: Rec, *, partition: int) -> None:
    producer.begin_transaction()
    _produce(producer, topic, record, partition=partition)
    assert producer.flush(30) == 0  # otherwise an abort would drop the record before it is sent
    (producer.commit_transaction if record.transaction == "commit" else producer.abort_transaction)(30)


def _produce(producer: Producer, topic: str, record: Rec, *, partition: int) -> None:
    headers: list[tuple[str, str | bytes | None]] = [*record.headers]
    producer.produce(
        topic, record.value, key=record.key, partition=partition, headers=headers or None, timestamp=BASE_MS + record.after_ms
    )


@contextmanager
def denied_read(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Deny reading a topic to all users except super users within the block."""
    rule = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.READ, AclPermissionType.DENY)
    admin = AdminClient(cluster.client("admin"))
    create_acls(admin, [AclBinding(*rule)])
    try:
        yield
    finally:
        for deletion in admin.delete_acls([AclBindingFilter(*rule)]).values():
            deletion.result(60)

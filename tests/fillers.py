"""Mirrors with fillers of every kind, made by the product's copier from sources that need them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.destination.head_seed import seed_head
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.states import GapReason
from tests.linkengine.copyjob.copying import (
    Pair,
    address,
    assignments_for,
    copy_all,
    create_pair,
    producer_for,
    read_topic,
    set_config,
    wait_for,
)

HEAD_START = 1_000_000
PAUSE_S = 0.02  # between records, so that their times differ
_COMPACTED: Mapping[str, str] = MappingProxyType(
    {"cleanup_policy": "compact", "segment_ms": "300", "min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "100000"}
)


def make_markers(clusters: Pair, topic: str) -> list[PartitionProgress]:
    """Mirror records between markers of committed transactions."""
    create_pair(clusters, topic)
    producer = _transactional(clusters[0], topic)
    for number in range(8):
        _write(producer, topic, number, commit=True)
    return copy_all(clusters, topic)


def make_aborted(clusters: Pair, topic: str) -> list[PartitionProgress]:
    """Mirror records between aborted records."""
    create_pair(clusters, topic)
    producer = _transactional(clusters[0], topic)
    for number in range(9):
        _write(producer, topic, number, commit=number % 3 == 2)
    return copy_all(clusters, topic)


def make_compacted(clusters: Pair, topic: str) -> list[PartitionProgress]:
    """Mirror a log from which compaction has removed records. The cleaner rests afterwards."""
    create_pair(clusters, topic, partitions=1, **_COMPACTED)
    producer = producer_for(clusters[0])
    for number in range(60):
        producer.produce(topic, key=f"key {number % 7}", value=f"{topic} {number}")
        if number % 6 == 0:
            producer.flush()
            time.sleep(PAUSE_S)
    producer.flush()
    _wait_until_compacted(clusters[0], topic, producer, fewer_than=50)
    for cluster in clusters:
        set_config(cluster, topic, "cleanup.policy", "delete")
    return copy_all(clusters, topic)


def make_head(clusters: Pair, topic: str) -> list[PartitionProgress]:
    """Mirror a log that begins at a million."""
    source, destination = clusters
    create_pair(clusters, topic)
    (assignment,) = assignments_for(source, topic, topic)
    seed_head(address(source), assignment, start=HEAD_START)
    producer = producer_for(source)
    for number in range(10):
        _produce(producer, topic, number)
    seed_head(address(destination), assignment, start=HEAD_START)
    return copy_all(clusters, topic)


def make_lost(clusters: Pair, topic: str) -> list[PartitionProgress]:
    """Mirror a log from which retention has removed records before they were copied."""
    source, _ = clusters
    create_pair(clusters, topic)
    producer = producer_for(source)
    for number in range(5):
        _produce(producer, topic, number)
    copy_all(clusters, topic)
    for number in range(5, 30):
        _produce(producer, topic, number)
    admin = AdminClient(source.client("admin"))
    admin.delete_records([TopicPartition(topic, 0, 20)])[TopicPartition(topic, 0)].result(30)
    return copy_all(clusters, topic)


MAKERS: Mapping[GapReason, Callable[[Pair, str], list[PartitionProgress]]] = MappingProxyType(
    {
        GapReason.TRANSACTION_MARKER: make_markers,
        GapReason.ABORTED: make_aborted,
        GapReason.COMPACTED: make_compacted,
        GapReason.HEAD: make_head,
        GapReason.LOST: make_lost,
    }
)


def _transactional(cluster: KafkaCluster, name: str) -> Producer:
    producer = producer_for(cluster, transactional_id=name)
    producer.init_transactions()
    return producer


def _write(producer: Producer, topic: str, number: int, *, commit: bool) -> None:
    producer.begin_transaction()
    for step in range(3):
        _produce(producer, topic, f"{number}.{step}" if commit else f"aborted {number}.{step}")
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    time.sleep(PAUSE_S)  # the marker is written after the response


def _produce(producer: Producer, topic: str, what: object) -> None:
    producer.produce(topic, value=f"{topic} {what}")
    assert producer.flush(60) == 0
    time.sleep(PAUSE_S)


def _wait_until_compacted(cluster: KafkaCluster, topic: str, producer: Producer, *, fewer_than: int) -> None:
    """Roll segments with further records until the cleaner has been there."""

    def cleaned() -> bool:
        producer.produce(topic, key="roll", value=f"{topic} roll {time.time_ns()}")
        producer.flush()
        time.sleep(0.35)
        return len(read_topic(cluster, topic)) < fewer_than

    wait_for(cleaned)

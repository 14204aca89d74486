"""An application that reads and writes exactly once: it commits its groups' offsets in transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

from devcluster.kafka import KafkaCluster

WAIT_S = 60


@contextmanager
def open_transaction(cluster: KafkaCluster, group: str, topic: str, offsets: Mapping[int, int]) -> Iterator[Callable[[], None]]:
    """Commit offsets in a transaction and leave that open; yields what commits it."""
    settings = cluster.client("admin")
    producer = Producer({**settings, "transactional.id": f"app-{group}"})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    with closing(Consumer({**settings, "group.id": group})) as consumer:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
        yield lambda: producer.commit_transaction(WAIT_S)

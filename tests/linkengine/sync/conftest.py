"""Topics of the same name on both sides, and groups that commit on either."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from devcluster.kafka import KafkaCluster
from linkengine.domain.groups import Committed
from linkengine.kafka.admin import ClusterAdmin

WAIT_S = 60
Commit = Callable[..., None]


@pytest.fixture
def twin_topic(
    there: ClusterAdmin, here: ClusterAdmin, source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic_name: str
) -> str:
    """A topic of two partitions on both clusters: 100 records on the source, the first 60 of them on the destination."""
    for admin, cluster, count in ((there, source_cluster, 100), (here, destination_cluster, 60)):
        admin.create_topic(topic_name, partitions=2)
        fill(cluster, topic_name, partition=0, count=count)
        fill(cluster, topic_name, partition=1, count=count)
    return topic_name


def fill(cluster: KafkaCluster, topic: str, *, partition: int, count: int) -> None:
    """Append records to a partition."""
    producer = Producer(cluster.client("link"))
    for number in range(count):
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(admin: ClusterAdmin, group: str, topic: str, offsets: dict[int, int], *, metadata: str = "") -> None:
    """Commit in the name of a group without members."""
    wanted = {(topic, partition): Committed(offset=offset, metadata=metadata) for partition, offset in offsets.items()}
    deadline = time.monotonic() + WAIT_S
    while any(refused := list(admin.commit({group: wanted})[group].values())):  # the first coordinator is being made
        assert time.monotonic() < deadline, refused
        time.sleep(0.2)


def offsets_of(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    """Read what a group has committed for a topic."""
    found, failures = admin.committed([group])
    assert not failures
    return {partition: one.offset for (name, partition), one in found[group].items() if name == topic}


def member(cluster: KafkaCluster, group: str, topic: str) -> "closing[Consumer]":
    """Join a group as its only member, and own all partitions; leaves when closed."""
    consumer = Consumer({**cluster.client("link"), "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    return closing(consumer)


def commit_as(consumer: Consumer, topic: str, offsets: dict[int, int]) -> None:
    """Commit as a member does."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)

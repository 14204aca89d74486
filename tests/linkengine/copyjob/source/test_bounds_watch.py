"""The bounds of a source that is not fetched at the moment, on real brokers; those of a recreated topic do not count."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.source.data_loss import _bounds
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import KafkaCode

pytestmark = pytest.mark.kafka


def create(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # the former topic is still being deleted
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            return
        time.sleep(0.2)
    raise TimeoutError(topic)


def test_bounds_of_a_recreated_topic_are_an_error(source_cluster: KafkaCluster, topic_name: str) -> None:
    admin = AdminClient(source_cluster.client("admin"))
    cluster = Cluster(address_from_properties(source_cluster.client_properties("admin")))
    place = (topic_name, 0)
    try:
        create(admin, topic_name)
        producer = Producer(source_cluster.client("admin"))
        producer.produce(topic_name, b"v")
        assert producer.flush(60) == 0
        view = cluster.newest_topics([topic_name])[topic_name]
        before, broker = view.topic_id_text, view.partitions[0].broker
        assert _bounds(cluster, broker, {place: before}) == {place: (0, 0, 1, 1)}

        admin.delete_topics([topic_name])[topic_name].result(30)
        create(admin, topic_name)
        deadline = time.monotonic() + 60
        while _bounds(cluster, broker, {place: before})[place][0] != KafkaCode.INCONSISTENT_TOPIC_ID:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        cluster.close()

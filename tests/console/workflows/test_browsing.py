"""The tasks for live queries, on a real cluster: results are JSON and have the fields that REST returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from console import audit
from console.actors import SYSTEM
from console.models import Cluster
from console.queue import dispatch
from console.tasks.clusters import CHANGES, change_cluster, query_cluster
from devcluster.kafka import KafkaCluster
from tests.console.api.brokers import ACL, CONFIG, GROUP, RESET, TIMED, lag, partition, topic

pytestmark = pytest.mark.kafka
ANYTHING = {
    **dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), "ANY"),
    **dict.fromkeys(("resource_name", "principal", "host")),
}


def request(cluster: Cluster, query: str, **arguments: Any) -> dict[str, Any]:
    if query in CHANGES:
        entry = audit.entry(by=SYSTEM, action=query, resource="cluster", detail=arguments)
        about = {"query": query, "arguments": arguments, "entry": entry, "change_id": uuid4().hex}
        change_cluster(reply_to="reply", cluster_pk=cluster.pk, **about)
    else:
        query_cluster(reply_to="reply", cluster_pk=cluster.pk, query=query, arguments=arguments)
    response = dispatch.wait_for_reply("reply", timeout_s=5)
    assert response is not None
    return response


def same_fields(found: Mapping[str, Any], example: Mapping[str, Any]) -> None:
    assert set(found) == set(example)


def test_every_query_returns_the_fields_that_rest_writes(
    destination: Cluster, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    size = {"partitions": 2, "replication_factor": 1}
    made = request(destination, "create_topic", topic=topic_name, configs={"segment.ms": "60000"}, validate_only=False, **size)
    commit(destination_cluster, topic_name)

    same_fields(made["result"], topic("any"))
    assert topic_name in [listed["name"] for listed in request(destination, "topics")["result"]]
    same_fields(request(destination, "topic", topic=topic_name)["result"], topic("any"))
    assert {"READ", "WRITE", "DESCRIBE", "ALTER_CONFIGS"} < set(
        request(destination, "topic_rights", topic=topic_name)["result"]
    )
    partitions = request(destination, "partitions", topic=topic_name)["result"]
    same_fields(partitions[0], partition(0))
    same_fields(partitions[0]["replicas"][0], partition(0)["replicas"][0])
    config = next(
        row for row in request(destination, "topic_configs", topic=topic_name)["result"] if row["name"] == "segment.ms"
    )
    same_fields(config, CONFIG)
    same_fields(config["synonyms"][0], CONFIG["synonyms"][0])
    group = request(destination, "group", group_id=topic_name)["result"]
    same_fields(group, GROUP)
    groups = request(destination, "groups")["result"]
    assert group in groups["groups"]
    assert groups["incomplete"] == ""
    lags = request(destination, "group_lags", group_id=topic_name)["result"]
    same_fields(lags[0], lag(0, behind=1))
    assert (lags[0]["current_offset"], lags[0]["log_end_offset"], lags[0]["lag"]) == (4, 10, 6)
    same_fields(
        request(destination, "offsets_for_time", topic=topic_name, timestamp_ms=0, positions=[[0, 3]])["result"][0], TIMED
    )
    reset = {"topic": topic_name, "group_id": topic_name, "offsets": [[0, 3]], "execute": False}
    same_fields(request(destination, "reset_group", **reset)["result"][0], RESET)
    assert request(destination, "grow_topic", topic=topic_name, partitions=3)["result"]["partitions"] == 3
    change = {"topic": topic_name, "values": {"retention.ms": "1000"}, "deletions": ["segment.ms"], "validate_only": False}
    assert request(destination, "alter_topic_configs", **change) == {"result": None}
    assert request(destination, "topic", topic=topic_name)["result"]["configs"] == {"retention.ms": "1000"}
    assert request(destination, "delete_topic", topic=topic_name) == {"result": True}
    assert request(destination, "topic", topic=topic_name)["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION_ERROR"


def test_acls_are_created_listed_and_deleted(destination: Cluster, topic_name: str) -> None:
    rule = {**ACL, "resource_name": topic_name}

    assert request(destination, "create_acls", rules=[rule]) == {"result": None}
    assert rule in request(destination, "acls", wanted=ANYTHING)["result"]
    assert request(destination, "delete_acls", wanted=rule, guarded=[topic_name]) == {"result": [rule]}


def test_query_on_an_unregistered_cluster_is_refused(destination: Cluster) -> None:
    crashed_worker = Cluster(pk=destination.pk + 1000)

    assert request(crashed_worker, "topics")["error"]["code"] == "INVALID_REQUEST_ERROR"


def commit(cluster: KafkaCluster, name: str) -> None:
    """Write ten records to partition 0 and commit offset 4 for the group with the topic's name."""
    producer = Producer(cluster.client("admin"))
    for number in range(10):
        producer.produce(name, str(number), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**cluster.client("admin"), "group.id": name, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    consumer.close()

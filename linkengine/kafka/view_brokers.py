"""Brokers as the REST API shows them: configs, the replicas they hold, partitions that are being reassigned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # its own type hints leave them out
from kafka.protocol.admin import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import BrokerView, ConfigView, HeldReplica, ReassignmentView
from linkengine.kafka import view_topics
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.topicviews import TopicView

FOR_ALL = "DYNAMIC_DEFAULT_BROKER_CONFIG"
_TIMEOUT_MS = int(REQUEST_TIMEOUT_S * 1000)


def brokers(session: AdminSession) -> list[BrokerView]:
    """Return the brokers that are up, by id."""
    found = session.one(lambda client: client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), what="list the brokers")
    rows = [BrokerView(broker=node.id, host=node.host, port=node.port, rack=node.rack or None) for node in found.nodes]
    return sorted(rows, key=lambda row: row.broker)


def configs(session: AdminSession, broker: int) -> list[ConfigView]:
    """Return the configs of a broker by name."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of broker {broker}",
    )
    entries: Mapping[str, ConfigEntry] = next(iter(found.values()))
    return [view_topics.config_view(entries[name]) for name in sorted(entries)]


def common_configs(session: AdminSession) -> list[ConfigView]:
    """Return the dynamic configs of all brokers (cluster-wide defaults). Any broker lists them besides its own configs."""
    first = brokers(session)[0].broker
    return [found for config in configs(session, first) if (found := _set_for_all(config)) is not None]


def _set_for_all(config: ConfigView) -> ConfigView | None:
    common = next((synonym for synonym in config.synonyms if synonym.source == FOR_ALL), None)
    if common is None:
        return config if config.source == FOR_ALL else None
    value = None if config.is_sensitive else common.value
    return replace(config, name=common.name, value=value, source=FOR_ALL, is_default=False, synonyms=())


def replicas(session: AdminSession, broker: int) -> list[HeldReplica]:
    """Return the replicas on a broker, by topic and partition, from a metadata request."""
    found = session.direct(lambda client: client.list_topics(timeout=REQUEST_TIMEOUT_S), what="list the topics")
    held = [
        HeldReplica(topic=topic, partition=number, leader=partition.leader == broker, in_sync=broker in partition.isrs)
        for topic, described in found.topics.items()
        for number, partition in described.partitions.items()
        if broker in partition.replicas
    ]
    return sorted(held, key=lambda replica: (replica.topic, replica.partition))


def reassignments(address: ClusterAddress, topic: str | None) -> list[ReassignmentView]:
    """Return the partitions that are being reassigned; any broker forwards the request to the controller (KIP-455)."""
    cluster = Cluster(address)
    try:
        views = cluster.topics([topic] if topic else [])  # learns the brokers
        numbers = _numbers(topic, views[topic]) if topic else []

        def build(connection: Connection) -> Any:
            version = connection.version_for(ListPartitionReassignmentsRequest.API_KEY, highest=0, lowest=0)
            named = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
            topics = None if topic is None else [named(name=topic, partition_indexes=numbers)]
            return ListPartitionReassignmentsRequest(version=version, timeout_ms=_TIMEOUT_MS, topics=topics)

        broker = cluster.brokers()[0]
        return cluster.call(broker, build, response=ListPartitionReassignmentsResponse, read=_read_reassignments)
    finally:
        cluster.close()


def _read_reassignments(response: Any) -> list[ReassignmentView]:
    if response.error_code:
        raise BrokerError(response.error_code, "Partitions that are being reassigned cannot be listed")
    return [_moving(topic.name, part) for topic in response.topics for part in topic.partitions]


def _numbers(topic: str, view: TopicView) -> list[int]:
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be described")
    return list(view.partitions)


def _moving(topic: str, part: Any) -> ReassignmentView:
    adding, removing = tuple(part.adding_replicas), tuple(part.removing_replicas)
    return ReassignmentView(topic=topic, partition=part.partition_index, adding=adding, removing=removing)

"""Look at brokers as REST shows them: who is there, their configs, the replicas they hold, partitions that are being moved."""

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
    """List the brokers that are there now, by their id."""
    found = session.one(lambda client: client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), what="list the brokers")
    rows = [BrokerView(broker=one.id, host=one.host, port=one.port, rack=one.rack or None) for one in found.nodes]
    return sorted(rows, key=lambda one: one.broker)


def configs(session: AdminSession, broker: int) -> list[ConfigView]:
    """Read the configs of a broker by name."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of broker {broker}",
    )
    entries: Mapping[str, ConfigEntry] = next(iter(found.values()))
    return [view_topics.config_view(entries[one]) for one in sorted(entries)]


def common_configs(session: AdminSession) -> list[ConfigView]:
    """Read what was set for all brokers at run time. Any broker names it beside its own configs."""
    first = brokers(session)[0].broker
    return [found for one in configs(session, first) if (found := _set_for_all(one)) is not None]


def _set_for_all(config: ConfigView) -> ConfigView | None:
    common = next((one for one in config.synonyms if one.source == FOR_ALL), None)
    if common is None:
        return config if config.source == FOR_ALL else None
    value = None if config.is_sensitive else common.value
    return replace(config, name=common.name, value=value, source=FOR_ALL, is_default=False, synonyms=())


def replicas(session: AdminSession, broker: int) -> list[HeldReplica]:
    """List what a broker holds, by topic and partition, from one look at the metadata."""
    found = session.direct(lambda client: client.list_topics(timeout=REQUEST_TIMEOUT_S), what="list the topics")
    held = [
        HeldReplica(topic=topic, partition=number, leader=one.leader == broker, in_sync=broker in one.isrs)
        for topic, described in found.topics.items()
        for number, one in described.partitions.items()
        if broker in one.replicas
    ]
    return sorted(held, key=lambda one: (one.topic, one.partition))


def reassignments(address: ClusterAddress, topic: str | None) -> list[ReassignmentView]:
    """List the partitions that are being moved; any broker hands the request to the controller (KIP-455)."""
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


def _read_reassignments(answer: Any) -> list[ReassignmentView]:
    if answer.error_code:
        raise BrokerError(answer.error_code, "Partitions that are being moved cannot be listed")
    return [_moving(one.name, part) for one in answer.topics for part in one.partitions]


def _numbers(topic: str, view: TopicView) -> list[int]:
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be described")
    return list(view.partitions)


def _moving(topic: str, part: Any) -> ReassignmentView:
    adding, removing = tuple(part.adding_replicas), tuple(part.removing_replicas)
    return ReassignmentView(topic=topic, partition=part.partition_index, adding=adding, removing=removing)

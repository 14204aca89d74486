"""Brokers and topics of a cluster as the REST API shows them, and the round trip to brokers. Read-only, blocking."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import (
    BrokerDescription,
    ConfigSynonym,
    ConfigView,
    HeldReplica,
    PartitionDescription,
    ReassignmentDescription,
    ReplicaDescription,
)
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import LONG_MS, BrokerDistance
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection, as_it_is
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.topicviews import TopicMetadata

# --- brokers -------------------------------------------------------------------------------------------------------------


FOR_ALL = "DYNAMIC_DEFAULT_BROKER_CONFIG"
_TIMEOUT_MS = int(REQUEST_TIMEOUT_S * 1000)


def brokers(session: AdminSession) -> list[BrokerDescription]:
    """Return the brokers that are up, by id."""
    found = session.call(lambda client: client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), what="list the brokers")
    rows = [BrokerDescription(broker=node.id, host=node.host, port=node.port, rack=node.rack or None) for node in found.nodes]
    return sorted(rows, key=lambda row: row.broker)


def broker_configs(session: AdminSession, broker: int) -> list[ConfigView]:
    """Return the configs of a broker by name."""
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of broker {broker}",
    )
    entries: Mapping[str, ConfigEntry] = next(iter(found.values()))
    return [config_view(entries[name]) for name in sorted(entries)]


def common_configs(session: AdminSession) -> list[ConfigView]:
    """Return the dynamic configs of all brokers (cluster-wide defaults). Any broker lists them besides its own configs."""
    first = brokers(session)[0].broker
    return [found for config in broker_configs(session, first) if (found := _set_for_all(config)) is not None]


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


def reassignments(address: ClusterAddress, topic: str | None) -> list[ReassignmentDescription]:
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


def _read_reassignments(response: Any) -> list[ReassignmentDescription]:
    if response.error_code:
        raise BrokerError(response.error_code, "Partitions that are being reassigned cannot be listed")
    return [_moving(topic.name, part) for topic in response.topics for part in topic.partitions]


def _numbers(topic: str, view: TopicMetadata) -> list[int]:
    if view.error:
        raise BrokerError(view.error, f"Topic {topic!r} cannot be described")
    return list(view.partitions)


def _moving(topic: str, part: Any) -> ReassignmentDescription:
    adding, removing = tuple(part.adding_replicas), tuple(part.removing_replicas)
    return ReassignmentDescription(topic=topic, partition=part.partition_index, adding=adding, removing=removing)


# --- topics --------------------------------------------------------------------------------------------------------------


def topic_partitions(session: AdminSession, topic: str) -> list[PartitionDescription]:
    """Return the partitions of a topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR if it does not exist."""
    found = session.all(
        lambda client: client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe topic {topic!r}",
    )[topic]
    return [_partition(partition) for partition in found.partitions]


def topic_configs(session: AdminSession, topic: str) -> list[ConfigView]:
    """Return all configs of a topic by name, with the source of each value."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of topic {topic!r}",
    )
    entries: Mapping[str, ConfigEntry] = next(iter(found.values()))
    return [config_view(entries[name]) for name in sorted(entries)]


def _partition(found: Any) -> PartitionDescription:
    leader = found.leader.id if found.leader is not None and found.leader.id >= 0 else None
    in_sync = {node.id for node in found.isr}
    replicas = [
        ReplicaDescription(broker=node.id, leader=node.id == leader, in_sync=node.id in in_sync) for node in found.replicas
    ]
    return PartitionDescription(partition=found.id, leader=leader, replicas=tuple(replicas))


def config_view(entry: ConfigEntry) -> ConfigView:
    """Return the view of a config of a topic or broker; the value of a sensitive config is None."""
    synonyms = [
        ConfigSynonym(name=synonym.name, value=synonym.value, source=_source(synonym.source))
        for synonym in (entry.synonyms or {}).values()
    ]
    return ConfigView(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        is_default=bool(entry.is_default),
        is_read_only=bool(entry.is_read_only),
        is_sensitive=bool(entry.is_sensitive),
        source=_source(entry.source),
        synonyms=tuple(synonyms),
    )


def _source(number: Any) -> str:
    try:
        name = ConfigSource(number).name
    except ValueError:
        return "UNKNOWN"
    return "UNKNOWN" if name == "UNKNOWN_CONFIG" else name


# --- round trip ----------------------------------------------------------------------------------------------------------
# A connection carries at most ``buffer / round trip`` bytes per second. The buffer is the smaller of what the broker may send
# unacknowledged (``socket.send.buffer.bytes``, 102,400 by default, which Linux doubles for its bookkeeping) and what this
# machine may receive unread (the last number of ``net.ipv4.tcp_rmem``, the limit of Linux's receive buffer autotuning). The
# round trip is measured from the machine that runs this code.


MOST_BROKERS = 24  # measured at the same time, since a user waits for the result
ROUNDS = 3  # requests per broker; the fastest counts, since a busy broker is not a distant broker
_SEND_BUFFER = "socket.send.buffer.bytes"
_BROKER = 4  # of Kafka's ConfigResource.Type
_RECEIVE_LIMITS = Path("/proc/sys/net/ipv4/tcp_rmem")


def measure_distances(address: ClusterAddress) -> tuple[BrokerDistance, ...]:
    """Return the round trip to each broker in the metadata, ordered by broker id; at most ``MOST_BROKERS`` brokers.

    A broker that cannot be reached has the reason in ``error``. Raises if no broker returns the metadata.
    """
    cluster = Cluster(address)
    try:
        cluster.topics([])
        brokers = sorted(cluster.brokers())[:MOST_BROKERS]
        with ThreadPoolExecutor(MOST_BROKERS, thread_name_prefix="distance") as threads:
            return tuple(threads.map(lambda broker: _measure(cluster, broker), brokers))
    finally:
        cluster.close()


def _measure(cluster: Cluster, broker: int) -> BrokerDistance:
    host, port = cluster.endpoint(broker)
    try:
        connection = cluster.open(broker)
    except LinkEngineError as error:
        return BrokerDistance(broker=broker, address=f"{host}:{port}", error=error.message)
    try:
        for _ in range(ROUNDS):
            version = connection.version_for(MetadataRequest.API_KEY, highest=9)
            connection.request(MetadataRequest(version=version, topics=[]), response=MetadataResponse, read=as_it_is)
        round_trip_ms = (connection.round_trip_s or 0.0) * 1000
        is_long = round_trip_ms >= LONG_MS
        return BrokerDistance(
            broker=broker,
            address=f"{host}:{port}",
            round_trip_ms=round(round_trip_ms, 1),
            send_buffer_bytes=_send_buffer(connection, broker) if is_long else None,
            receive_buffer_bytes=_receive_buffer() if is_long else None,
        )
    except LinkEngineError as error:
        return BrokerDistance(broker=broker, address=f"{host}:{port}", error=error.message)
    finally:
        connection.close()


def _send_buffer(connection: Connection, broker: int) -> int | None:
    """Return the broker's setting; None if the link's principal may not read it (DESCRIBE_CONFIGS on the cluster)."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    resources = [resource(resource_type=_BROKER, resource_name=str(broker), configuration_keys=[_SEND_BUFFER])]
    version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
    request = DescribeConfigsRequest(version=version, resources=resources, include_synonyms=False, include_documentation=False)
    return connection.request(request, response=DescribeConfigsResponse, read=_read_send_buffer)


def _read_send_buffer(response: Any) -> int | None:
    values = [config.value for result in response.results for config in result.configs or () if config.name == _SEND_BUFFER]
    return int(values[0]) if values and values[0] else None


def _receive_buffer() -> int | None:
    try:
        return int(_RECEIVE_LIMITS.read_text().split()[2])
    except (OSError, IndexError, ValueError):
        return None

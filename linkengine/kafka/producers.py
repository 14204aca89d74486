"""Producers of a topic: which can write to it, and a leader's state of a producer id (KIP-664). Blocking."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TransactionalWriters
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import TRANSACTIONAL_ID_PREFIX, TopicPartition
from linkengine.domain.producers import ProducerState
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import by_topic
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.topicviews import TopicMetadata

# --- who can write to a topic --------------------------------------------------------------------------------------------
# Transactional producers are found with DescribeProducers at the leaders and ListTransactions at every broker. A leader lists
# every producer id that wrote to a partition and has not expired (``producer.id.expiration.ms``, a day by default), and whether
# it has an open transaction there. A coordinator lists the transactional ids of producer ids, but only those that the principal
# may describe, without an error for the others. So a producer id that no coordinator lists belongs to an idempotent producer or
# to a hidden transactional producer. DescribeTransactions of an id that does not exist shows whether ids may be hidden.
# FindCoordinator is not used, because it would create the transaction coordinators' internal topic.
#
# Whether a topic is closed to producers is checked on every broker, since each applies an ACL change at its own time.
# DescribeAcls (KIP-140) is served by the authorizer of the broker that receives it, which also authorizes Produce requests.


_Producers = dict[int, bool]  # producer id -> whether a transaction of it is open in the topic
_TOPIC, _LITERAL, _WRITE, _DENY = 2, 3, 4, 2  # Kafka's numbers for resource type, pattern type, operation, permission
_ANY_USER = "User:*"


def transactional_writers(address: ClusterAddress, topics: Sequence[str]) -> dict[str, TransactionalWriters]:
    """Return the transactional producers by topic. A topic that cannot be read is left out; other errors are raised."""
    with closing(Cluster(address)) as cluster:
        views = cluster.newest_topics(topics)
        producers = {topic: found for topic in topics if (found := _producers(cluster, topic, views.get(topic))) is not None}
        wanted = sorted({producer for found in producers.values() for producer in found})
        names = _transactional_ids(cluster, wanted) if wanted else {}
        hidden = bool(wanted) and _may_be_hidden(cluster)
    return {topic: _writers(found, names, hidden=hidden) for topic, found in producers.items()}


def _writers(producers: _Producers, names: dict[int, str], *, hidden: bool) -> TransactionalWriters:
    named = {names[producer]: is_open for producer, is_open in producers.items() if producer in names}
    unnamed = [is_open for producer, is_open in producers.items() if producer not in names]
    foreign = {name: is_open for name, is_open in named.items() if not name.startswith(TRANSACTIONAL_ID_PREFIX)}
    return TransactionalWriters(
        ids=tuple(sorted(foreign)),
        open_ids=tuple(sorted(name for name, is_open in foreign.items() if is_open)),
        unnamed_open=sum(unnamed),
        complete=not (unnamed and hidden),
    )


def _producers(cluster: Cluster, topic: str, view: TopicMetadata | None) -> _Producers | None:
    """Return the producers of a topic, None if a leader does not list them."""
    if view is None or view.error or not view.partitions:
        return None
    found: _Producers = {}
    for broker, partitions in view.by_leader().items():
        try:
            parts = cluster.call(
                broker, _describe_producers_request(topic, partitions), response=DescribeProducersResponse, read=_read_parts
            )
        except LinkEngineError:
            return None
        for error, producers in parts:
            if error:
                return None
            for producer, is_open in producers:
                found[producer] = found.get(producer, False) or is_open
    return found


def _describe_producers_request(topic: str, partitions: Iterable[int]) -> Callable[[Connection], Any]:
    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeProducersRequest.API_KEY, highest=0)
        topic_request = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
        return DescribeProducersRequest(version=version, topics=[topic_request])

    return build


def _read_parts(response: Any) -> list[tuple[int, list[tuple[int, bool]]]]:
    return [
        (
            part.error_code,
            [(producer.producer_id, producer.current_txn_start_offset >= 0) for producer in part.active_producers or ()],
        )
        for topic in response.topics
        for part in topic.partitions
    ]


def _transactional_ids(cluster: Cluster, producers: list[int]) -> dict[int, str]:
    """Return the transactional ids that coordinators show, by producer id; raise if a broker does not respond."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(ListTransactionsRequest.API_KEY, highest=0)
        return ListTransactionsRequest(version=version, state_filters=[], producer_id_filters=producers)

    def read(response: Any) -> tuple[int, dict[int, str]]:
        return response.error_code, {state.producer_id: str(state.transactional_id) for state in response.transaction_states}

    found: dict[int, str] = {}
    for broker in cluster.brokers():
        error, names = cluster.call(broker, build, response=ListTransactionsResponse, read=read)
        if error:
            raise BrokerError(error, "The transactional ids cannot be listed")
        found |= names
    return found


def _may_be_hidden(cluster: Cluster) -> bool:
    """Return whether there are transactional ids that the principal may not describe."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeTransactionsRequest.API_KEY, highest=0)
        return DescribeTransactionsRequest(version=version, transactional_ids=[f"none-{secrets.token_hex(16)}"])

    def read(response: Any) -> int:
        code: int = response.transaction_states[0].error_code
        return code

    found = cluster.call_any(build, response=DescribeTransactionsResponse, read=read)
    return found == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def brokers_without_deny_write(cluster: Cluster, topic: str) -> list[int]:
    """Return the brokers on which DENY WRITE for all users is not in force yet; raise LinkEngineError if a broker is silent."""
    cluster.newest_topics([topic])  # learns all brokers
    return [broker for broker in cluster.brokers() if not _denies(cluster, broker, topic)]


def _denies(cluster: Cluster, broker: int, topic: str) -> bool:
    def build(connection: Connection) -> Any:
        return DescribeAclsRequest(
            version=connection.version_for(DescribeAclsRequest.API_KEY, highest=2, lowest=1),
            resource_type_filter=_TOPIC,
            resource_name_filter=topic,
            pattern_type_filter=_LITERAL,
            principal_filter=_ANY_USER,
            host_filter=None,
            operation=_WRITE,
            permission_type=_DENY,
        )

    error_code, found = cluster.call(
        broker, build, response=DescribeAclsResponse, read=lambda response: (response.error_code, bool(response.resources))
    )
    if error_code:
        raise BrokerError(error_code, f"Broker {broker} does not return the ACLs of topic {topic!r}")
    return bool(found)


# --- state of a producer id ----------------------------------------------------------------------------------------------
# Epoch, last sequence and coordinator epoch.


def describe_producers(
    cluster: Cluster, broker: int, producer_ids: Mapping[TopicPartition, int], *, timeout_s: float | None = None
) -> dict[TopicPartition, tuple[int, ProducerState]]:
    """Return (error, state of the given producer id) per partition; ``broker`` must lead them. Needs READ on the topics."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeProducersRequest.API_KEY, highest=0)
        topics = [
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(group))
            for name, group in by_topic(producer_ids).items()
        ]
        return DescribeProducersRequest(version=version, topics=topics)

    def read(response: Any) -> dict[TopicPartition, tuple[int, ProducerState]]:
        found = {
            (topic.name, partition.partition_index): (
                partition.error_code,
                _state_of(partition, producer_ids[topic.name, partition.partition_index]),
            )
            for topic in response.topics
            for partition in topic.partitions
        }
        return {place: found[place] for place in producer_ids}

    return cluster.call(broker, build, response=DescribeProducersResponse, read=read, timeout_s=timeout_s)


def _state_of(partition: Any, producer_id: int) -> ProducerState:
    for producer in partition.active_producers or ():  # null if there is an error
        if producer.producer_id == producer_id:
            return ProducerState(
                epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                coordinator_epoch=producer.coordinator_epoch,
            )
    return ProducerState()

"""Topics and their configs: described, created, changed and deleted. Functions over an AdminSession or a Cluster. Blocking."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, kafka_error
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import TOPIC_GONE, BrokerError, KafkaCode

# --- in batches ----------------------------------------------------------------------------------------------------------
# Configs are read in two ways: the *own* configs of a topic (set on the topic itself) and the *effective* configs (including
# the cluster's defaults). A mirror takes over effective values, since its own cluster may have other defaults.


BATCH = 500  # topics per request: a response of a few hundred KB
LAG_S = 2.0  # brokers apply a new topic at different times, usually within 0.1 s
LAG_POLL_S = 0.2
_HIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})
_OWN: Any = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # entries hold the number, in spite of their type hints
_URL_SAFE = str.maketrans("+/", "-_")  # Kafka prints topic ids as URL-safe base64, librdkafka as plain base64
_T = TypeVar("_T")


def names(session: AdminSession) -> list[str]:
    """Return the topics that the principal may describe, sorted."""
    found = session.direct(lambda client: client.list_topics(timeout=REQUEST_TIMEOUT_S), what="list topics")
    return sorted(found.topics)


def describe_many(session: AdminSession, topics: Iterable[str], *, with_configs: bool) -> list[TopicDescription]:
    """Return the topics that exist and may be described; ``configs`` are the own configs, empty if they may not be read."""
    described: list[TopicDescription] = []
    for batch in _batches(topics):
        found, _ = session.settle(_start_describe(batch), what="describe topics")
        configs = configs_of(session, list(found)) if with_configs else {}
        described += [_description(name, topic, own(configs.get(name, {}))) for name, topic in found.items()]
    return described


def describe(session: AdminSession, topic: str) -> TopicDescription:
    """Return the description of a topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR or AUTHORIZATION_ERROR.

    A broker may not have applied a new topic yet that another broker returns, so a topic counts as unknown only after LAG_S.
    """
    found = _with_retry(lambda: session.all(_start_describe([topic]), what=f"describe topic {topic!r}"))[topic]
    return _description(topic, found, own(configs_of(session, [topic]).get(topic, {})))


def _with_retry(read: Callable[[], _T]) -> _T:
    deadline = time.monotonic() + LAG_S
    while True:
        try:
            return read()
        except LinkEngineError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR or time.monotonic() > deadline:
                raise
        time.sleep(LAG_POLL_S)


def missing_among(session: AdminSession, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that are still unknown after LAG_S, as in ``describe``; all of them share the wait."""
    missing, deadline = list(topics), time.monotonic() + LAG_S
    while missing := [name for batch in _batches(missing) for name in _unknown(session, batch)]:
        if time.monotonic() > deadline:
            break
        time.sleep(LAG_POLL_S)
    return frozenset(missing)


def _unknown(session: AdminSession, topics: Sequence[str]) -> list[str]:
    _, failures = session.settle(_start_describe(topics), what="describe topics")
    return [name for name, error in failures.items() if error.code() in _GONE]


def led_partitions(session: AdminSession, topic: str) -> int:
    """Return the number of partitions of a topic that have a leader; 0 for a topic that does not exist (yet)."""
    found, _ = session.settle(_start_describe([topic]), what=f"describe topic {topic!r}")
    return sum(1 for view in found.values() for partition in view.partitions if partition.leader is not None)


def rights(session: AdminSession, topic: str) -> frozenset[str]:
    """Return the operations that the principal may perform on the topic ("READ", "WRITE", …), after DENY rules."""
    found = session.all(_start_describe([topic], rights=True), what=f"describe topic {topic!r}")[topic]
    return frozenset(operation.name for operation in found.authorized_operations or ())


def create(
    session: AdminSession, topic: str, *, partitions: int, replication_factor: int | None, configs: Mapping[str, str]
) -> None:
    """Create a topic; raise TOPIC_EXISTS_ERROR, POLICY_VIOLATION_ERROR, INVALID_REQUEST_ERROR …"""
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor or -1, config=dict(configs))
    session.all(
        lambda client: client.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S),
        what=f"create topic {topic!r}",
    )


def delete(session: AdminSession, topic: str) -> bool:
    """Delete a topic; return False if it did not exist."""
    what = f"delete topic {topic!r}"
    _, failures = session.settle(
        lambda client: client.delete_topics([topic], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S),
        what=what,
    )
    for error in failures.values():
        if error.code() not in _GONE:
            raise kafka_error(error, what=what)
    return not failures


def grow(session: AdminSession, topic: str, *, partitions: int) -> None:
    """Increase the partition count to ``partitions``; raise INVALID_REQUEST_ERROR if that is not an increase."""
    new = NewPartitions(topic, partitions)
    session.all(
        lambda client: client.create_partitions([new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S),
        what=f"grow topic {topic!r} to {partitions} partitions",
    )


def configs_of(session: AdminSession, topics: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
    """Return all configs of topics, read in a single request; topics whose configs may not be read are left out."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    if not resources:
        return {}
    values, failures = session.settle(
        lambda client: client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S), what="describe topic configs"
    )
    for error in failures.values():
        if error.code() not in _HIDDEN | _GONE:
            raise kafka_error(error, what="describe topic configs")
    return {resource.name: entries for resource, entries in values.items()}


def effective_configs(session: AdminSession, topic: str) -> dict[str, str]:
    """Return the configs in force on a topic, including defaults; raise AUTHORIZATION_ERROR without DESCRIBE_CONFIGS."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of topic {topic!r}",
    )
    return {name: entry.value for entries in found.values() for name, entry in entries.items() if entry.value is not None}


def effective_configs_of(session: AdminSession, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configs in force on many topics, as far as they may be read; a request per 500 topics."""
    found: dict[str, dict[str, str]] = {}
    for batch in _batches(topics):
        for topic, entries in configs_of(session, batch).items():
            found[topic] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return found


def own(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the configs that were set on the topic itself."""
    return {name: entry.value for name, entry in entries.items() if entry.source == _OWN and entry.value is not None}


def alter_configs(session: AdminSession, topic: str, change: ConfigChange) -> None:
    """Set and delete configs of a topic in a single request."""
    session.all(
        lambda client: client.incremental_alter_configs([_alteration(topic, change)], request_timeout=REQUEST_TIMEOUT_S),
        what=f"alter the configs of topic {topic!r}",
    )


def alter_each(session: AdminSession, changes: Mapping[str, ConfigChange]) -> dict[str, LinkEngineError]:
    """Set and delete configs of topics, up to 500 per request; return the error of each topic whose change was refused.

    The change of a topic is accepted or refused as a whole. Raises only if the cluster does not respond.
    """
    refused: dict[str, LinkEngineError] = {}
    for batch in _batches(changes):
        resources = [_alteration(topic, changes[topic]) for topic in batch]
        _, failures = session.settle(partial(_alter, resources), what=f"alter the configs of {len(batch)} topics")
        for resource, error in failures.items():
            refused[resource.name] = kafka_error(error, what=f"alter the configs of topic {resource.name!r}")
    return refused


def _alter(resources: list[ConfigResource], client: AdminClient) -> dict[ConfigResource, Future[Any]]:
    return client.incremental_alter_configs(resources, request_timeout=REQUEST_TIMEOUT_S)


def _alteration(topic: str, change: ConfigChange) -> ConfigResource:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in change.values.items()]
    entries += [ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE) for name in change.deletions]
    return ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)


def shows(session: AdminSession, topic: str, change: ConfigChange) -> bool:
    """Return whether the broker shows the change, ignoring differences in how values are written.

    Also True if the configs may not be read: the controller has confirmed the change, and waiting would not show more.
    """
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found, failures = session.settle(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S), what="describe topic configs"
    )
    if any(error.code() in _HIDDEN for error in failures.values()):
        return True
    return carries(own(next(iter(found.values()), {})), change)


def carries(present: Mapping[str, str], change: ConfigChange) -> bool:
    """Return whether the own configs of a topic match the change."""
    return (
        set(change.values) <= set(present)
        and not set(change.deletions) & set(present)
        and all(_canonical(present[name]) == _canonical(value) for name, value in change.values.items())
    )


def _canonical(value: str) -> list[str]:
    return sorted(part.strip().lower() for part in value.split(","))


def _start_describe(topics: Sequence[str], *, rights: bool = False) -> Callable[[AdminClient], dict[str, Future[Any]]]:
    def start(client: AdminClient) -> dict[str, Future[Any]]:
        return client.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=rights, request_timeout=REQUEST_TIMEOUT_S
        )

    return start


def _description(name: str, topic: Any, configs: dict[str, str]) -> TopicDescription:
    return TopicDescription(
        name=name,
        topic_id=str(topic.topic_id).translate(_URL_SAFE),
        partitions=len(topic.partitions),
        replication_factor=max((len(partition.replicas) for partition in topic.partitions), default=0),
        internal=topic.is_internal,
        configs=configs,
    )


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


def create_or_validate(
    session: AdminSession,
    topic: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    validate_only: bool,
) -> None:
    """Create a topic, or validate its creation only; None means the cluster's default."""
    new = NewTopic(topic, num_partitions=partitions or -1, replication_factor=replication_factor or -1, config=dict(configs))
    session.all(
        lambda client: client.create_topics(
            [new], validate_only=validate_only, operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
        ),
        what=f"create topic {topic!r}",
    )


def check_configs(session: AdminSession, topic: str, change: ConfigChange) -> None:
    """Validate a change of configs on the cluster."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in change.values.items()]
    entries += [ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE) for name in change.deletions]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    session.all(
        lambda client: client.incremental_alter_configs([resource], validate_only=True, request_timeout=REQUEST_TIMEOUT_S),
        what=f"check the configs of topic {topic!r}",
    )


# --- configs by key ------------------------------------------------------------------------------------------------------
# DescribeConfigs (KIP-133, KIP-226), which librdkafka sends without keys: it reads all configs, about forty per topic, which
# for a thousand topics keeps a broker busy for seconds.


PER_REQUEST = 500
_TOPIC, _OWN_SOURCE = 2, 1  # the type of a resource; the source of a value that was set on the topic itself
_UNKNOWN = (KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.UNKNOWN_TOPIC_ID)
_HIDDEN_CODES = (KafkaCode.TOPIC_AUTHORIZATION_FAILED, KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
_POLICY = "cleanup.policy"


def not_shown(cluster: Cluster, changes: Mapping[str, ConfigChange]) -> dict[str, ConfigChange]:
    """Return the changes that the queried broker does not show yet; a request per 500 topics."""
    left: dict[str, ConfigChange] = {}
    rest = iter(changes.items())
    while batch := dict(islice(rest, PER_REQUEST)):
        present, hidden = _own(cluster, {topic: [*change.values, *change.deletions] for topic, change in batch.items()})
        readable = {topic: change for topic, change in batch.items() if topic not in hidden}  # hidden: waiting shows nothing
        left |= {topic: change for topic, change in readable.items() if not carries(present.get(topic, {}), change)}
    return left


def _own(cluster: Cluster, wanted: Mapping[str, Iterable[str]]) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Return which of these configs are set on the topics themselves, and the topics whose configs may not be read."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=topic, configuration_keys=list(names)
            )
            for topic, names in wanted.items()
        ]
        return DescribeConfigsRequest(version=version, resources=resources, include_synonyms=False, include_documentation=False)

    return cluster.call_any(build, response=DescribeConfigsResponse, read=_read_own)


def _read_own(response: Any) -> tuple[dict[str, dict[str, str]], set[str]]:
    found: dict[str, dict[str, str]] = {}
    hidden: set[str] = set()
    for topic in response.results:
        if topic.error_code in _HIDDEN_CODES:
            hidden.add(topic.resource_name)
        elif topic.error_code and topic.error_code not in _UNKNOWN:
            raise BrokerError(topic.error_code, f"The configs of topic {topic.resource_name!r} cannot be read")
        elif not topic.error_code:
            own = (entry for entry in topic.configs if entry.config_source == _OWN_SOURCE and entry.value is not None)
            found[topic.resource_name] = {entry.name: entry.value for entry in own}
    return found, hidden


def is_compacted(cluster: Cluster, broker: int, topic: str) -> bool:
    """Return whether the topic is compacted, so that records may be missing in the log; True also if that may not be read."""

    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=[_POLICY]
        )
        return DescribeConfigsRequest(version=version, resources=[wanted])

    def read(response: Any) -> bool:
        (found,) = response.results
        values = [config.value or "" for config in found.configs if config.name == _POLICY]
        return bool(found.error_code) or not values or "compact" in values[0]

    return cluster.call(broker, build, response=DescribeConfigsResponse, read=read)


# --- deletion by id ------------------------------------------------------------------------------------------------------
# DeleteTopics version 6: a delayed request can never delete a new topic of the same name. A cluster with
# ``delete.topic.enable=false`` deletes no topics. The controller decides by its own setting, while only brokers show theirs. So
# the brokers' setting is a forecast; the refusal of the request (TOPIC_DELETION_DISABLED) is authoritative.


_BY_ID = 6
_TIMEOUT_MS = 20_000
_BROKER = 4  # the type of a resource
_SETTING = "delete.topic.enable"


def deletes_topics(address: ClusterAddress) -> bool | None:
    """Return whether the cluster deletes topics, by the setting of its brokers; None if no broker shows it.

    Needs DESCRIBE_CONFIGS on the cluster; a request per broker. False only if every responding broker has it disabled.
    """
    with closing(Cluster(address)) as cluster:
        cluster.topics([])  # learns the brokers
        found = [_setting(cluster, broker) for broker in cluster.brokers()]
    known = {value for value in found if value is not None}
    return True in known if known else None


def _setting(cluster: Cluster, broker: int) -> bool | None:
    def build(connection: Connection) -> Any:
        version = connection.version_for(DescribeConfigsRequest.API_KEY, highest=4, lowest=1)
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker), configuration_keys=[_SETTING]
        )
        return DescribeConfigsRequest(version=version, resources=[wanted], include_synonyms=False, include_documentation=False)

    try:
        return cluster.call(broker, build, response=DescribeConfigsResponse, read=_read_setting)
    except LinkEngineError:  # a broker that is down does not count
        return None


def _read_setting(response: Any) -> bool | None:
    (result,) = response.results
    return next((entry.value == "true" for entry in result.configs if entry.name == _SETTING), None)


def delete_by_id(address: ClusterAddress, topic_id: str, *, check_owner: Callable[[], None] = lambda: None) -> bool:
    """Delete the topic; return False if it was gone already.

    ``check_owner`` is called directly before the request is sent and raises if the topic must no longer be deleted.
    """
    wanted = uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4)))

    def build(connection: Connection) -> Any:
        check_owner()
        version = connection.version_for(DeleteTopicsRequest.API_KEY, highest=_BY_ID, lowest=_BY_ID)
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=wanted)
        return DeleteTopicsRequest(version=version, topics=[state], timeout_ms=_TIMEOUT_MS)

    cluster = Cluster(address)
    try:
        cluster.topics([])  # learns the brokers; each forwards the request to the controller
        error: int = cluster.call(
            cluster.brokers()[0],
            build,
            response=DeleteTopicsResponse,
            read=lambda response: response.responses[0].error_code,
            timeout_s=_TIMEOUT_MS / 1000 + 1,
        )
    finally:
        cluster.close()
    if error and error not in TOPIC_GONE:
        raise BrokerError(error, f"The topic with id {topic_id} cannot be deleted")
    return not error

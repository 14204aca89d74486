"""Topics and their configs, in batches and as the REST API shows them. Functions over an AdminSession."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
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

from linkengine.domain.clusterviews import ConfigSynonym, ConfigView, PartitionView, ReplicaView
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession, translated

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


def describe_many(session: AdminSession, topics: Iterable[str], *, with_configs: bool = True) -> list[TopicDescription]:
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
            raise translated(error, what=what)
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
            raise translated(error, what="describe topic configs")
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
            refused[resource.name] = translated(error, what=f"alter the configs of topic {resource.name!r}")
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


# --- as the REST API shows them ------------------------------------------------------------------------------------------


def partitions(session: AdminSession, topic: str) -> list[PartitionView]:
    """Return the partitions of a topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR if it does not exist."""
    found = session.all(
        lambda client: client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe topic {topic!r}",
    )[topic]
    return [_partition(partition) for partition in found.partitions]


def configs(session: AdminSession, topic: str) -> list[ConfigView]:
    """Return all configs of a topic by name, with the source of each value."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = session.all(
        lambda client: client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S),
        what=f"describe the configs of topic {topic!r}",
    )
    entries: Mapping[str, ConfigEntry] = next(iter(found.values()))
    return [config_view(entries[name]) for name in sorted(entries)]


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


def _partition(found: Any) -> PartitionView:
    leader = found.leader.id if found.leader is not None and found.leader.id >= 0 else None
    in_sync = {node.id for node in found.isr}
    replicas = [ReplicaView(broker=node.id, leader=node.id == leader, in_sync=node.id in in_sync) for node in found.replicas]
    return PartitionView(partition=found.id, leader=leader, replicas=tuple(replicas))


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

"""Topics and their configs as the REST API shows them; functions over an AdminSession. ``admin_topics`` changes topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own type hints leave a name out
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)

from linkengine.domain.clusterviews import ConfigSynonym, ConfigView, PartitionView, ReplicaView
from linkengine.domain.configs import ConfigChange
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession


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


def create(
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

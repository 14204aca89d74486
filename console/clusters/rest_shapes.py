"""Requests and responses of the Kafka REST interface about partitions, configs, brokers, ACLs and groups. Makes no queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from console.api.kafka_render import UNKNOWN_LAG, ClusterUrls, Json
from console.api.kafka_schemas import (
    Collection,
    Flag,
    Number,
    Relationship,
    Resource,
    ResourceCollectionMetadata,
    Text,
    collection_of,
)
from console.api.schema import FlagField, NumberField, OffsetField, TextField, list_of

# --- schemas of responses ---------------------------------------------------------------------------------------------


class PartitionData(Resource):
    """A partition of a topic."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    leader = Relationship(required=False, help_text="Missing while the partition has no leader.")
    replicas = Relationship()
    reassignment = Relationship()


PartitionDataList = collection_of(PartitionData, "The partitions of a topic.")


class ReplicaData(Resource):
    """A replica of a partition."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    broker_id = Number()
    is_leader = Flag()
    is_in_sync = Flag()
    broker = Relationship()


ReplicaDataList = collection_of(ReplicaData, "The replicas of a partition.")


class ConfigSynonymData(serializers.Serializer[Any]):
    """A level at which the config has a value."""

    name = Text()
    value = Text(allow_null=True)
    source: Any = Text()


class TopicConfigData(Resource):
    """The effective value of a topic's config. Secrets have the value null."""

    cluster_id = Text()
    topic_name = Text()
    name = Text()
    value = Text(allow_null=True)
    is_default = Flag()
    is_read_only = Flag()
    is_sensitive = Flag()
    source: Any = Text(help_text="DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG, ...")
    synonyms = ConfigSynonymData(many=True)


TopicConfigDataList = collection_of(TopicConfigData, "All configs of a topic.")


class BrokerData(Resource):
    """A broker and its address."""

    cluster_id = Text()
    broker_id = Number()
    host = Text(allow_null=True)
    port = Number(allow_null=True)
    rack = Text(allow_null=True)
    configs = Relationship()
    partition_replicas = Relationship()


BrokerDataList = collection_of(BrokerData, "The brokers of the cluster.")


class BrokerConfigData(Resource):
    """The effective value of a broker's config. Secrets have the value null."""

    cluster_id = Text()
    broker_id = Number()
    name = Text()
    value = Text(allow_null=True)
    is_default = Flag()
    is_read_only = Flag()
    is_sensitive = Flag()
    source: Any = Text()
    synonyms = ConfigSynonymData(many=True)


BrokerConfigDataList = collection_of(BrokerConfigData, "All configs of a broker.")


class ClusterConfigData(Resource):
    """A cluster-wide dynamic broker config."""

    cluster_id = Text()
    config_type = Text(help_text="BROKER.")
    name = Text()
    value = Text(allow_null=True)
    is_default = Flag()
    is_read_only = Flag()
    is_sensitive = Flag()
    source: Any = Text()
    synonyms = ConfigSynonymData(many=True)


ClusterConfigDataList = collection_of(ClusterConfigData, "The cluster-wide dynamic broker configs.")


class ReassignmentData(Resource):
    """A partition that is being reassigned to other brokers."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    adding_replicas = serializers.ListField(child=Number())
    removing_replicas = serializers.ListField(child=Number())
    replicas = Relationship()


ReassignmentDataList = collection_of(ReassignmentData, "Partitions that are being reassigned to other brokers.")


class AclData(Resource):
    """An ACL of the cluster."""

    cluster_id = Text()
    resource_type = Text()
    resource_name = Text()
    pattern_type = Text()
    principal = Text()
    host = Text()
    operation = Text()
    permission = Text()


AclDataList = collection_of(AclData, "ACLs.")


class DeletedAcls(serializers.Serializer[Any]):
    """The ACLs that were deleted."""

    data: Any = AclData(many=True)


class ConsumerGroupData(Resource):
    """A consumer group."""

    cluster_id = Text()
    consumer_group_id = Text()
    is_simple = Flag()
    partition_assignor = Text(allow_blank=True)
    state = Text(help_text="STABLE, EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, ASSIGNING, RECONCILING or UNKNOWN.")
    type = Text(help_text="CLASSIC, CONSUMER or UNKNOWN.")
    is_mixed_consumer_group = Flag(help_text="Always false: brokers do not return it.")
    coordinator = Relationship(help_text="The list of all brokers if the coordinator is unknown.")
    consumers = Relationship()
    lag_summary = Relationship()
    error_message = Text(required=False, help_text="Why the group cannot be described; its state is then UNKNOWN.")


class ConsumerGroupListMetadata(ResourceCollectionMetadata):
    """The metadata of a list of groups."""

    incomplete = Text(required=False, help_text="Why groups may be missing: a broker did not return its groups.")


class ConsumerGroupDataList(Collection):
    """Consumer groups."""

    metadata = ConsumerGroupListMetadata()
    data: Any = ConsumerGroupData(many=True)


class ConsumerData(Resource):
    """A member of a consumer group."""

    cluster_id = Text()
    consumer_group_id = Text()
    consumer_id = Text()
    instance_id = Text(allow_null=True)
    client_id = Text()
    assignments = Relationship()


ConsumerDataList = collection_of(ConsumerData, "The members of a consumer group.")


class ConsumerAssignmentData(Resource):
    """A partition that is assigned to a consumer."""

    cluster_id = Text()
    consumer_group_id = Text()
    consumer_id = Text()
    topic_name = Text()
    partition_id = Number()
    partition = Relationship()
    lag = Relationship()


ConsumerAssignmentDataList = collection_of(ConsumerAssignmentData, "The partitions that are assigned to a consumer.")


class ConsumerLagData(Resource):
    """The lag of a consumer group in a partition."""

    cluster_id = Text()
    consumer_group_id = Text()
    topic_name = Text()
    partition_id = Number()
    current_offset = OffsetField()
    log_end_offset = OffsetField(help_text="-1 if unknown.")
    lag = OffsetField(help_text="-1 if unknown.")
    consumer_id = Text(allow_blank=True, help_text="Empty if the partition is assigned to no member.")
    instance_id = Text(allow_null=True)
    client_id = Text(allow_blank=True)


ConsumerLagDataList = collection_of(
    ConsumerLagData, "The lags of a consumer group, one row per partition with a committed offset."
)


class ConsumerGroupLagSummaryData(Resource):
    """The largest lag of a consumer group and the sum of its lags; -1 if a lag is unknown."""

    cluster_id = Text()
    consumer_group_id = Text()
    max_lag_consumer_id = Text(allow_blank=True)
    max_lag_instance_id = Text(allow_null=True)
    max_lag_client_id = Text(allow_blank=True)
    max_lag_topic_name = Text()
    max_lag_partition_id = Number()
    max_lag = OffsetField()
    total_lag = OffsetField()
    max_lag_consumer = Relationship()
    max_lag_partition = Relationship()


# --- request bodies ---------------------------------------------------------------------------------------------------
#
# They check types only; the actions check values.


RESOURCE_TYPES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN")
PATTERN_TYPES = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
)
PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
MAX_PARTITIONS, MAX_REPLICAS = 1_000_000, 32_767


class TopicConfig(serializers.Serializer[Any]):
    """A config of a new topic."""

    name = TextField()
    value = TextField(required=False, allow_null=True, help_text="Null for the cluster's default.")


class CreateTopicRequestData(serializers.Serializer[Any]):
    """A topic to create."""

    topic_name = TextField()
    partitions_count = NumberField(required=False, min_value=1, max_value=MAX_PARTITIONS)
    replication_factor = NumberField(required=False, min_value=1, max_value=MAX_REPLICAS)
    configs = TopicConfig(many=True, required=False)
    validate_only = FlagField(required=False)


class UpdatePartitionCountRequestData(serializers.Serializer[Any]):
    """The new number of partitions of a topic."""

    partitions_count = NumberField(min_value=1, max_value=MAX_PARTITIONS)


class UpdateConfigRequestData(serializers.Serializer[Any]):
    """The new value of a topic config."""

    value = TextField(allow_null=True, help_text="Null resets the config to its default.")


class CreateAclRequestData(serializers.Serializer[Any]):
    """An ACL to create."""

    resource_type = serializers.ChoiceField(choices=RESOURCE_TYPES)
    resource_name = TextField()
    pattern_type = serializers.ChoiceField(choices=PATTERN_TYPES)
    principal = TextField()
    host = TextField()
    operation = serializers.ChoiceField(choices=OPERATIONS)
    permission = serializers.ChoiceField(choices=PERMISSIONS)


CreateAclRequestDataList = list_of(CreateAclRequestData, "ACLs to create.")


# --- results of live queries as responses -----------------------------------------------------------------------------


def partition(urls: ClusterUrls, topic: str, found: Json) -> Json:
    path = ("topics", topic, "partitions", found["partition"])
    shown = {
        **urls.resource("KafkaPartition", *path),
        "topic_name": topic,
        "partition_id": found["partition"],
        "replicas": urls.link(*path, "replicas"),
        "reassignment": urls.link(*path, "reassignment"),
    }
    if found["leader"] is not None:
        shown["leader"] = urls.link(*path, "replicas", found["leader"])
    return shown


def replica(urls: ClusterUrls, topic: str, number: int, found: Json) -> Json:
    return {
        **urls.resource("KafkaReplica", "topics", topic, "partitions", number, "replicas", found["broker"]),
        "topic_name": topic,
        "partition_id": number,
        "broker_id": found["broker"],
        "is_leader": found["leader"],
        "is_in_sync": found["in_sync"],
        "broker": urls.link("brokers", found["broker"]),
    }


def broker(urls: ClusterUrls, found: Json) -> Json:
    path = ("brokers", found["broker"])
    return {
        **urls.resource("KafkaBroker", *path),
        "broker_id": found["broker"],
        **{name: found[name] for name in ("host", "port", "rack")},
        "configs": urls.link(*path, "configs"),
        "partition_replicas": urls.link(*path, "partition-replicas"),
    }


def broker_config(urls: ClusterUrls, number: int, found: Json) -> Json:
    return {**urls.resource("KafkaBrokerConfig", "brokers", number, "configs", found["name"]), "broker_id": number, **found}


def cluster_config(urls: ClusterUrls, found: Json) -> Json:
    return {**urls.resource("KafkaClusterConfig", "broker-configs", found["name"]), "config_type": "BROKER", **found}


def reassignment(urls: ClusterUrls, found: Json) -> Json:
    path = ("topics", found["topic"], "partitions", found["partition"])
    return {
        **urls.resource("KafkaReassignment", *path, "reassignment"),
        "topic_name": found["topic"],
        "partition_id": found["partition"],
        "adding_replicas": found["adding"],
        "removing_replicas": found["removing"],
        "replicas": urls.link(*path, "replicas"),
    }


def topic_config(urls: ClusterUrls, topic: str, found: Json) -> Json:
    return {**urls.resource("KafkaTopicConfig", "topics", topic, "configs", found["name"]), "topic_name": topic, **found}


def acl(urls: ClusterUrls, found: Json) -> Json:
    metadata = {"self": urls.url("acls")}
    return {"kind": "KafkaAcl", "metadata": metadata, "cluster_id": urls.cluster_id, **found}


def group(urls: ClusterUrls, found: Json) -> Json:
    """Return a group. A group that cannot be described has an error message and the broker list as coordinator."""
    path = ("consumer-groups", found["group_id"])
    coordinator = ("brokers", found["coordinator"]) if found["coordinator"] >= 0 else ("brokers",)
    shown = {
        **urls.resource("KafkaConsumerGroup", *path),
        "consumer_group_id": found["group_id"],
        "is_simple": found["is_simple"],
        "partition_assignor": found["assignor"],
        "state": found["state"],
        "type": found["type"],
        "is_mixed_consumer_group": False,
        "coordinator": urls.link(*coordinator),
        "consumers": urls.link(*path, "consumers"),
        "lag_summary": urls.link(*path, "lag-summary"),
    }
    return {**shown, "error_message": found["error"]} if found.get("error") else shown


def consumer(urls: ClusterUrls, group_id: str, found: Json) -> Json:
    path = ("consumer-groups", group_id, "consumers", found["consumer_id"])
    return {
        **urls.resource("KafkaConsumer", *path),
        "consumer_group_id": group_id,
        "consumer_id": found["consumer_id"],
        "instance_id": found["instance_id"],
        "client_id": found["client_id"],
        "assignments": urls.link(*path, "assignments"),
    }


def assignment(urls: ClusterUrls, group_id: str, consumer_id: str, pair: Sequence[Any]) -> Json:
    topic, number = pair
    path = ("consumer-groups", group_id, "consumers", consumer_id, "assignments", topic, "partitions", number)
    return {
        **urls.resource("KafkaConsumerAssignment", *path),
        "consumer_group_id": group_id,
        "consumer_id": consumer_id,
        "topic_name": topic,
        "partition_id": number,
        "partition": urls.link("topics", topic, "partitions", number),
        "lag": urls.link("consumer-groups", group_id, "lags", topic, "partitions", number),
    }


def lag(urls: ClusterUrls, group_id: str, found: Json) -> Json:
    path = ("consumer-groups", group_id, "lags", found["topic"], "partitions", found["partition"])
    return {
        **urls.resource("KafkaConsumerLag", *path),
        "consumer_group_id": group_id,
        "topic_name": found["topic"],
        "partition_id": found["partition"],
        "current_offset": found["current_offset"],
        "log_end_offset": _known(found["log_end_offset"]),
        "lag": _known(found["lag"]),
        **{name: found[name] for name in ("consumer_id", "instance_id", "client_id")},
    }


def lag_summary(urls: ClusterUrls, group_id: str, lags: Sequence[Json]) -> Json:
    """Return the largest lag and the sum of the lags (at least one); an unknown lag counts as the largest."""
    worst = max(lags, key=lambda row: (row["lag"] is None, row["lag"] or 0))
    unknown = worst["lag"] is None
    path = ("consumer-groups", group_id)
    return {
        **urls.resource("KafkaConsumerGroupLagSummary", *path, "lag-summary"),
        "consumer_group_id": group_id,
        **{f"max_lag_{name}": worst[name] for name in ("consumer_id", "instance_id", "client_id")},
        "max_lag_topic_name": worst["topic"],
        "max_lag_partition_id": worst["partition"],
        "max_lag": _known(worst["lag"]),
        "total_lag": UNKNOWN_LAG if unknown else sum(row["lag"] for row in lags),
        "max_lag_consumer": urls.link(*path, "consumers", worst["consumer_id"]),
        "max_lag_partition": urls.link("topics", worst["topic"], "partitions", worst["partition"]),
    }


def _known(number: int | None) -> int:
    return UNKNOWN_LAG if number is None else number

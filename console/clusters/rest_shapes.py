"""Requests and responses about partitions, configs, brokers, ACLs and groups; ``rest_render`` creates the responses."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.kafka_schemas import Collection, Flag, Number, Relationship, Resource, ResourceCollectionMetadata, Text
from console.api.schema import FlagField, NumberField, OffsetField, TextField

# --- responses --------------------------------------------------------------------------------------------------------


class PartitionData(Resource):
    """A partition of a topic."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    leader = Relationship(required=False, help_text="Missing while the partition has no leader.")
    replicas = Relationship()
    reassignment = Relationship()


class PartitionDataList(Collection):
    """The partitions of a topic."""

    data: Any = PartitionData(many=True)


class ReplicaData(Resource):
    """A replica of a partition."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    broker_id = Number()
    is_leader = Flag()
    is_in_sync = Flag()
    broker = Relationship()


class ReplicaDataList(Collection):
    """The replicas of a partition."""

    data: Any = ReplicaData(many=True)


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


class TopicConfigDataList(Collection):
    """All configs of a topic."""

    data: Any = TopicConfigData(many=True)


class BrokerData(Resource):
    """A broker and its address."""

    cluster_id = Text()
    broker_id = Number()
    host = Text(allow_null=True)
    port = Number(allow_null=True)
    rack = Text(allow_null=True)
    configs = Relationship()
    partition_replicas = Relationship()


class BrokerDataList(Collection):
    """The brokers of the cluster."""

    data: Any = BrokerData(many=True)


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


class BrokerConfigDataList(Collection):
    """All configs of a broker."""

    data: Any = BrokerConfigData(many=True)


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


class ClusterConfigDataList(Collection):
    """The cluster-wide dynamic broker configs."""

    data: Any = ClusterConfigData(many=True)


class ReassignmentData(Resource):
    """A partition that is being reassigned to other brokers."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    adding_replicas = serializers.ListField(child=Number())
    removing_replicas = serializers.ListField(child=Number())
    replicas = Relationship()


class ReassignmentDataList(Collection):
    """Partitions that are being reassigned to other brokers."""

    data: Any = ReassignmentData(many=True)


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


class AclDataList(Collection):
    """ACLs."""

    data: Any = AclData(many=True)


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


class ConsumerDataList(Collection):
    """The members of a consumer group."""

    data: Any = ConsumerData(many=True)


class ConsumerAssignmentData(Resource):
    """A partition that is assigned to a consumer."""

    cluster_id = Text()
    consumer_group_id = Text()
    consumer_id = Text()
    topic_name = Text()
    partition_id = Number()
    partition = Relationship()
    lag = Relationship()


class ConsumerAssignmentDataList(Collection):
    """The partitions that are assigned to a consumer."""

    data: Any = ConsumerAssignmentData(many=True)


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


class ConsumerLagDataList(Collection):
    """The lags of a consumer group, one row per partition with a committed offset."""

    data: Any = ConsumerLagData(many=True)


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


class CreateAclRequestDataList(serializers.Serializer[Any]):
    """ACLs to create."""

    data: Any = CreateAclRequestData(many=True)

"""What clients get of a cluster beside links: partitions, topic configs, ACLs, consumer groups. ``browse_render`` writes it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.fields import OffsetField
from console.api.kafka.answers import Collection, Flag, Number, Relationship, Resource, ResourceCollectionMetadata, Text


class PartitionData(Resource):
    """A partition of a topic."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    leader = Relationship(required=False, help_text="Missing while no broker leads it.")
    replicas = Relationship()
    reassignment = Relationship()


class PartitionDataList(Collection):
    """The partitions of a topic."""

    data: Any = PartitionData(many=True)


class ReplicaData(Resource):
    """A copy of a partition on a broker."""

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
    """Where a value could come from."""

    name = Text()
    value = Text(allow_null=True)
    source: Any = Text()


class TopicConfigData(Resource):
    """A config of a topic as in force. Secrets have the value null."""

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
    """A broker and where clients find it."""

    cluster_id = Text()
    broker_id = Number()
    host = Text(allow_null=True)
    port = Number(allow_null=True)
    rack = Text(allow_null=True)
    configs = Relationship()
    partition_replicas = Relationship()


class BrokerDataList(Collection):
    """The brokers that are there now."""

    data: Any = BrokerData(many=True)


class BrokerConfigData(Resource):
    """A config of a broker as in force. Secrets have the value null."""

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
    """A config that was set for all brokers while they run."""

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
    """The configs that were set for all brokers while they run."""

    data: Any = ClusterConfigData(many=True)


class ReassignmentData(Resource):
    """A partition on its way to other brokers."""

    cluster_id = Text()
    topic_name = Text()
    partition_id = Number()
    adding_replicas = serializers.ListField(child=Number())
    removing_replicas = serializers.ListField(child=Number())
    replicas = Relationship()


class ReassignmentDataList(Collection):
    """Partitions on their way to other brokers."""

    data: Any = ReassignmentData(many=True)


class AclData(Resource):
    """An access control rule of the cluster."""

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
    is_mixed_consumer_group = Flag(help_text="Always false: brokers do not tell.")
    coordinator = Relationship(help_text="All brokers where it is not known.")
    consumers = Relationship()
    lag_summary = Relationship()
    error_message = Text(required=False, help_text="Why the group cannot be described; its state is then UNKNOWN.")


class ConsumerGroupListMetadata(ResourceCollectionMetadata):
    """What is said of a list of groups."""

    incomplete = Text(required=False, help_text="Why groups may be missing: a broker did not list its own.")


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
    """A partition that a consumer reads now."""

    cluster_id = Text()
    consumer_group_id = Text()
    consumer_id = Text()
    topic_name = Text()
    partition_id = Number()
    partition = Relationship()
    lag = Relationship()


class ConsumerAssignmentDataList(Collection):
    """What a consumer reads now."""

    data: Any = ConsumerAssignmentData(many=True)


class ConsumerLagData(Resource):
    """How far a consumer group is behind in one partition."""

    cluster_id = Text()
    consumer_group_id = Text()
    topic_name = Text()
    partition_id = Number()
    current_offset = OffsetField()
    log_end_offset = OffsetField(help_text="-1 where it is not known.")
    lag = OffsetField(help_text="-1 where it is not known.")
    consumer_id = Text(allow_blank=True, help_text="Empty where no member reads the partition now.")
    instance_id = Text(allow_null=True)
    client_id = Text(allow_blank=True)


class ConsumerLagDataList(Collection):
    """The lags of a consumer group, one row per partition with a committed offset."""

    data: Any = ConsumerLagData(many=True)


class ConsumerGroupLagSummaryData(Resource):
    """The largest lag of a consumer group and the sum; -1 where one of the lags is not known."""

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

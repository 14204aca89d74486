"""Request bodies for topics and ACLs, with Confluent's field names. They check types only."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.fields import FlagField, NumberField, TextField

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

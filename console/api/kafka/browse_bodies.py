"""What clients send about topics and ACLs, as the interface names it. Types only."""

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
    value = TextField(required=False, allow_null=True, help_text="Null: the cluster's default.")


class CreateTopicRequestData(serializers.Serializer[Any]):
    """A topic to be created."""

    topic_name = TextField()
    partitions_count = NumberField(required=False, min_value=1, max_value=MAX_PARTITIONS)
    replication_factor = NumberField(required=False, min_value=1, max_value=MAX_REPLICAS)
    configs = TopicConfig(many=True, required=False)
    validate_only = FlagField(required=False)


class UpdatePartitionCountRequestData(serializers.Serializer[Any]):
    """How many partitions a topic shall have."""

    partitions_count = NumberField(min_value=1, max_value=MAX_PARTITIONS)


class UpdateConfigRequestData(serializers.Serializer[Any]):
    """A topic config's new value."""

    value = TextField(allow_null=True, help_text="Null: back to the default.")


class CreateAclRequestData(serializers.Serializer[Any]):
    """An ACL to be created."""

    resource_type = serializers.ChoiceField(choices=RESOURCE_TYPES)
    resource_name = TextField()
    pattern_type = serializers.ChoiceField(choices=PATTERN_TYPES)
    principal = TextField()
    host = TextField()
    operation = serializers.ChoiceField(choices=OPERATIONS)
    permission = serializers.ChoiceField(choices=PERMISSIONS)


class CreateAclRequestDataList(serializers.Serializer[Any]):
    """ACLs to be created."""

    data: Any = CreateAclRequestData(many=True)

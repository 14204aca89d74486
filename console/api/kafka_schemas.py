"""Requests and responses of the Kafka REST interface with Confluent's names; ``kafka_render`` creates the responses."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework import serializers

from console.api.schema import FlagField, NumberField, OffsetField, TextField, list_of
from linkengine.domain.states import LinkState, MirrorState

# --- request bodies ---------------------------------------------------------------------------------------------------
#
# They check types only; the actions check values.


class ConfigData(serializers.Serializer[Any]):
    """A config to set."""

    name = TextField()
    value = TextField(allow_null=True, help_text="Null for the default.")


class CreateLinkRequestData(serializers.Serializer[Any]):
    """A cluster link to create."""

    source_cluster_id = TextField(required=False, help_text="The cluster to mirror from.")
    destination_cluster_id = TextField(
        required=False, help_text="The cluster to mirror to, for a link that is created on the source cluster."
    )
    remote_cluster_id = TextField(required=False, help_text="The other cluster of a bidirectional link.")
    cluster_link_id = TextField(
        required=False, help_text="For the second side of a link: the expected id of the first side. It is checked."
    )
    configs = ConfigData(many=True, required=False)


class UpdateLinkConfigRequestData(serializers.Serializer[Any]):
    """The new value of a config."""

    value = TextField()


class ConfigChangeData(serializers.Serializer[Any]):
    """A change of a config."""

    name = TextField()
    value = TextField(required=False, allow_null=True)
    operation = TextField(required=False, allow_null=True, help_text="SET (the default) or DELETE.")


class AlterConfigBatchRequestData(serializers.Serializer[Any]):
    """Changes of configs; either all or none are applied."""

    data: Any = ConfigChangeData(many=True)
    validate_only = FlagField(required=False)


class CreateMirrorTopicRequestData(serializers.Serializer[Any]):
    """A mirror topic to create."""

    source_topic_name = TextField()
    mirror_topic_name = TextField(
        required=False, help_text="Must be the link's prefix and the source topic's name, which is the default."
    )
    replication_factor = NumberField(required=False, min_value=1, max_value=32_767)
    configs = ConfigData(
        many=True,
        required=False,
        help_text="Configs of the new topic. A mirror.start.offset.spec among them takes precedence over the link's.",
    )


class AlterMirrorsRequestData(serializers.Serializer[Any]):
    """The mirror topics to operate on: by name, or by a regular expression that matches the whole name."""

    mirror_topic_names = serializers.ListField(child=TextField(), required=False)
    mirror_topic_name_pattern = TextField(required=False)


# --- states and ids in Kafka's terms ----------------------------------------------------------------------------------
#
# The tables are checked at import.


LINK_PAUSED = "LINK_PAUSED"
_S = MirrorState
# The interface has no PENDING_SETUP, so such a mirror is ACTIVE, and its name for PENDING_RESTORE_MIRROR differs.
MIRROR_STATUS: Mapping[MirrorState, str] = {
    **{state: state.value for state in MirrorState},
    _S.PENDING_SETUP: "ACTIVE",
    _S.PENDING_RESTORE_MIRROR: "PENDING_RESTORE",
}
MIRROR_STATUSES: tuple[str, ...] = tuple(dict.fromkeys([*MIRROR_STATUS.values(), LINK_PAUSED]))
# Mirrors in these states have the status LINK_PAUSED while the link is paused; the other states are more specific.
_PAUSED_WITH_THE_LINK = frozenset({_S.PENDING_SETUP, _S.ACTIVE, _S.SOURCE_UNAVAILABLE, _S.LINK_FAILED})

CATEGORY: Mapping[str, str] = {
    "ACTIVE": "ACTIVE",
    "PAUSED": "PAUSED",
    LINK_PAUSED: "PAUSED",
    "PENDING_SYNCHRONIZE": "PENDING",
    "PENDING_MIRROR": "PENDING",
    "PENDING_SETUP_FOR_RESTORE": "PENDING",
    "PENDING_RESTORE": "PENDING",
    "PENDING_STOPPED": "PENDING",
    "STOPPED": "NOT_APPLICABLE",
    "SOURCE_UNAVAILABLE": "IN_ERROR",
    "LINK_FAILED": "IN_ERROR",
    "FAILED": "IN_ERROR",
}
if set(CATEGORY) != set(MIRROR_STATUSES):
    raise AssertionError("every status needs a category")


def mirror_status(state: str, *, link_state: str) -> str:
    """Return the status of a mirror in the Kafka REST interface."""
    own = MirrorState(state)
    if link_state == LinkState.PAUSED and own in _PAUSED_WITH_THE_LINK:
        return LINK_PAUSED
    return MIRROR_STATUS[own]


def short_id(link_uuid: UUID) -> str:
    """Return an id as Kafka's Uuid class does: 22 characters of base64url."""
    return base64.urlsafe_b64encode(link_uuid.bytes).decode().rstrip("=")


def unix_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


# --- responses --------------------------------------------------------------------------------------------------------
#
# Fields with the name of an attribute of Django REST framework's serializers are typed Any.


Text, Number, Flag = serializers.CharField, serializers.IntegerField, serializers.BooleanField


class ResourceMetadata(serializers.Serializer[Any]):
    """The URL of the resource."""

    self = Text()
    resource_name = Text(allow_null=True, required=False)


class ResourceCollectionMetadata(serializers.Serializer[Any]):
    """The URL of the list, which is always complete."""

    self = Text()
    next = Text(allow_null=True)


class Resource(serializers.Serializer[Any]):
    """Fields of every resource."""

    kind = Text()
    metadata = ResourceMetadata()


class Collection(serializers.Serializer[Any]):
    """Fields of every list."""

    kind = Text()
    metadata = ResourceCollectionMetadata()


def collection_of(row: type[serializers.Serializer[Any]], description: str) -> type[serializers.Serializer[Any]]:
    """Return the serializer of a list of the Kafka REST interface, with ``kind`` and ``metadata``."""
    return list_of(row, description, Collection)


class Relationship(serializers.Serializer[Any]):
    """The URL of a related resource."""

    related = Text()


class ClusterData(Resource):
    """A Kafka cluster."""

    cluster_id = Text()
    controller = Relationship(required=False)
    acls = Relationship()
    brokers = Relationship()
    broker_configs = Relationship()
    consumer_groups = Relationship()
    topics = Relationship()
    partition_reassignments = Relationship()


ClusterDataList = collection_of(ClusterData, "The clusters that the caller may see.")


class LinkTaskError(serializers.Serializer[Any]):
    """An error of a task or of a state transition."""

    error_code = Text()
    error_message = Text()


class LinkTask(serializers.Serializer[Any]):
    """A task of the link."""

    task_name = Text()
    state = Text(help_text="ACTIVE, IN_ERROR, NOT_CONFIGURED, LINK_FAILED, LINK_UNAVAILABLE, LINK_PAUSED or UNKNOWN.")
    errors: Any = LinkTaskError(many=True)


class LinkCategory(serializers.Serializer[Any]):
    """The number of mirror topics in a category."""

    state_category = Text(help_text="ACTIVE, PAUSED, PENDING, IN_ERROR or NOT_APPLICABLE (stopped).")
    count = Number()


class ListLinksResponseData(Resource):
    """A cluster link."""

    link_name = Text()
    link_id = Text(help_text="Deprecated: the id as a hyphenated UUID.")
    cluster_link_id = Text(help_text="The same id as 22 characters of base64url.")
    source_cluster_id = Text(allow_null=True)
    destination_cluster_id = Text(allow_null=True)
    remote_cluster_id = Text(allow_null=True)
    topic_names = serializers.ListField(child=Text(), help_text="The link's mirror topics.")
    link_state = Text(help_text="ACTIVE, PAUSED, UNAVAILABLE or FAILED.")
    link_error = Text(help_text="NO_ERROR, AUTHENTICATION_ERROR, TIMEOUT_ERROR, ...")
    link_error_message = Text(allow_null=True)
    tasks = LinkTask(many=True, allow_null=True, help_text="Null unless include_tasks is true.")
    category_counts = LinkCategory(many=True, allow_null=True)


ListLinksResponseDataList = collection_of(ListLinksResponseData, "The cluster links of the destination cluster.")


class SourceBrokerDistance(serializers.Serializer[Any]):
    """The round trip time to a broker of the source. An addition of this product."""

    broker_id = Number()
    address = Text()
    round_trip_ms = serializers.FloatField(
        allow_null=True, help_text="Round trip time of the fastest request; null if the broker cannot be reached."
    )
    send_buffer_bytes = Number(
        allow_null=True,
        help_text="socket.send.buffer.bytes of the broker; -1 for the default of its operating system. Null if the round trip "
        "is short, or if the link's principal may not read it (DESCRIBE_CONFIGS on the cluster).",
    )
    receive_buffer_bytes = Number(allow_null=True, help_text="The maximum of this installation's operating system.")
    limited_by = Text(
        allow_null=True, help_text="The setting that limits the throughput of a connection; null if none does or it is unknown."
    )
    connection_bytes_per_s = Number(allow_null=True, help_text="The approximate throughput of a connection with that limit.")
    error = Text(allow_null=True, help_text="Why the broker was not measured.")


class LinkValidationData(Resource):
    """The result of validating a link that was not created. An addition of this product."""

    source_cluster_id = Text()
    source_brokers = SourceBrokerDistance(many=True, allow_null=True, help_text="Null unless validate_link is true.")


class ListLinkConfigsResponseData(Resource):
    """A config of a link. Secrets have the value null."""

    cluster_id = Text()
    link_name = Text()
    name = Text()
    value = Text(allow_null=True)
    is_default = Flag()
    is_read_only = Flag()
    is_sensitive = Flag()
    read_only: Any = Flag(help_text="is_read_only for older clients.")
    sensitive = Flag(help_text="is_sensitive for older clients.")
    source: Any = Text(help_text="DYNAMIC_CLUSTER_LINK_CONFIG if the config was set, otherwise DEFAULT_CONFIG.")
    synonyms = serializers.ListField(child=Text())


ListLinkConfigsResponseDataList = collection_of(ListLinkConfigsResponseData, "All configs of the link.")


class MirrorLag(serializers.Serializer[Any]):
    """The lag of a partition."""

    partition = Number()
    lag = OffsetField(help_text="Offsets that are not copied yet, up to the source's last stable offset; -1 if unknown.")
    last_source_fetch_offset = OffsetField(help_text="The highest fetched offset of the source; -1 before the first fetch.")


class ListMirrorTopicsResponseData(Resource):
    """A mirror topic."""

    link_name = Text()
    mirror_topic_name = Text()
    source_topic_name = Text()
    num_partitions = Number(help_text="0 until the topic is set up.")
    mirror_lags = MirrorLag(many=True)
    mirror_status = serializers.ChoiceField(choices=MIRROR_STATUSES)
    mirror_topic_error = Text(help_text="NO_ERROR, or the code of the error with which the mirror failed or cannot be set up.")
    state_time_ms = OffsetField(help_text="When the mirror entered this state, in Unix milliseconds.")
    mirror_state_transition_errors = LinkTaskError(
        many=True, required=False, help_text="Only if include_state_transition_errors is true."
    )


ListMirrorTopicsResponseDataList = collection_of(ListMirrorTopicsResponseData, "Mirror topics.")


class PartitionLevelTruncationData(serializers.Serializer[Any]):
    """The records that a restore removed from a partition."""

    partition_id = Number()
    offset_truncated_to = OffsetField()
    messages_truncated = OffsetField()


class EffectData(serializers.Serializer[Any]):
    """The effect that the operation would have, by the last reports. Null is unknown."""

    state_after = Text()
    records_at_risk = OffsetField(allow_null=True, help_text="Offsets that would not be copied or would be deleted.")
    records_to_copy = OffsetField(allow_null=True, help_text="Offsets that would be copied first.")
    groups_clamped = Number(help_text="Number of consumer group offsets that would be clamped.")
    configs_to_change = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The new values; null resets a config to the default."
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Things to consider before the operation; it is allowed in spite of them."
    )


class AlterMirrorStatusResponseData(Resource):
    """The result of the operation on a mirror topic."""

    mirror_topic_name = Text()
    error_code = Number(allow_null=True)
    error_message = Text(allow_null=True)
    mirror_lags = MirrorLag(many=True)
    messages_truncated = OffsetField(allow_null=True)
    partition_level_truncation_data = PartitionLevelTruncationData(many=True)
    effect = EffectData(required=False, help_text="With validate_only. An addition of this product.")


AlterMirrorStatusResponseDataList = collection_of(
    AlterMirrorStatusResponseData,
    "A result for each mirror topic. A refused operation has an error code; the HTTP status is 200 nevertheless.",
)


class TopicData(Resource):
    """A topic of the cluster."""

    cluster_id = Text()
    topic_name = Text()
    is_internal = Flag()
    replication_factor = Number()
    partitions_count = Number()
    partitions = Relationship()
    configs = Relationship()
    partition_reassignments = Relationship()
    authorized_operations = serializers.ListField(
        child=Text(),
        required=False,
        help_text="Only if include_authorized_operations is true and the topic exists: the operations for which the principal "
        "of the cluster's stored credentials is authorized. Your own permissions depend on your roles.",
    )


class TopicDataList(Collection):
    """The topics of the cluster."""

    data: Any = TopicData(many=True)

"""Request bodies, with Confluent's field names. They check types only; the actions check values."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.fields import FlagField, NumberField, TextField


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

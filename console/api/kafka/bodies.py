"""What clients send, as the interface names it. Types only: what a value must be is the actions' business."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.fields import FlagField, NumberField, TextField


class ConfigData(serializers.Serializer[Any]):
    """One config to set."""

    name = TextField()
    value = TextField(allow_null=True, help_text="Null: the default.")


class CreateLinkRequestData(serializers.Serializer[Any]):
    """A cluster link to be created."""

    source_cluster_id = TextField(required=False, help_text="The cluster to mirror from.")
    destination_cluster_id = TextField(required=False, help_text="The cluster to mirror to, of a link created at the source.")
    remote_cluster_id = TextField(required=False, help_text="The other cluster of a bidirectional link.")
    cluster_link_id = TextField(required=False, help_text="Second side of a link: the id of the first, if it must be that one.")
    configs = ConfigData(many=True, required=False)


class UpdateLinkConfigRequestData(serializers.Serializer[Any]):
    """A config's new value."""

    value = TextField()


class ConfigChangeData(serializers.Serializer[Any]):
    """One change of a link's config."""

    name = TextField()
    value = TextField(required=False, allow_null=True)
    operation = TextField(required=False, allow_null=True, help_text="SET, also where nothing is said, or DELETE.")


class AlterConfigBatchRequestData(serializers.Serializer[Any]):
    """Changes of a link's configs; all of them happen, or none."""

    data: Any = ConfigChangeData(many=True)
    validate_only = FlagField(required=False)


class CreateMirrorTopicRequestData(serializers.Serializer[Any]):
    """A mirror topic to be created."""

    source_topic_name = TextField()
    mirror_topic_name = TextField(required=False, help_text="Only what the link's prefix makes of the source's name.")
    replication_factor = NumberField(required=False, min_value=1, max_value=32_767)
    configs = ConfigData(
        many=True, required=False, help_text="Of the new topic; mirror.start.offset.spec among them goes before the link's."
    )


class AlterMirrorsRequestData(serializers.Serializer[Any]):
    """The mirror topics to operate on: by name, or by a pattern that must match the whole name."""

    mirror_topic_names = serializers.ListField(child=TextField(), required=False)
    mirror_topic_name_pattern = TextField(required=False)

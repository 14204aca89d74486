"""Previews of an operation on the mirrors of a link, and of the deletion of a topic."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import prefetch_related_objects
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, check_permission
from console.actions.reversing import risks_of
from console.actions.topics import why_not_delete
from console.api.errors import UnreadableError
from console.api.fields import OffsetField
from console.api.schema import ADDITIONS, operation
from console.api.v1.views import LIMIT, limit_of
from console.api.views import RestView, actor_of
from console.mirrors import loss
from console.mirrors.rules import why_not
from console.mirrors.topic_regex import FIELD, matching
from console.queries import clusters, links, mirrors
from console.queries.cautions import REVERSALS, cautions_of_many, mirrored_elsewhere
from console.queries.previews import preview
from linkengine.domain.states import OPERATIONS, MirrorEvent

_OPERATIONS = sorted(operation.value for operation in OPERATIONS)


class GroupAtRiskData(serializers.Serializer[Any]):
    """An offset of a consumer group that would be set back to the mirror's end."""

    group = serializers.CharField()
    partition = serializers.IntegerField()
    offset = OffsetField(help_text="The group's committed offset on the source.")
    clamped_to = OffsetField()


class PreviewData(serializers.Serializer[Any]):
    """The effect of the operation on a mirror topic."""

    mirror_topic_name = serializers.CharField()
    operation = serializers.ChoiceField(choices=_OPERATIONS)
    allowed = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True, help_text="Why the operation is refused now; empty if it is allowed.")
    state_after = serializers.CharField(allow_blank=True)
    records_at_risk = OffsetField(
        allow_null=True,
        help_text="Offsets that would not be copied (failover) or would be deleted (delete), by the last report; null if "
        "unknown.",
    )
    records_to_copy = OffsetField(
        allow_null=True,
        help_text="Offsets that a promotion or reversal copies first, by the last report; null if unknown.",
    )
    groups_clamped = GroupAtRiskData(many=True)
    configs_to_change = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The new values; null resets a config to the cluster's default."
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Things to consider before the operation; it is allowed in spite of them."
    )


class PreviewDataList(serializers.Serializer[Any]):
    """A preview for each mirror topic."""

    data: Any = PreviewData(many=True)


class TopicDeletionData(serializers.Serializer[Any]):
    """The effect of deleting a topic of a cluster."""

    topic_name = serializers.CharField()
    allowed = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True, help_text="Why the deletion is refused now; empty if it is allowed.")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Mirror topics that copy from this topic; it can be deleted in spite of them."
    )


class TopicDeletionView(RestView):
    """…/topics/{topic_name}/deletion-preview"""

    @operation(
        "previewTopicDeletion",
        summary="Preview the deletion of a topic",
        description="Returns whether the topic, also a mirror topic, can be deleted, and which mirror topics copy from it. It "
        "does not check on the cluster whether the topic exists. Needs the role that the deletion needs.",
        responses={200: TopicDeletionData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return the warnings before the deletion of a topic."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        mirror = mirrors.find_by_topic(cluster_id=cluster_id, topic=topic_name, by=by)
        if mirror is None:
            reason = why_not_delete(cluster=cluster, topic=topic_name, by=by)
        else:
            check_permission(by, Permission.MANAGE_MIRROR, mirror=mirror)
            reason = why_not(mirror, MirrorEvent.DELETE)
        warning = mirrored_elsewhere(cluster_id, topic_name, by=by)
        found = {"topic_name": topic_name, "allowed": not reason, "reason": reason, "warnings": [warning] if warning else []}
        return Response(TopicDeletionData(found).data)


class PreviewListView(RestView):
    """…/links/{link_name}/previews"""

    @operation(
        "previewOperation",
        summary="Preview an operation",
        description="Returns what an operation would do, from the last reports; nothing is changed. To preview "
        "truncate-and-restore, use its validate_only, which counts the diverged records on the cluster.",
        parameters=[
            OpenApiParameter("operation", str, required=True, enum=_OPERATIONS, description="The operation."),
            OpenApiParameter("mirror_topic_name_pattern", str, description="Only mirrors whose whole name matches."),
            LIMIT,
        ],
        responses={200: PreviewDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return a preview for each mirror of the link."""
        by = actor_of(request)
        wanted = request.query_params.get("operation", "")
        if wanted not in _OPERATIONS:
            raise UnreadableError(f"The query parameter operation must be one of {', '.join(_OPERATIONS)}.")
        link = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        visible = {summary.mirror.name: summary.mirror for summary in mirrors.list_mirrors(link=link, by=by)}
        chosen = matching(visible, request.query_params.get(FIELD, ".*"))
        rows = [visible[name] for name in chosen[: limit_of(request)]]
        prefetch_related_objects(rows, "partitions")
        event = MirrorEvent(wanted)
        risks = risks_of(link, rows) if event in REVERSALS else {}
        warnings, listed = cautions_of_many(rows, event, by=by, risks=risks), loss.source_partitions(rows)
        found = [asdict(preview(row, event, source_partitions=listed[row.pk])) | {"warnings": warnings[row.pk]} for row in rows]
        return Response(PreviewDataList({"data": found}).data)

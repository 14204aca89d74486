"""What an operation would do to the mirrors of a link, before anybody does it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import prefetch_related_objects
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.reversing import REVERSALS, risks_of
from console.api.errors import UnreadableError
from console.api.fields import OffsetField
from console.api.schema import OURS, operation
from console.api.v1.views import LIMIT, limit_of
from console.api.views import RestView, actor_of
from console.patterns import FIELD, matching
from console.queries import links, mirrors
from console.queries.cautions import cautions_of
from console.queries.previews import preview
from linkengine.domain.states import OPERATIONS, MirrorEvent

_OPERATIONS = sorted(one.value for one in OPERATIONS)


class GroupAtRiskData(serializers.Serializer[Any]):
    """A consumer group that would be set back to the mirror's end."""

    group = serializers.CharField()
    partition = serializers.IntegerField()
    offset = OffsetField(help_text="Where the group stands on the source.")
    clamped_to = OffsetField()


class PreviewData(serializers.Serializer[Any]):
    """The effect of the operation on one mirror topic."""

    mirror_topic_name = serializers.CharField()
    operation = serializers.ChoiceField(choices=_OPERATIONS)
    allowed = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True, help_text="Why it is refused now; empty if it is not.")
    state_after = serializers.CharField(allow_blank=True)
    records_at_risk = OffsetField(
        allow_null=True,
        help_text="Offsets that would be left behind (failover) or removed (delete), as of the last report; null: unknown.",
    )
    records_to_copy = OffsetField(
        allow_null=True,
        help_text="Offsets that a promotion or reversal copies first, as of the last report; null: unknown.",
    )
    groups_clamped = GroupAtRiskData(many=True)
    configs_to_change = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="Null: back to the cluster's default."
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="What is worth knowing before the operation; nothing is refused for it."
    )


class PreviewDataList(serializers.Serializer[Any]):
    """One row per mirror topic."""

    data: Any = PreviewData(many=True)


class PreviewListView(RestView):
    """…/links/{link_name}/previews"""

    @operation(
        "previewOperation",
        summary="Preview an operation",
        description="Tells what an operation would do, from what is known now, and changes nothing. A truncate-and-restore is "
        "previewed by its own validate_only, which counts on the cluster.",
        parameters=[
            OpenApiParameter("operation", str, required=True, enum=_OPERATIONS, description="The operation."),
            OpenApiParameter("mirror_topic_name_pattern", str, description="Only mirrors whose whole name matches."),
            LIMIT,
        ],
        answers={200: PreviewDataList},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Preview for each mirror of the link."""
        by = actor_of(request)
        wanted = request.query_params.get("operation", "")
        if wanted not in _OPERATIONS:
            raise UnreadableError(f"The query parameter operation must be one of {', '.join(_OPERATIONS)}.")
        link = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        shown = {one.mirror.name: one.mirror for one in mirrors.list_mirrors(link=link, by=by)}
        chosen = matching(shown, request.query_params.get(FIELD, ".*"))
        rows = [shown[name] for name in chosen[: limit_of(request)]]
        prefetch_related_objects(rows, "partitions")
        event = MirrorEvent(wanted)
        risks = risks_of(link, rows) if event in REVERSALS else {}
        found = [
            asdict(preview(row, event)) | {"warnings": cautions_of(row, event, by=by, risks=risks.get(row.name))}
            for row in rows
        ]
        return Response(PreviewDataList({"data": found}).data)

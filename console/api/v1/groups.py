"""Consumer groups and ACLs that a link syncs or skips, with reasons, and offsets that failovers have set back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import UnreadableError
from console.api.fields import OffsetField
from console.api.schema import ADDITIONS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import RestView, actor_of
from console.models import ClampedOffset, GroupOffset, SyncedAcl, SyncedGroup
from console.queries import acls, groups, links
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus, OffsetOutcome

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField
_GROUP_STATUS = OpenApiParameter("status", str, enum=list(GroupStatus), description="Only groups with this status.")
_ACL_STATUS = OpenApiParameter("status", str, enum=list(AclStatus), description="Only ACLs with this status.")
_CONFLICTS = OpenApiParameter("conflicts", bool, description="Only conflicts.", default=False)


class StatusCount(serializers.Serializer[Any]):
    """The number of rows with a status."""

    status = Text()
    count = Number()


class GroupOffsetData(serializers.ModelSerializer[GroupOffset]):
    """The offsets of a group in a partition."""

    mirror_topic_name = Text(source="mirror.name")
    source_offset = OffsetField(help_text="Committed on the source, as last read.")
    destination_offset = OffsetField(allow_null=True, help_text="Committed on the destination; null if there is none.")
    target = OffsetField(help_text="max(mirror start, min(source offset, mirror end)).")
    outcome = serializers.ChoiceField(choices=list(OffsetOutcome))

    class Meta:
        model = GroupOffset
        fields = ("mirror_topic_name", "partition", "source_offset", "destination_offset", "target", "outcome", "message")


class SyncedGroupData(serializers.ModelSerializer[SyncedGroup]):
    """A consumer group of the source."""

    status = serializers.ChoiceField(choices=list(GroupStatus))
    type = Text(source="kind", help_text="classic, consumer, share or streams; empty if the broker does not return it.")
    message = Text(help_text="The reason for the status, for example why the group is skipped.")
    looked_at = Time(allow_null=True, help_text="When the group's offsets were last read.")
    listed_at = Time(help_text="When the source last listed the group.")
    offsets = serializers.SerializerMethodField()

    class Meta:
        model = SyncedGroup
        fields = ("name", "destination_name", "type", "status", "message", "looked_at", "listed_at", "offsets")

    @extend_schema_field(GroupOffsetData(many=True))
    def get_offsets(self, group: SyncedGroup) -> Any:
        """Return the group's offsets, which the view has read for all groups at once."""
        return GroupOffsetData(self.context["offsets"].get(group.pk, []), many=True).data


class SyncedGroupDataList(serializers.Serializer[Any]):
    """The consumer groups of the source. ``totals`` count all groups, ``data`` is a page."""

    totals = StatusCount(many=True)
    data: Any = SyncedGroupData(many=True)


class SyncedAclData(serializers.ModelSerializer[SyncedAcl]):
    """An ACL of the source and the result of its sync."""

    status = serializers.ChoiceField(choices=list(AclStatus))
    message = Text(help_text="Why the ACL was skipped, or which ACL conflicts with it.")

    class Meta:
        model = SyncedAcl
        fields = (
            "resource_type",
            "resource_name",
            "pattern_type",
            "principal",
            "host",
            "operation",
            "permission",
            "status",
            "message",
            "is_conflict",
            "since",
        )


class SyncedAclDataList(serializers.Serializer[Any]):
    """The ACLs of the source. ``totals`` count all ACLs, ``data`` is a page."""

    totals = StatusCount(many=True)
    conflicts = Number()
    data: Any = SyncedAclData(many=True)


class ClampedOffsetData(serializers.ModelSerializer[ClampedOffset]):
    """An offset of a consumer group that was beyond the mirrored end when the mirror was stopped, and was set back to it."""

    source_offset = OffsetField(allow_null=True, help_text="Committed on the source, as last read.")
    before = OffsetField(
        allow_null=True, help_text="Committed on the destination before the stop; null if there was none or it was not read."
    )
    after = OffsetField(allow_null=True, help_text="Committed on the destination after the stop.")
    message = Text(help_text="Why the offset could not be set; empty if it was set.")

    class Meta:
        model = ClampedOffset
        fields = ("group", "partition", "source_offset", "before", "after", "message", "stopping_since", "at")


class ClampedOffsetDataList(serializers.Serializer[Any]):
    """Offsets of consumer groups that stops of the mirror have set back, latest stop first."""

    data: Any = ClampedOffsetData(many=True)


class GroupListView(RestView):
    """…/links/{link_name}/consumer-groups"""

    @operation(
        "listLinkConsumerGroups",
        summary="List the source's consumer groups and their sync status",
        parameters=[_GROUP_STATUS, LIMIT],
        responses={200: SyncedGroupDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return groups with their offsets on both sides."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        status = _one_of(request, "status", GroupStatus)
        rows = list(link.groups.matching(status=status)[: limit_of(request)])
        data = SyncedGroupData(rows, many=True, context={"offsets": groups.offsets_of(rows)}).data
        return Response({"totals": _totals(groups.count_groups(link=link).items()), "data": data})


class AclListView(RestView):
    """…/links/{link_name}/acls"""

    @operation(
        "listLinkAcls",
        summary="List the source's ACLs and their sync status",
        parameters=[_ACL_STATUS, _CONFLICTS, LIMIT],
        responses={200: SyncedAclDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the ACLs of the source with their status."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        status = _one_of(request, "status", AclStatus)
        only = _one_of(request, "conflicts", ("true", "false")) == "true"
        rows = link.acls.matching(status=status, conflicts=only)[: limit_of(request)]
        counts, conflicts = acls.count_acls(link=link)
        return Response(
            {"totals": _totals(counts.items()), "conflicts": conflicts, "data": SyncedAclData(rows, many=True).data}
        )


class ClampedOffsetListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/clamped-offsets"""

    @operation(
        "listClampedOffsets",
        summary="List consumer group offsets that stops of the mirror have set back",
        parameters=[LIMIT],
        responses={200: ClampedOffsetDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the offsets that stops have set back."""
        rows = groups.list_clamped(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": ClampedOffsetData(rows, many=True).data})


def _totals(counts: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"status": status, "count": count} for status, count in counts]


def _one_of(request: Request, name: str, values: Iterable[str]) -> str:
    value: str | None = request.query_params.get(name)
    allowed = [str(word) for word in values]
    if value is None:
        return ""
    if value not in allowed:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it must be one of {', '.join(allowed)}.")
    return value

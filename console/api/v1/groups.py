"""Consumer groups and ACLs that a link carries over, or does not and why; what stops did to groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import UnreadableError
from console.api.fields import OffsetField
from console.api.schema import OURS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import RestView, actor_of
from console.models import ClampedOffset, GroupOffset, SyncedAcl, SyncedGroup
from console.queries import acls, groups, links
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus, OffsetOutcome

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField
_GROUP_STATUS = OpenApiParameter("status", str, enum=list(GroupStatus), description="Only groups that stand like this.")
_ACL_STATUS = OpenApiParameter("status", str, enum=list(AclStatus), description="Only ACLs with this status.")
_CONFLICTS = OpenApiParameter("conflicts", bool, description="Only conflicts.", default=False)


class StatusCount(serializers.Serializer[Any]):
    """How many have a status."""

    status = Text()
    count = Number()


class GroupOffsetData(serializers.ModelSerializer[GroupOffset]):
    """One partition of a group."""

    mirror_topic_name = Text(source="mirror.name")
    source_offset = OffsetField(help_text="Committed on the source, as last seen.")
    destination_offset = OffsetField(allow_null=True, help_text="Committed on the destination; null: nothing.")
    target = OffsetField(help_text="max(mirror start, min(source offset, mirror end)).")
    outcome = serializers.ChoiceField(choices=list(OffsetOutcome))

    class Meta:
        model = GroupOffset
        fields = ("mirror_topic_name", "partition", "source_offset", "destination_offset", "target", "outcome", "message")


class SyncedGroupData(serializers.ModelSerializer[SyncedGroup]):
    """A group of the source."""

    status = serializers.ChoiceField(choices=list(GroupStatus))
    type = Text(source="kind", help_text="classic, consumer, share, streams; empty: the broker does not tell.")
    message = Text(help_text="Why it is skipped, or stands as it does.")
    looked_at = Time(allow_null=True, help_text="When its offsets were last looked at.")
    listed_at = Time(help_text="When the source last listed it.")
    offsets = serializers.SerializerMethodField()

    class Meta:
        model = SyncedGroup
        fields = ("name", "destination_name", "type", "status", "message", "looked_at", "listed_at", "offsets")

    @extend_schema_field(GroupOffsetData(many=True))
    def get_offsets(self, group: SyncedGroup) -> Any:
        """List the partitions, read for all groups at once."""
        return GroupOffsetData(self.context["offsets"].get(group.pk, []), many=True).data


class SyncedGroupDataList(serializers.Serializer[Any]):
    """The groups of the source; totals count all, ``data`` is one page."""

    totals = StatusCount(many=True)
    data: Any = SyncedGroupData(many=True)


class SyncedAclData(serializers.ModelSerializer[SyncedAcl]):
    """An ACL of the source and what the link did with it."""

    status = serializers.ChoiceField(choices=list(AclStatus))
    message = Text(help_text="Why it was left alone, or what contradicts it.")

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
    """The ledger of ACLs; totals count all, ``data`` is one page."""

    totals = StatusCount(many=True)
    conflicts = Number()
    data: Any = SyncedAclData(many=True)


class ClampedOffsetData(serializers.ModelSerializer[ClampedOffset]):
    """A group that had read further than was mirrored when the mirror was stopped."""

    source_offset = OffsetField(allow_null=True, help_text="Committed on the source, as last seen.")
    before = OffsetField(allow_null=True, help_text="Committed on the destination before the stop; null: nothing, or unread.")
    after = OffsetField(allow_null=True, help_text="And afterwards.")
    message = Text(help_text="Why it could not be moved; empty: it was.")

    class Meta:
        model = ClampedOffset
        fields = ("group", "partition", "source_offset", "before", "after", "message", "stopping_since", "at")


class ClampedOffsetDataList(serializers.Serializer[Any]):
    """What the stops of a mirror did to groups, the latest stop first."""

    data: Any = ClampedOffsetData(many=True)


class GroupListView(RestView):
    """…/links/{link_name}/consumer-groups"""

    @operation(
        "listLinkConsumerGroups",
        summary="List the source's consumer groups and why one is skipped",
        parameters=[_GROUP_STATUS, LIMIT],
        answers={200: SyncedGroupDataList},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List groups with their offsets on both sides."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        status = _one_of(request, "status", GroupStatus)
        rows = list(groups.list_groups(link=link, status=status)[: limit_of(request)])
        data = SyncedGroupData(rows, many=True, context={"offsets": groups.offsets_of(rows)}).data
        return Response({"totals": _totals(groups.count_groups(link=link).items()), "data": data})


class AclListView(RestView):
    """…/links/{link_name}/acls"""

    @operation(
        "listLinkAcls",
        summary="List the ACLs that a link carries over, and conflicts",
        parameters=[_ACL_STATUS, _CONFLICTS, LIMIT],
        answers={200: SyncedAclDataList},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List the ledger."""
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        status = _one_of(request, "status", AclStatus)
        only = _one_of(request, "conflicts", ("true", "false")) == "true"
        rows = acls.list_acls(link=link, status=status, conflicts=only)[: limit_of(request)]
        counts, conflicts = acls.count_acls(link=link)
        return Response(
            {"totals": _totals(counts.items()), "conflicts": conflicts, "data": SyncedAclData(rows, many=True).data}
        )


class ClampedOffsetListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/clamped-offsets"""

    @operation(
        "listClampedOffsets",
        summary="List consumer groups that stops of the mirror set back",
        parameters=[LIMIT],
        answers={200: ClampedOffsetDataList},
        tag=OURS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """List what stops did to groups."""
        rows = groups.list_clamped(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": ClampedOffsetData(rows, many=True).data})


def _totals(counts: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"status": status, "count": count} for status, count in counts]


def _one_of(request: Request, name: str, known: Iterable[str]) -> str:
    value: str | None = request.query_params.get(name)
    words = [str(one) for one in known]
    if value is None:
        return ""
    if value not in words:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it is one of {', '.join(words)}.")
    return value

"""What promotions and failovers cost, of one mirror and of a link: records left behind, RPO, RTO."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import OffsetField
from console.api.schema import OURS, operation
from console.api.v1.groups import ClampedOffsetData
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import RestView, actor_of
from console.models import StopReport
from console.queries import links, stopreports


class PartitionAtStop(serializers.Serializer[Any]):
    """One partition at the moment of the fence."""

    partition = serializers.IntegerField()
    mirrored_end = OffsetField(allow_null=True, help_text="Offset after the last mirrored one.")
    source_end = OffsetField(
        allow_null=True,
        help_text="Failover: the source's high watermark, as last seen. Promotion: its end after the fence.",
    )
    stable_end = OffsetField(
        allow_null=True,
        help_text="Failover: the source's last stable offset, as last seen; beyond it was an open transaction.",
    )
    source_seen_at_ms = OffsetField(allow_null=True)
    caught_up_at_ms = OffsetField(allow_null=True, help_text="The mirror holds everything the source had then.")
    last_timestamp_ms = OffsetField(allow_null=True)
    outdated = serializers.BooleanField(default=False, help_text="The source was last seen too long before the stop.")
    not_copied = OffsetField(allow_null=True, help_text="Null where the source's end at the stop is not known.")
    missing_when_seen = OffsetField(
        default=None, allow_null=True, help_text="What was missing when the source was last seen: a lower bound."
    )


class RefusedStepData(serializers.Serializer[Any]):
    """A config that the destination refused after the mirror was opened for producers."""

    name = serializers.CharField(help_text="A topic config; fillers: the empty records at the head.")
    value = serializers.CharField(allow_null=True, help_text="What it should be; null: the cluster's default.")
    code = serializers.CharField()
    message = serializers.CharField(help_text="Why the destination refused it.")
    resolved_at = serializers.DateTimeField(allow_null=True, help_text="When a retry found it accepted or changed; null: open.")


class StopReportData(serializers.ModelSerializer[StopReport]):
    """What a promotion or failover cost. Unknown is null, never 0."""

    mirror_topic_name = serializers.CharField(source="mirror.name")
    records_not_copied = OffsetField(
        allow_null=True,
        help_text="Offsets the source had and the mirror has not; behind an open transaction some may be markers or aborted "
        "records. Null where the source was not seen within 15 s before the stop was asked for.",
    )
    rpo_ms = OffsetField(allow_null=True, help_text="Upper bound: what the source had that long before is in the mirror.")
    rto_ms = OffsetField(help_text="From the request until producers could write.")
    partitions = PartitionAtStop(many=True)
    refused = RefusedStepData(many=True, help_text="What the destination refused once producers were let in.")
    groups_clamped = serializers.SerializerMethodField(
        help_text="Consumer groups that stood beyond the mirror's end and were set back to it: the first "
        f"{stopreports.CLAMPED_SHOWN} offsets. All are under …/clamped-offsets of the mirror."
    )
    groups_clamped_total = serializers.SerializerMethodField(help_text="How many offsets of groups this stop set back.")

    class Meta:
        model = StopReport
        fields = (
            "mirror_topic_name",
            "reason",
            "requested_by",
            "requested_at",
            "writable_at",
            "records_not_copied",
            "source_seen_at",
            "rpo_ms",
            "rto_ms",
            "partitions",
            "refused",
            "groups_clamped",
            "groups_clamped_total",
        )

    @extend_schema_field(ClampedOffsetData(many=True))
    def get_groups_clamped(self, report: StopReport) -> Any:
        """List what this stop did to groups."""
        found: stopreports.Clamped | None = self.context["clamped"].get(report.pk)
        return ClampedOffsetData(found.rows if found else (), many=True).data

    def get_groups_clamped_total(self, report: StopReport) -> int:
        """Count what is listed and what is not."""
        found: stopreports.Clamped | None = self.context["clamped"].get(report.pk)
        return found.total if found else 0


class StopTotals(serializers.Serializer[Any]):
    """The newest stop of each mirror, added up."""

    mirrors = serializers.IntegerField()
    records_not_copied = OffsetField(allow_null=True)
    worst_rpo_ms = OffsetField(allow_null=True)
    worst_rto_ms = OffsetField(allow_null=True)


class StopReportDataList(serializers.Serializer[Any]):
    """Promotions and failovers, the newest first."""

    totals = StopTotals()
    data: Any = StopReportData(many=True)


class MirrorStopReportListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/stop-reports"""

    @operation(
        "listMirrorStopReports",
        summary="List what the stops of a mirror cost",
        parameters=[LIMIT],
        answers={200: StopReportDataList},
        tag=OURS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """List promotions and failovers with records left behind, RPO and RTO."""
        reports = stopreports.list_reports(mirror=self.mirror(request, path), limit=limit_of(request))
        return _answer(reports, stopreports.total_of(reports))  # its newest is among them


class LinkStopReportListView(RestView):
    """…/links/{link_name}/stop-reports"""

    @operation(
        "listLinkStopReports",
        summary="List what the stops of a link's mirrors cost",
        parameters=[LIMIT],
        answers={200: StopReportDataList},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List promotions and failovers of the mirrors one may see; the totals are of all of them, listed or not."""
        by = actor_of(request)
        link = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        reports = list(stopreports.link_reports(link=link, by=by)[: limit_of(request)])
        return _answer(reports, stopreports.link_totals(link=link, by=by))


def _answer(reports: list[StopReport], totals: stopreports.StopTotals) -> Response:
    context = {"clamped": stopreports.clamped_of(reports)}
    return Response({"totals": asdict(totals), "data": StopReportData(reports, many=True, context=context).data})

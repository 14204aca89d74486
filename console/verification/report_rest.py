"""Failover reports, below /api/v1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, OffsetField, operation
from console.api.views import RestView, actor_of
from console.links import queries as link_queries
from console.links.v1_rest import ClampedOffsetData
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import StopReport
from console.verification import queries as verification_queries

# --- failover reports -------------------------------------------------------------------------------------------------
#
# Records not copied, RPO and RTO of promotions and failovers.


class PartitionAtStop(serializers.Serializer[Any]):
    """A partition at the time of the fence."""

    partition = serializers.IntegerField()
    mirrored_end = OffsetField(allow_null=True, help_text="The offset after the last mirrored record.")
    source_end = OffsetField(
        allow_null=True,
        help_text="Failover: the source's high watermark, as last read. Promotion: its log end offset after the fence.",
    )
    stable_end = OffsetField(
        allow_null=True,
        help_text="Failover: the source's last stable offset, as last read; an open transaction was beyond it.",
    )
    source_seen_at_ms = OffsetField(allow_null=True)
    caught_up_at_ms = OffsetField(allow_null=True, help_text="The mirror has all records that the source had at this time.")
    last_timestamp_ms = OffsetField(allow_null=True)
    outdated = serializers.BooleanField(default=False, help_text="True if the source was last read too long before the stop.")
    not_copied = OffsetField(allow_null=True, help_text="Null if the source's end at the time of the stop is unknown.")
    missing_when_seen = OffsetField(
        default=None, allow_null=True, help_text="Offsets that were missing when the source was last read: a lower bound."
    )


class RefusedStepData(serializers.Serializer[Any]):
    """A config that the destination refused after the topic was made writable."""

    name = serializers.CharField(help_text="A topic config, or fillers for the empty records at the head.")
    value = serializers.CharField(allow_null=True, help_text="The value to set; null for the cluster's default.")
    code = serializers.CharField()
    message = serializers.CharField(help_text="Why the destination refused it.")
    resolved_at = serializers.DateTimeField(
        allow_null=True, help_text="When a retry succeeded or found the config changed; null if open."
    )


class ChecklistItem(serializers.Serializer[Any]):
    """A sentence of the checklist for clients."""

    text = serializers.CharField()
    confirmed = serializers.BooleanField()


class StopReportData(serializers.ModelSerializer[StopReport]):
    """The failover report of a promotion or failover. Unknown is null, never 0."""

    mirror_topic_name = serializers.CharField(source="mirror_name")
    operation_id = serializers.IntegerField(
        source="operation_number", allow_null=True, help_text="The operation on several topics that requested the stop."
    )
    request_reason = serializers.CharField(allow_blank=True, help_text="The reason that the user entered; empty if none.")
    approved_by = serializers.CharField(allow_blank=True, help_text="The second approver; empty if none was needed.")
    checklist = ChecklistItem(many=True, help_text="The checklist for clients as the user left it; empty if there was none.")
    records_not_copied = OffsetField(
        allow_null=True,
        help_text="Offsets that the source had and the mirror does not have. After an open transaction some of them may be "
        "markers or aborted records. Null if the source was not read within 15 s before the stop was requested.",
    )
    rpo_ms = OffsetField(
        allow_null=True, help_text="Upper bound: the mirror has all records that the source had this long before the stop."
    )
    rto_ms = OffsetField(help_text="Time from the request until producers could write.")
    partitions = PartitionAtStop(many=True)
    refused = RefusedStepData(many=True, help_text="Configs that the destination refused after the topic was made writable.")
    groups_clamped = serializers.SerializerMethodField(
        help_text="Offsets of consumer groups that were beyond the mirror's end and were clamped to it: the first "
        f"{verification_queries.CLAMPED_SHOWN}. All are under …/clamped-offsets of the mirror."
    )
    groups_clamped_total = serializers.SerializerMethodField(help_text="Number of offsets that this stop clamped.")

    class Meta:
        model = StopReport
        fields = (
            "id",
            "mirror_topic_name",
            "link_name",
            "reason",
            "requested_by",
            "requested_at",
            "operation_id",
            "request_reason",
            "checklist",
            "approved_by",
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
        """Return the offsets of consumer groups that this stop clamped."""
        found: verification_queries.Clamped | None = self.context["clamped"].get(report.pk)
        return ClampedOffsetData(found.rows if found else (), many=True).data

    def get_groups_clamped_total(self, report: StopReport) -> int:
        """Return the number of offsets that this stop clamped."""
        found: verification_queries.Clamped | None = self.context["clamped"].get(report.pk)
        return found.total if found else 0


class StopTotals(serializers.Serializer[Any]):
    """Totals of the newest stop of each mirror."""

    mirrors = serializers.IntegerField()
    records_not_copied = OffsetField(allow_null=True)
    worst_rpo_ms = OffsetField(allow_null=True)
    worst_rto_ms = OffsetField(allow_null=True)


class StopReportDataList(serializers.Serializer[Any]):
    """Failover reports of promotions and failovers, newest first."""

    totals = StopTotals()
    data: Any = StopReportData(many=True)


class MirrorStopReportListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/stop-reports"""

    @operation(
        "listMirrorStopReports",
        summary="List a mirror's failover reports",
        parameters=[LIMIT],
        responses={200: StopReportDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the failover reports of a mirror."""
        reports = verification_queries.list_reports(mirror=self.mirror(request, path), limit=limit_of(request))
        return _response(
            reports, verification_queries.total_of(reports)
        )  # the totals need only the newest, which is in the list


class LinkStopReportListView(RestView):
    """…/links/{link_name}/stop-reports"""

    @operation(
        "listLinkStopReports",
        summary="List the failover reports of a link's mirrors",
        parameters=[LIMIT],
        responses={200: StopReportDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the reports of the mirrors that the actor may see; the totals include reports beyond the limit."""
        by = actor_of(request)
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        reports = list(verification_queries.link_reports(link=link, by=by)[: limit_of(request)])
        return _response(reports, verification_queries.link_totals(link=link, by=by))


def _response(reports: list[StopReport], totals: verification_queries.StopTotals) -> Response:
    context = {"clamped": verification_queries.clamped_of(reports)}
    return Response({"totals": asdict(totals), "data": StopReportData(reports, many=True, context=context).data})

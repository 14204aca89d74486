"""Failover drills and failover reports, below /api/v1."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, OffsetField, TextField, list_of, operation
from console.api.views import actor_of, body, request_time
from console.errors import NotFoundError
from console.links.v1_rest import ClampedOffsetData, LinkPartView
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import ClusterLink, Drill, StopReport
from console.verification import queries as verification_queries
from console.verification.drill_actions import cancel_drill, start_drill
from linkengine.domain.failover import BATCH, CLAMPED_LISTED
from linkengine.domain.linkrules import LATEST

# --- failover drills --------------------------------------------------------------------------------------------------


class StartDrillRequest(serializers.Serializer[Any]):
    """The mirror topics of a drill."""

    mirror_topic_names = serializers.ListField(
        child=TextField(), required=False, help_text="Default: all active mirror topics."
    )
    start = TextField(
        required=False,
        help_text="Where the scratch copies start, as in mirror.start.offset.spec: latest (the default), earliest or a time.",
    )


class DrillRowData(serializers.Serializer[Any]):
    """The result for a topic. Unknown is null, never 0."""

    mirror_topic_name = serializers.CharField()
    scratch_topic_name = serializers.CharField()
    rto_ms = OffsetField(allow_null=True)
    rpo_ms = OffsetField(allow_null=True)
    records_not_copied = OffsetField(allow_null=True)
    records_compared = OffsetField(allow_null=True)
    differences = OffsetField(allow_null=True)
    writable = serializers.BooleanField(help_text="A record was written to every partition and read back.")
    problem = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True, default="", help_text="For example that the source was empty.")


class ClampedDrillOffsetData(serializers.Serializer[Any]):
    """A committed offset that a failover would clamp."""

    partition = serializers.IntegerField()
    source_offset = OffsetField()
    offset_after = OffsetField()


class DrillGroupData(serializers.Serializer[Any]):
    """A consumer group's offsets on a topic after a failover. In partitions that are not clamped they equal the source's."""

    group = serializers.CharField(help_text="The group's name on the destination.")
    mirror_topic_name = serializers.CharField()
    partitions = serializers.IntegerField(help_text="Number of partitions in which the group has an offset.")
    clamped = serializers.IntegerField(
        help_text="Number of partitions in which the group had read beyond the scratch copy's end."
    )
    offsets_set_back = OffsetField(help_text="Sum over the clamped partitions.")
    unknown = serializers.IntegerField(help_text="Number of partitions whose end is unknown.")
    clamped_offsets = ClampedDrillOffsetData(many=True, help_text=f"The first {CLAMPED_LISTED}.")


class DrillData(serializers.ModelSerializer[Drill]):
    """A failover drill on scratch copies; the mirrors are not touched."""

    start = serializers.CharField(source="start_spec")
    rto_ms = OffsetField(
        allow_null=True, help_text="Time from the failover until the last scratch copy was writable, in the slowest batch."
    )
    topics = serializers.ListField(child=serializers.CharField(), help_text="All topics of the drill; they run in batches.")
    report = DrillRowData(many=True, help_text="The results of the topics that are finished.")
    groups = DrillGroupData(many=True, help_text="Consumer groups on these topics; empty if the link does not sync offsets.")

    class Meta:
        model = Drill
        fields = (
            "id",
            "status",
            "start",
            "requested_by",
            "requested_at",
            "failover_at",
            "finished_at",
            "rto_ms",
            "canceled_by",
            "problem",
            "topics",
            "report",
            "groups",
        )


DrillDataList = list_of(DrillData, "The link's failover drills, newest first.")


class DrillListView(LinkPartView):
    """…/links/{link_name}/drills"""

    @operation("listDrills", summary="List failover drills", parameters=[LIMIT], responses={200: DrillDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the drills of a link."""
        drills = self.whole_link(request, path).drills.all()[: limit_of(request)]
        return Response({"data": DrillData(drills, many=True).data})

    @operation(
        "startDrill",
        summary="Start a failover drill",
        description=f"Copies the topics to scratch topics, {BATCH} at a time, fails these over, compares them with the source, "
        "writes to them and deletes them. The report contains RPO, RTO and the offsets that consumer groups would have. The "
        "mirrors are not touched and continue to copy.",
        body=StartDrillRequest,
        responses={202: DrillData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a drill."""
        wanted = body(request, StartDrillRequest)
        drill = start_drill(
            link=self.whole_link(request, path),
            names=wanted.get("mirror_topic_names", ()),
            start_spec=wanted.get("start", LATEST),
            by=actor_of(request),
            now=request_time(),
        )
        location = request.build_absolute_uri(f"{request.path}/{drill.pk}")
        return Response(DrillData(drill).data, status=202, headers={"Location": location})


class DrillView(LinkPartView):
    """…/links/{link_name}/drills/{drill_id}"""

    @operation("getDrill", summary="Get a failover drill", responses={200: DrillData}, tag=ADDITIONS)
    def get(self, request: Request, drill_id: int, **path: str) -> Response:
        """Return a drill of this link."""
        return Response(DrillData(_drill(self.whole_link(request, path), drill_id)).data)


class CancelDrillView(LinkPartView):
    """…/links/{link_name}/drills/{drill_id}/cancel"""

    @operation(
        "cancelDrill",
        summary="Cancel a failover drill",
        description="No further topics are copied, and the scratch copies are deleted. The drill ends CANCELED.",
        responses={202: DrillData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, drill_id: int, **path: str) -> Response:
        """Cancel a drill that is in progress."""
        drill = _drill(self.whole_link(request, path), drill_id)
        cancel_drill(drill=drill, by=actor_of(request), now=request_time())
        drill.refresh_from_db()
        return Response(DrillData(drill).data, status=202)


def _drill(link: ClusterLink, drill_id: int) -> Drill:
    drill = link.drills.select_related("link__destination__environment").filter(pk=drill_id).first()
    if drill is None:
        raise NotFoundError(f"Drill {drill_id} does not exist. Check the number.", code="UNKNOWN_DRILL")
    return drill


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


class LinkStopReportListView(LinkPartView):
    """…/links/{link_name}/stop-reports"""

    @operation(
        "listLinkStopReports",
        summary="List the failover reports of a link's mirrors",
        parameters=[LIMIT],
        responses={200: StopReportDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the reports of the mirrors that the actor may see; the totals include reports beyond the limit."""
        by, link = actor_of(request), self.link(request, path)
        reports = list(verification_queries.link_reports(link=link, by=by)[: limit_of(request)])
        return _response(reports, verification_queries.link_totals(link=link, by=by))


def _response(reports: list[StopReport], totals: verification_queries.StopTotals) -> Response:
    context = {"clamped": verification_queries.clamped_of(reports)}
    return Response({"totals": asdict(totals), "data": StopReportData(reports, many=True, context=context).data})

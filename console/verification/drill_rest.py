"""Failover drills, below /api/v1."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, OffsetField, TextField, operation
from console.api.views import RestView, actor_of, body, moment
from console.errors import NotFoundError
from console.links import queries as link_queries
from console.mirrors.v1_rest import LIMIT, limit_of
from console.models import ClusterLink, Drill
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


class DrillDataList(serializers.Serializer[Any]):
    """The link's failover drills, newest first."""

    data: Any = DrillData(many=True)


class DrillListView(RestView):
    """…/links/{link_name}/drills"""

    @operation("listDrills", summary="List failover drills", parameters=[LIMIT], responses={200: DrillDataList}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the drills of a link."""
        drills = _link(request, cluster_id, link_name).drills.all()[: limit_of(request)]
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
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Start a drill."""
        wanted = body(request, StartDrillRequest)
        drill = start_drill(
            link=_link(request, cluster_id, link_name),
            names=wanted.get("mirror_topic_names", ()),
            start_spec=wanted.get("start", LATEST),
            by=actor_of(request),
            now=moment(),
        )
        location = request.build_absolute_uri(f"{request.path}/{drill.pk}")
        return Response(DrillData(drill).data, status=202, headers={"Location": location})


class DrillView(RestView):
    """…/links/{link_name}/drills/{drill_id}"""

    @operation("getDrill", summary="Get a failover drill", responses={200: DrillData}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str, drill_id: int) -> Response:
        """Return a drill of this link."""
        return Response(DrillData(_drill(request, cluster_id, link_name, drill_id)).data)


class CancelDrillView(RestView):
    """…/links/{link_name}/drills/{drill_id}/cancel"""

    @operation(
        "cancelDrill",
        summary="Cancel a failover drill",
        description="No further topics are copied, and the scratch copies are deleted. The drill ends CANCELED.",
        responses={202: DrillData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str, drill_id: int) -> Response:
        """Cancel a drill that is in progress."""
        drill = _drill(request, cluster_id, link_name, drill_id)
        cancel_drill(drill=drill, by=actor_of(request), now=moment())
        drill.refresh_from_db()
        return Response(DrillData(drill).data, status=202)


def _drill(request: Request, cluster_id: str, link_name: str, drill_id: int) -> Drill:
    drills = _link(request, cluster_id, link_name).drills.select_related("link__destination__environment")
    drill = drills.filter(pk=drill_id).first()
    if drill is None:
        raise NotFoundError(f"Drill {drill_id} does not exist. Check the number.", code="UNKNOWN_DRILL")
    return drill


def _link(request: Request, cluster_id: str, link_name: str) -> ClusterLink:
    return link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))

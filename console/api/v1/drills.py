"""Rehearsals of a link's failover: list them, look at one, begin one."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.drills import start_drill
from console.api.fields import OffsetField, TextField
from console.api.schema import OURS, operation
from console.api.v1.views import LIMIT, limit_of
from console.api.views import RestView, actor_of, body, moment
from console.errors import NotFoundError
from console.models import ClusterLink, Drill
from console.queries import links
from linkengine.domain.drills import BATCH, CLAMPED_LISTED
from linkengine.domain.startspec import LATEST


class StartDrillRequest(serializers.Serializer[Any]):
    """What to rehearse."""

    mirror_topic_names = serializers.ListField(child=TextField(), required=False, help_text="All active ones if left out.")
    start = TextField(
        required=False,
        help_text="How much the scratch copies hold, as mirror.start.offset.spec: latest (the default), earliest or a moment.",
    )


class DrillRowData(serializers.Serializer[Any]):
    """What one scratch copy went through. Unknown is null, never 0."""

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
    """An offset that a failover would set back."""

    partition = serializers.IntegerField()
    source_offset = OffsetField()
    offset_after = OffsetField()


class DrillGroupData(serializers.Serializer[Any]):
    """Where a failover would leave a consumer group on a topic; partitions that are not clamped keep the source's offset."""

    group = serializers.CharField(help_text="Its name at the destination.")
    mirror_topic_name = serializers.CharField()
    partitions = serializers.IntegerField(help_text="In which the group has an offset.")
    clamped = serializers.IntegerField(help_text="In which it had read further than the scratch copy reached.")
    offsets_set_back = OffsetField(help_text="In all of these together.")
    unknown = serializers.IntegerField(help_text="Whose end nobody knows.")
    clamped_offsets = ClampedDrillOffsetData(many=True, help_text=f"The first {CLAMPED_LISTED}.")


class DrillData(serializers.ModelSerializer[Drill]):
    """A rehearsed failover on scratch copies; the mirrors themselves are not touched."""

    start = serializers.CharField(source="start_spec")
    rto_ms = OffsetField(
        allow_null=True, help_text="From the failover until the last scratch copy was writable; slowest batch."
    )
    topics = serializers.ListField(child=serializers.CharField(), help_text="All that are rehearsed, some at a time.")
    report = DrillRowData(many=True, help_text="Of the topics that have had their turn.")
    groups = DrillGroupData(many=True, help_text="Groups that follow on these topics; none where the link carries none over.")

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
            "problem",
            "topics",
            "report",
            "groups",
        )


class DrillDataList(serializers.Serializer[Any]):
    """The link's drills, the newest first."""

    data: Any = DrillData(many=True)


class DrillListView(RestView):
    """…/links/{link_name}/drills"""

    @operation("listDrills", summary="List failover drills", parameters=[LIMIT], answers={200: DrillDataList}, tag=OURS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List the drills of a link."""
        drills = _link(request, cluster_id, link_name).drills.all()[: limit_of(request)]
        return Response({"data": DrillData(drills, many=True).data})

    @operation(
        "startDrill",
        summary="Rehearse a failover",
        description="Copies the topics once more under other names, fails those copies over, compares and writes to them, "
        f"reports, and deletes them, {BATCH} topics at a time. It also tells where consumer groups would stand. "
        "The mirrors themselves go on undisturbed.",
        body=StartDrillRequest,
        answers={202: DrillData},
        tag=OURS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Begin a drill."""
        wanted = body(request, StartDrillRequest)
        drill = start_drill(
            link=_link(request, cluster_id, link_name),
            names=wanted.get("mirror_topic_names", ()),
            start_spec=wanted.get("start", LATEST),
            by=actor_of(request),
            now=moment(),
        )
        place = request.build_absolute_uri(f"{request.path}/{drill.pk}")
        return Response(DrillData(drill).data, status=202, headers={"Location": place})


class DrillView(RestView):
    """…/links/{link_name}/drills/{drill_id}"""

    @operation("getDrill", summary="Get a failover drill", answers={200: DrillData}, tag=OURS)
    def get(self, request: Request, cluster_id: str, link_name: str, drill_id: int) -> Response:
        """Show a drill of this link."""
        drill = _link(request, cluster_id, link_name).drills.filter(pk=drill_id).first()
        if drill is None:
            raise NotFoundError(f"Drill {drill_id} does not exist.", code="UNKNOWN_DRILL")
        return Response(DrillData(drill).data)


def _link(request: Request, cluster_id: str, link_name: str) -> ClusterLink:
    return links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))

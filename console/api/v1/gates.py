"""The migration gate of a mirror topic: list runs, start a run, override the gate."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.gates import override_gate, start_gate
from console.api.schema import ADDITIONS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import actor_of, body, moment
from console.models import GateRun
from linkengine.domain.gates import GateCheckName, GateCheckState


class GateCheckData(serializers.Serializer[Any]):
    """A check of the checklist."""

    name = serializers.ChoiceField(choices=[name.value for name in GateCheckName])
    state = serializers.ChoiceField(choices=[state.value for state in GateCheckState])
    detail = serializers.CharField()


class GateRunData(serializers.ModelSerializer[GateRun]):
    """A run of the migration gate. OVERRIDDEN: a user opened the gate without a green run, for the given reason."""

    checks = GateCheckData(many=True)

    class Meta:
        model = GateRun
        fields = ("id", "status", "requested_by", "requested_at", "finished_at", "reason", "checks")


class GateRunDataList(serializers.Serializer[Any]):
    """The mirror's gate runs, newest first."""

    data: Any = GateRunData(many=True)


class GateOverrideRequest(serializers.Serializer[Any]):
    """The reason for opening the gate without a green run."""

    reason = serializers.CharField()


class GateRunListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gate-runs"""

    @operation("listGateRuns", summary="List gate runs", parameters=[LIMIT], responses={200: GateRunDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the gate runs of a mirror."""
        runs = self.mirror(request, path).gate_runs.all()[: limit_of(request)]
        return Response({"data": GateRunData(runs, many=True).data})

    @operation(
        "startGateRun",
        summary="Run the migration gate",
        description="Compares every record, then checks lag, configs, consumer groups, ACLs and the records that a consumer "
        "reads. If a run is in progress, it is returned and no second run is started.",
        responses={202: GateRunData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a gate run."""
        run = start_gate(mirror=self.mirror(request, path), by=actor_of(request), now=moment())
        return Response(GateRunData(run).data, status=202)


class GateOverrideView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gate-overrides"""

    @operation(
        "overrideGate",
        summary="Override the migration gate",
        body=GateOverrideRequest,
        responses={201: GateRunData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Open the gate without a green run; the user and the reason are stored."""
        reason = body(request, GateOverrideRequest)["reason"]
        run = override_gate(mirror=self.mirror(request, path), reason=reason, by=actor_of(request), now=moment())
        return Response(GateRunData(run).data, status=201)

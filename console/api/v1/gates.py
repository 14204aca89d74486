"""The migration gate of a mirror topic: its runs, a new one, and an override."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.gates import override_gate, start_gate
from console.api.schema import OURS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import actor_of, body, moment
from console.models import GateRun
from linkengine.domain.gates import GateCheckName, GateCheckState


class GateCheckData(serializers.Serializer[Any]):
    """One line of the checklist."""

    name = serializers.ChoiceField(choices=[one.value for one in GateCheckName])
    state = serializers.ChoiceField(choices=[one.value for one in GateCheckState])
    detail = serializers.CharField()


class GateRunData(serializers.ModelSerializer[GateRun]):
    """One run of the gate. OVERRIDDEN: a person decided to do without, for the reason given."""

    checks = GateCheckData(many=True)

    class Meta:
        model = GateRun
        fields = ("id", "status", "requested_by", "requested_at", "finished_at", "reason", "checks")


class GateRunDataList(serializers.Serializer[Any]):
    """The mirror's gate runs, the newest first."""

    data: Any = GateRunData(many=True)


class GateOverrideRequest(serializers.Serializer[Any]):
    """Why the gate shall be open although it is not green."""

    reason = serializers.CharField()


class GateRunListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gate-runs"""

    @operation("listGateRuns", summary="List gate runs", parameters=[LIMIT], answers={200: GateRunDataList}, tag=OURS)
    def get(self, request: Request, **path: str) -> Response:
        """List the runs of a mirror."""
        runs = self.mirror(request, path).gate_runs.all()[: limit_of(request)]
        return Response({"data": GateRunData(runs, many=True).data})

    @operation(
        "startGateRun",
        summary="Check whether a mirror may be promoted",
        description="Compares every record, then lag, configs, groups, ACLs and what a consumer reads. A run that is under way "
        "is answered instead of a second one.",
        answers={202: GateRunData},
        tag=OURS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a run."""
        run = start_gate(mirror=self.mirror(request, path), by=actor_of(request), now=moment())
        return Response(GateRunData(run).data, status=202)


class GateOverrideView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gate-overrides"""

    @operation(
        "overrideGate",
        summary="Open the gate of a mirror for a reason",
        body=GateOverrideRequest,
        answers={201: GateRunData},
        tag=OURS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Open the gate without a green run; who did so and why is kept."""
        reason = body(request, GateOverrideRequest)["reason"]
        run = override_gate(mirror=self.mirror(request, path), reason=reason, by=actor_of(request), now=moment())
        return Response(GateRunData(run).data, status=201)

"""Verification runs, verified ranges and migration gates, below /api/v1."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import v1_schemas
from console.api.schema import ADDITIONS, operation
from console.api.views import actor_of, body, moment
from console.errors import NotFoundError
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import GateRun, VerifyRun, VerifyWatch
from console.verification import queries as verification_queries
from console.verification.actions import override_gate, start_gate, start_verify
from linkengine.domain.gates import GateCheckName, GateCheckState

# --- migration gates --------------------------------------------------------------------------------------------------


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


class VerifyRunListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verify-runs"""

    @operation(
        "listVerifyRuns",
        summary="List verification runs",
        parameters=[LIMIT],
        responses={200: v1_schemas.VerifyRunDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verification runs of a mirror."""
        mirror = self.mirror(request, path)
        runs = verification_queries.list_runs(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": v1_schemas.VerifyRunData(runs, many=True, context=context).data})

    @operation(
        "startVerifyRun",
        summary="Start a verification run",
        description="Compares every record of the mirror with its source. If a run is in progress, it is returned and no "
        "second run is started.",
        responses={202: v1_schemas.VerifyRunData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a verification run."""
        run = start_verify(mirror=self.mirror(request, path), by=actor_of(request), now=moment())
        location = request.build_absolute_uri(f"{request.path}/{run.pk}")
        return Response(v1_schemas.VerifyRunData(run).data, status=202, headers={"Location": location})


class VerifyRunView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verify-runs/{run_id}"""

    @operation("getVerifyRun", summary="Get a verification run", responses={200: v1_schemas.VerifyRunData}, tag=ADDITIONS)
    def get(self, request: Request, run_id: int, **path: str) -> Response:
        """Return a verification run of this mirror."""
        mirror = self.mirror(request, path)
        run: VerifyRun = verification_queries.get_run(run_id=run_id, by=actor_of(request))
        if run.mirror_id != mirror.pk:
            raise NotFoundError(
                f"Verification run {run_id} does not exist. Check the number; runs are kept for 30 days.",
                code="UNKNOWN_VERIFY_RUN",
            )
        return Response(v1_schemas.VerifyRunData(run, context=self.reads_records(request, mirror)).data)


class VerificationView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verification"""

    @operation(
        "getVerification",
        summary="Get how much of a mirror is verified",
        responses={200: v1_schemas.VerificationData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return how much of each partition is verified."""
        mirror = self.mirror(request, path)
        watch = VerifyWatch.objects.filter(mirror=mirror).first() or VerifyWatch()
        names = ("next_at", "finished_at", "duration_ms", "error_message")
        continuous = {name: getattr(watch, name) for name in names}
        continuous["enabled"] = verification_queries.is_continuous(link=mirror.link)
        missing = verification_queries.missing_as_reported(mirror=mirror).items()
        seen = {
            "continuous": continuous,
            "missing_beginnings": [{"partition": n, "start": offsets.start, "end": offsets.end} for n, offsets in missing],
            "data": verification_queries.coverage(mirror=mirror),
        }
        return Response(v1_schemas.VerificationData(seen).data)


class VerifiedRangeListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verified-ranges"""

    @operation(
        "listVerifiedRanges",
        summary="List verified ranges",
        parameters=[LIMIT],
        responses={200: v1_schemas.VerifiedRangeDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verified ranges of a mirror."""
        mirror = self.mirror(request, path)
        rows = verification_queries.list_ranges(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": v1_schemas.VerifiedRangeData(rows, many=True, context=context).data})

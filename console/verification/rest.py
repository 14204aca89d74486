"""Verification runs, verified ranges, migration gates and the comparison of single records, below /api/v1."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import v1_schemas
from console.api.errors import UnreadableError
from console.api.schema import ADDITIONS, OffsetField, list_of, operation
from console.api.views import actor_of, body, request_time
from console.errors import NotFoundError
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import GateRun, VerifyRun, VerifyWatch
from console.verification import queries as verification_queries
from console.verification.actions import MAX_OFFSET, compare_record, override_gate, start_gate, start_verify
from linkengine.domain.gates import GateCheckName, GateCheckState
from linkengine.domain.record_views import Presence, RecordVerdict
from linkengine.domain.states import GapReason

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


GateRunDataList = list_of(GateRunData, "The mirror's gate runs, newest first.")


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
        run = start_gate(mirror=self.mirror(request, path), by=actor_of(request), now=request_time())
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
        run = override_gate(mirror=self.mirror(request, path), reason=reason, by=actor_of(request), now=request_time())
        return Response(GateRunData(run).data, status=201)


# --- verification runs and verified ranges ----------------------------------------------------------------------------


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
        run = start_verify(mirror=self.mirror(request, path), by=actor_of(request), now=request_time())
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


# --- comparison of a record -------------------------------------------------------------------------------------------
#
# For users with the permission to read records.


_PARTITION = OpenApiParameter("partition", int, required=True, description="The number of the partition.")
_OFFSET = OpenApiParameter("offset", int, description="The offset. Give either this or timestamp_ms.")
_RECORD_TIMESTAMP = OpenApiParameter(
    "timestamp_ms",
    int,
    description="Instead of an offset: the mirror's first record that is not older, in milliseconds since 1970 (UTC).",
)
Text, Number, Flag = serializers.CharField, serializers.IntegerField, serializers.BooleanField


class FieldData(serializers.Serializer[Any]):
    """A key or a value; null instead if it is null."""

    size = OffsetField(help_text="Bytes of the whole field.")
    base64 = Text(allow_blank=True, help_text="The field, or its first bytes.")
    is_cut = Flag(help_text="Whether base64 has only the first bytes. The comparison includes all of them.")


class HeaderData(serializers.Serializer[Any]):
    """A header of a record."""

    name = Text(allow_blank=True, help_text="Bytes that are not UTF-8 are escaped, and a long name is cut.")
    value = FieldData(allow_null=True)


class RecordData(serializers.Serializer[Any]):
    """A record."""

    key = FieldData(allow_null=True)
    value = FieldData(allow_null=True)
    headers = HeaderData(many=True, help_text="The first 32 headers.")
    header_count = Number()
    timestamp_ms = OffsetField(help_text="-1 if the record's format has none.")
    timestamp_type = Text(help_text="CreateTime, LogAppendTime or none.")
    size = OffsetField(help_text="Bytes of key, value and headers.")


class BatchData(serializers.Serializer[Any]):
    """The batch that covers the offset, as it is stored."""

    base_offset = OffsetField()
    next_offset = OffsetField(help_text="The offset after the batch.")
    record_count = Number()
    size = OffsetField(help_text="Bytes in the log.")
    compression = Text(help_text="none, gzip, snappy, lz4 or zstd.")
    leader_epoch = Number(allow_null=True)
    is_transactional = Flag()


class RecordSideData(serializers.Serializer[Any]):
    """The record of a side at the offset, or why it has none. Unknown is null."""

    presence = serializers.ChoiceField(choices=list(Presence), help_text="UNREADABLE: unknown, see code and message.")
    marker = Text(allow_blank=True, help_text="Type of a transaction marker.")
    record = RecordData(allow_null=True)
    batch = BatchData(allow_null=True)
    log_start_offset = OffsetField(allow_null=True)
    last_stable_offset = OffsetField(allow_null=True)
    log_end_offset = OffsetField(allow_null=True)
    code = Text(allow_blank=True)
    message = Text(allow_blank=True)


class RecordComparisonData(serializers.Serializer[Any]):
    """Both sides at an offset."""

    partition = Number()
    offset = OffsetField()
    verdict = serializers.ChoiceField(choices=list(RecordVerdict))
    text = Text(help_text="The verdict in words.")
    filler_reason = serializers.ChoiceField(
        choices=list(GapReason), allow_null=True, help_text="Why the mirror has a filler. Null if it has none, or if unknown."
    )
    differing = serializers.ListField(child=Text(), help_text="The parts that differ: key, value, headers, timestamp.")
    next_offset = OffsetField(allow_null=True, help_text="The next offset at which either side may have a record.")
    source = RecordSideData()  # type: ignore[assignment]  # a field of that name
    mirror = RecordSideData()


class RecordComparisonView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/records"""

    @operation(
        "compareRecord",
        summary="Compare the record at an offset with the source's",
        description="Reads the offset on both clusters. Needs the permission to read records (role DeveloperManage). Each "
        "request is recorded in the audit log, without record contents.",
        parameters=[_PARTITION, _OFFSET, _RECORD_TIMESTAMP],
        responses={200: RecordComparisonData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return both sides at an offset."""
        partition = _number(request, "partition")
        if partition is None:
            raise UnreadableError("The query parameter partition is missing.")
        found = compare_record(
            mirror=self.mirror(request, path),
            partition=partition,
            offset=_number(request, "offset"),
            timestamp_ms=_number(request, "timestamp_ms"),
            by=actor_of(request),
            now=request_time(),
        )
        names = ("partition", "offset", "differing", "next_offset", "source", "mirror")
        shown = {name: getattr(found, name) for name in names}
        judgement = found.judgement
        shown |= {"verdict": judgement.verdict, "text": judgement.text, "filler_reason": judgement.reason}
        return Response(RecordComparisonData(shown).data)


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or int(text) > MAX_OFFSET:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it must be a whole number.")
    return int(text)

"""Views of /api/v1: verification runs, gaps, transitions and partitions of a mirror, rates of a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Sum
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, can
from console.actions.verification import start_verify
from console.api.errors import UnreadableError
from console.api.kafka.words import mirror_status
from console.api.schema import ADDITIONS, operation
from console.api.v1 import answers
from console.api.views import RestView, actor_of, moment
from console.errors import NotFoundError
from console.models import MirrorTopic, VerifyRun, VerifyWatch
from console.queries import links, mirrors, verification

MAX_ROWS = 1000
LIMIT = OpenApiParameter("limit", int, description=f"Maximum number of rows, 1 to {MAX_ROWS}.", default=100)


class MirrorPartView(RestView):
    """Base of views of resources that belong to a mirror."""

    def mirror(self, request: Request, path: Mapping[str, str]) -> MirrorTopic:
        """Return the mirror that the path names; raise NotFoundError if it does not exist or is not visible."""
        return mirrors.get_mirror(
            cluster_id=path["cluster_id"],
            link_name=path["link_name"],
            mirror_name=path["mirror_topic_name"],
            by=actor_of(request),
        )

    def reads_records(self, request: Request, mirror: MirrorTopic) -> dict[str, bool]:
        """Return the serializer context for differences: whether the actor may read records."""
        return {"reads_records": can(actor_of(request), Permission.READ_RECORDS, mirror=mirror)}


class VerifyRunListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verify-runs"""

    @operation(
        "listVerifyRuns",
        summary="List verification runs",
        parameters=[LIMIT],
        responses={200: answers.VerifyRunDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verification runs of a mirror."""
        mirror = self.mirror(request, path)
        runs = verification.list_runs(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": answers.VerifyRunData(runs, many=True, context=context).data})

    @operation(
        "startVerifyRun",
        summary="Start a verification run",
        description="Compares every record of the mirror with its source. If a run is in progress, it is returned and no "
        "second run is started.",
        responses={202: answers.VerifyRunData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a verification run."""
        run = start_verify(mirror=self.mirror(request, path), by=actor_of(request), now=moment())
        location = request.build_absolute_uri(f"{request.path}/{run.pk}")
        return Response(answers.VerifyRunData(run).data, status=202, headers={"Location": location})


class VerifyRunView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verify-runs/{run_id}"""

    @operation("getVerifyRun", summary="Get a verification run", responses={200: answers.VerifyRunData}, tag=ADDITIONS)
    def get(self, request: Request, run_id: int, **path: str) -> Response:
        """Return a verification run of this mirror."""
        mirror = self.mirror(request, path)
        run: VerifyRun = verification.get_run(run_id=run_id, by=actor_of(request))
        if run.mirror_id != mirror.pk:
            raise NotFoundError(f"Verification run {run_id} does not exist.", code="UNKNOWN_VERIFY_RUN")
        return Response(answers.VerifyRunData(run, context=self.reads_records(request, mirror)).data)


class VerificationView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verification"""

    @operation(
        "getVerification",
        summary="Get how much of a mirror is verified",
        responses={200: answers.VerificationData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return how much of each partition is verified."""
        mirror = self.mirror(request, path)
        watch = VerifyWatch.objects.filter(mirror=mirror).first() or VerifyWatch()
        names = ("next_at", "finished_at", "duration_ms", "error_message")
        continuous = {name: getattr(watch, name) for name in names}
        continuous["enabled"] = verification.is_continuous(link=mirror.link)
        missing = verification.missing_as_reported(mirror=mirror).items()
        seen = {
            "continuous": continuous,
            "missing_beginnings": [{"partition": n, "start": offsets.start, "end": offsets.end} for n, offsets in missing],
            "data": verification.coverage(mirror=mirror),
        }
        return Response(answers.VerificationData(seen).data)


class VerifiedRangeListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verified-ranges"""

    @operation(
        "listVerifiedRanges",
        summary="List verified ranges",
        parameters=[LIMIT],
        responses={200: answers.VerifiedRangeDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verified ranges of a mirror."""
        mirror = self.mirror(request, path)
        rows = verification.list_ranges(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": answers.VerifiedRangeData(rows, many=True, context=context).data})


class GapListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gaps"""

    @operation("listGaps", summary="List gaps", parameters=[LIMIT], responses={200: answers.GapDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the gap ledger of a mirror."""
        mirror = self.mirror(request, path)
        rows = mirrors.list_gaps(mirror=mirror, limit=limit_of(request))
        return Response({"totals": _totals(mirror), "data": answers.GapData(rows, many=True).data})


class TransitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/transitions"""

    @operation(
        "listTransitions",
        summary="List a mirror's transitions",
        parameters=[LIMIT],
        responses={200: answers.TransitionDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the state transitions of a mirror."""
        rows = mirrors.list_transitions(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": answers.TransitionData(rows, many=True).data})


class PartitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/partitions"""

    @operation(
        "listPartitions", summary="List a mirror's partitions", responses={200: answers.MirrorPartitionDataList}, tag=ADDITIONS
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the progress of each partition."""
        rows = self.mirror(request, path).partitions.all()
        return Response({"data": answers.MirrorPartitionData(rows, many=True, context={"now": moment()}).data})


class LinkRatesView(RestView):
    """…/links/{link_name}/rates"""

    @operation("getLinkRates", summary="Get a link's rates and lag", responses={200: answers.LinkRates}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return throughput and lag of a link."""
        by = actor_of(request)
        link = links.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
        summary = links.summarize([link], by=by)[0]
        states: dict[str, int] = {}
        for state, count in summary.mirrors_by_state.items():
            status = mirror_status(state, link_state=link.state)
            states[status] = states.get(status, 0) + count
        figures = {name: getattr(summary, name) for name in ("bytes_per_s", "records_per_s", "lag_bytes", "oldest_lag_ms")}
        figures["max_lag"] = None if summary.unknown_lags else summary.max_lag
        figures["unknown_lag_partitions"] = summary.unknown_lags
        about = {"link_name": link.name, "link_state": link.state, "gap_filler": link.gap_filler}
        return Response({**about, "mirrors": states, **figures})


def limit_of(request: Request) -> int:
    """Return the query parameter ``limit``; raise UnreadableError unless it is a number from 1 to MAX_ROWS."""
    text = request.query_params.get("limit", str(LIMIT.default))
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= MAX_ROWS or len(text) > 9:
        raise UnreadableError(f"Cannot deserialize the query parameter limit: it must be a whole number from 1 to {MAX_ROWS}.")
    return int(text)


def _totals(mirror: MirrorTopic) -> list[dict[str, Any]]:
    rows = mirror.gaps.order_by("reason").values("reason")
    return [dict(row) for row in rows.annotate(ranges=Count("pk"), offsets=Sum("filled"))]

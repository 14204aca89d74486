"""Verification runs, gaps, transitions, partitions, lineage and synced configs of a mirror, below /api/v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Sum
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, can
from console.api import v1_answers
from console.api.errors import UnreadableError
from console.api.kafka_answers import mirror_status
from console.api.schema import ADDITIONS, OffsetField, operation
from console.api.views import RestView, actor_of, moment
from console.errors import NotFoundError
from console.links import queries as link_queries
from console.mirrors import queries as mirror_queries
from console.mirrors.lineage import Origin, lineage_of
from console.mirrors.queries import followed_configs, list_reverts
from console.models import ConfigRevert, MirrorTopic, VerifyRun, VerifyWatch
from console.verification import queries as verification_queries
from console.verification.actions import start_verify

# --- verification runs, gaps, transitions, partitions and rates -------------------------------------------------------


MAX_ROWS = 1000
LIMIT = OpenApiParameter("limit", int, description=f"Maximum number of rows, 1 to {MAX_ROWS}.", default=100)


class MirrorPartView(RestView):
    """Base of views of resources that belong to a mirror."""

    def mirror(self, request: Request, path: Mapping[str, str]) -> MirrorTopic:
        """Return the mirror that the path names; raise NotFoundError if it does not exist or is not visible."""
        return mirror_queries.get_mirror(
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
        responses={200: v1_answers.VerifyRunDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verification runs of a mirror."""
        mirror = self.mirror(request, path)
        runs = verification_queries.list_runs(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": v1_answers.VerifyRunData(runs, many=True, context=context).data})

    @operation(
        "startVerifyRun",
        summary="Start a verification run",
        description="Compares every record of the mirror with its source. If a run is in progress, it is returned and no "
        "second run is started.",
        responses={202: v1_answers.VerifyRunData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Start a verification run."""
        run = start_verify(mirror=self.mirror(request, path), by=actor_of(request), now=moment())
        location = request.build_absolute_uri(f"{request.path}/{run.pk}")
        return Response(v1_answers.VerifyRunData(run).data, status=202, headers={"Location": location})


class VerifyRunView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verify-runs/{run_id}"""

    @operation("getVerifyRun", summary="Get a verification run", responses={200: v1_answers.VerifyRunData}, tag=ADDITIONS)
    def get(self, request: Request, run_id: int, **path: str) -> Response:
        """Return a verification run of this mirror."""
        mirror = self.mirror(request, path)
        run: VerifyRun = verification_queries.get_run(run_id=run_id, by=actor_of(request))
        if run.mirror_id != mirror.pk:
            raise NotFoundError(f"Verification run {run_id} does not exist.", code="UNKNOWN_VERIFY_RUN")
        return Response(v1_answers.VerifyRunData(run, context=self.reads_records(request, mirror)).data)


class VerificationView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verification"""

    @operation(
        "getVerification",
        summary="Get how much of a mirror is verified",
        responses={200: v1_answers.VerificationData},
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
        return Response(v1_answers.VerificationData(seen).data)


class VerifiedRangeListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/verified-ranges"""

    @operation(
        "listVerifiedRanges",
        summary="List verified ranges",
        parameters=[LIMIT],
        responses={200: v1_answers.VerifiedRangeDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the verified ranges of a mirror."""
        mirror = self.mirror(request, path)
        rows = verification_queries.list_ranges(mirror=mirror, limit=limit_of(request))
        context = self.reads_records(request, mirror)
        return Response({"data": v1_answers.VerifiedRangeData(rows, many=True, context=context).data})


class GapListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gaps"""

    @operation("listGaps", summary="List gaps", parameters=[LIMIT], responses={200: v1_answers.GapDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the gap ledger of a mirror."""
        mirror = self.mirror(request, path)
        rows = mirror_queries.list_gaps(mirror=mirror, limit=limit_of(request))
        return Response({"totals": _totals(mirror), "data": v1_answers.GapData(rows, many=True).data})


class TransitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/transitions"""

    @operation(
        "listTransitions",
        summary="List a mirror's transitions",
        parameters=[LIMIT],
        responses={200: v1_answers.TransitionDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the state transitions of a mirror."""
        rows = mirror_queries.list_transitions(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": v1_answers.TransitionData(rows, many=True).data})


class PartitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/partitions"""

    @operation(
        "listPartitions",
        summary="List a mirror's partitions",
        responses={200: v1_answers.MirrorPartitionDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the progress of each partition."""
        rows = self.mirror(request, path).partitions.all()
        return Response({"data": v1_answers.MirrorPartitionData(rows, many=True, context={"now": moment()}).data})


class LinkRatesView(RestView):
    """…/links/{link_name}/rates"""

    @operation("getLinkRates", summary="Get a link's rates and lag", responses={200: v1_answers.LinkRates}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return throughput and lag of a link."""
        by = actor_of(request)
        link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
        summary = link_queries.summarize([link], by=by)[0]
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


# --- lineage ----------------------------------------------------------------------------------------------------------


Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField
Flag = serializers.BooleanField
_HIDDEN = "You may see neither this topic nor its link: the names are empty, and the further chain is omitted."


class UpstreamData(serializers.Serializer[Any]):
    """The topic from which the origin itself copied these offsets."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    cluster_id = Text(allow_blank=True)
    topic = Text(allow_blank=True)
    topic_id = Text(allow_blank=True)
    link_name = Text(allow_blank=True)
    since = Time()
    until = Time(allow_null=True)
    hidden = Flag(help_text=_HIDDEN)
    links_away = Number(help_text="Number of links to the mirror: 2 or more.")


class LineageData(serializers.Serializer[Any]):
    """A range of offsets and the topic from which they were copied."""

    partition = Number()
    start = OffsetField()
    end = OffsetField(help_text="Exclusive. It grows while until is null.")
    cluster_id = Text(allow_blank=True, help_text="The id of the Kafka cluster from which they were copied.")
    topic = Text(allow_blank=True)
    topic_id = Text(allow_blank=True)
    link_name = Text(allow_blank=True)
    since = Time(help_text="When copying over this link started.")
    until = Time(allow_null=True, help_text="When copying ended, because the mirror was stopped.")
    hidden = Flag(help_text=_HIDDEN)
    upstream: Any = UpstreamData(many=True, help_text="The chain of topics before the origin, as far as it is known here.")


class LineageDataList(serializers.Serializer[Any]):
    """The mirror's lineage by partition and offset, including former links of the topic."""

    data: Any = LineageData(many=True)


class LineageListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/lineage"""

    @operation(
        "listLineage", summary="List a mirror's lineage", parameters=[LIMIT], responses={200: LineageDataList}, tag=ADDITIONS
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the mirror's lineage."""
        origins = lineage_of(self.mirror(request, path), by=actor_of(request), limit=limit_of(request))
        return Response(LineageDataList({"data": [_origin(origin) for origin in origins]}).data)


def _origin(origin: Origin) -> dict[str, Any]:
    return {**_fields(origin), "partition": origin.partition, "upstream": list(_chain(origin, away=2))}


def _chain(origin: Origin, *, away: int) -> list[dict[str, Any]]:
    """Return the tree before an origin as a flat list, since many OpenAPI generators do not support recursive types."""
    chain: list[dict[str, Any]] = []
    for upstream in origin.upstream:
        chain += [{**_fields(upstream), "links_away": away}, *_chain(upstream, away=away + 1)]
    return chain


def _fields(origin: Origin) -> dict[str, Any]:
    names = ("start", "end", "cluster_id", "topic", "topic_id", "link_name", "since", "until", "hidden")
    return {name: getattr(origin, name) for name in names}


# --- synced configs ---------------------------------------------------------------------------------------------------


class FollowedConfigData(serializers.Serializer[Any]):
    """A config that is synced from the source."""

    name = Text()
    source_value = Text(help_text="As last read.")
    mirror_value = Text(
        help_text="The mirror topic's value. Mirroring needs some values to differ until the mirror is stopped."
    )
    always = serializers.BooleanField(help_text="False if topic.config.sync.include can exclude the config.")


class ConfigRevertData(serializers.ModelSerializer[ConfigRevert]):
    """A local change of the mirror topic that was reverted."""

    class Meta:
        model = ConfigRevert
        fields = ("name", "found", "restored", "at")


class MirrorConfigs(serializers.Serializer[Any]):
    """The synced configs, and the last local changes that were reverted."""

    data: Any = FollowedConfigData(many=True)
    reverted: Any = ConfigRevertData(many=True)


class MirrorConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/configs"""

    @operation(
        "getMirrorConfigs",
        summary="Get the configs that a mirror syncs from its source",
        responses={200: MirrorConfigs},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the synced configs by name."""
        mirror = self.mirror(request, path)
        reverted = ConfigRevertData(list_reverts(mirror), many=True).data
        return Response({"data": FollowedConfigData(followed_configs(mirror), many=True).data, "reverted": reverted})

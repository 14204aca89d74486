"""Mirror topics and operations on them in the Kafka REST interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from console.actors import Actor
from console.api import kafka_render, kafka_schemas
from console.api.kafka_schemas import MIRROR_STATUSES
from console.api.schema import operation, query_choice, query_flag
from console.api.views import RestView, actor_of, body, choice, flag, request_time
from console.clusters import queries as cluster_queries
from console.errors import BadRequestError
from console.links import queries as link_queries
from console.links.rest import config_map
from console.mirrors import actions as mirror_actions
from console.mirrors import figures, progress
from console.mirrors import queries as mirror_queries
from console.mirrors.bulk_actions import operate_now
from console.mirrors.operation_actions import OperationResult
from console.mirrors.operation_queries import REVERSALS, Preview, cautions_of_many, preview
from console.mirrors.queries import lags_of
from console.mirrors.reversals import risks_of
from console.models import ClusterLink, MirrorPartition
from linkengine.domain.mirrorjobs import RestorePoint
from linkengine.domain.states import MirrorEvent

# --- list, create and get ---------------------------------------------------------------------------------------------


_STATUS = query_choice("mirror_status", "Only mirror topics with this status.", values=MIRROR_STATUSES)


class MirrorListView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/mirrors"""

    @operation(
        "listKafkaMirrorTopicsUnderLink",
        summary="List a link's mirror topics",
        parameters=[_STATUS],
        responses={200: kafka_schemas.ListMirrorTopicsResponseDataList},
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the mirrors of a link."""
        by = actor_of(request)
        row = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        return _listed(request, mirror_queries.list_mirrors(link=row, by=by))

    @operation(
        "createKafkaMirrorTopic",
        summary="Create a mirror topic",
        description="The response does not wait for the topic, which is created on the destination within seconds.",
        parameters=[query_flag("validate_only", "Only check the topic on both clusters. An addition of this product.")],
        body=kafka_schemas.CreateMirrorTopicRequestData,
        responses={204: "The mirror topic is being created, or would be."},
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Create a mirror."""
        by = actor_of(request)
        wanted = body(request, kafka_schemas.CreateMirrorTopicRequestData)
        mirror_actions.create_mirror(
            link=link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by),
            source_topic=wanted["source_topic_name"],
            mirror_topic=wanted.get("mirror_topic_name"),
            replication_factor=wanted.get("replication_factor"),
            configs=config_map(wanted.get("configs", ())),
            validate_only=flag(request, "validate_only"),
            by=by,
            now=request_time(),
        )
        return Response(status=204)


class AllMirrorsView(RestView):
    """/clusters/{cluster_id}/links/-/mirrors"""

    @operation(
        "listKafkaMirrorTopics",
        summary="List the mirror topics of all links",
        parameters=[_STATUS],
        responses={200: kafka_schemas.ListMirrorTopicsResponseDataList},
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the mirrors of a cluster."""
        by = actor_of(request)
        cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        return _listed(request, mirror_queries.list_mirrors(cluster_id=cluster_id, by=by))


class MirrorView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/mirrors/{mirror_topic_name}"""

    @operation(
        "readKafkaMirrorTopic",
        summary="Get a mirror topic",
        parameters=[query_flag("include_state_transition_errors", "Include the errors of pending state transitions.")],
        responses={200: kafka_schemas.ListMirrorTopicsResponseData},
    )
    def get(self, request: Request, cluster_id: str, link_name: str, mirror_topic_name: str) -> Response:
        """Return a mirror."""
        by = actor_of(request)
        row = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_topic_name, by=by)
        errors = row.transition_errors.all() if flag(request, "include_state_transition_errors") else None
        return Response(kafka_render.mirror(request, row, partitions=row.partitions.all(), errors=errors))


def _listed(request: Request, summaries: Iterable[mirror_queries.MirrorSummary]) -> Response:
    """Return the mirrors with the requested ``mirror_status``: a status of Confluent's interface, not a ``MirrorState``."""
    wanted = choice(request, "mirror_status", values=MIRROR_STATUSES)
    rendered = [kafka_render.mirror(request, summary.mirror, partitions=summary.partitions) for summary in summaries]
    data = [mirror for mirror in rendered if wanted in ("", mirror["mirror_status"])]
    return Response(kafka_render.collection(request, "KafkaMirrorDataList", data))


# --- operations -------------------------------------------------------------------------------------------------------
#
# A view per verb, with a result per mirror. A refused mirror does not fail the request.


_VALIDATE_ONLY = query_flag("validate_only", "Check the operation on each mirror topic without changing anything.")
_EXAMPLES = [
    OpenApiExample("by name", request_only=True, value={"mirror_topic_names": ["orders", "payments"]}),
    OpenApiExample("by pattern", request_only=True, value={"mirror_topic_name_pattern": "orders-.*"}),
]
_BIDIRECTIONAL = "Only for mirror topics of bidirectional links; it is refused for topics of other links."
_REVERSED = (
    "With validate_only, effect.warnings lists transactional producers and clusters with unclean leader election, as the "
    "previews of /api/v1 do."
)


class OperationView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/mirrors:{verb}"""

    event: MirrorEvent

    def operate(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Operate on the named or matching mirrors of a link."""
        by = actor_of(request)
        wanted = body(request, kafka_schemas.AlterMirrorsRequestData)
        names, pattern = wanted.get("mirror_topic_names"), wanted.get("mirror_topic_name_pattern")
        if names is not None and pattern is not None:
            raise BadRequestError("Give either mirror_topic_names or mirror_topic_name_pattern, not both.")
        by_partition = flag(request, "include_partition_level_truncation_data")
        row = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        results = operate_now(
            link=row,
            names=names,
            pattern=pattern,
            operation=self.event,
            validate_only=flag(request, "validate_only"),
            by=by,
            now=request_time(),
        )
        event = self.event if flag(request, "validate_only") else None
        return Response(_results(request, row, results, by_partition=by_partition, validated=event))


def operation_view(event: MirrorEvent, *, operation_id: str, summary: str, description: str = "", more: Any = ()) -> Any:
    """Return the view of a verb, with its OpenAPI description."""

    class VerbView(OperationView):
        """The view of a verb."""

        @operation(
            operation_id,
            summary=summary,
            description=description,
            parameters=[_VALIDATE_ONLY, *more],
            body=kafka_schemas.AlterMirrorsRequestData,
            responses={200: kafka_schemas.AlterMirrorStatusResponseDataList},
            examples=_EXAMPLES,
        )
        def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
            """Run the operation."""
            return self.operate(request, cluster_id, link_name)

    VerbView.event = event
    return VerbView.as_view()


VERBS: dict[str, Any] = {
    "promote": operation_view(
        MirrorEvent.PROMOTE,
        operation_id="updateKafkaMirrorTopicsPromote",
        summary="Promote mirror topics",
        description="Waits until all records are copied, then makes the topic an ordinary, writable topic.",
    ),
    "failover": operation_view(
        MirrorEvent.FAILOVER,
        operation_id="updateKafkaMirrorTopicsFailover",
        summary="Fail over mirror topics",
        description="Makes the topic writable immediately, at the offsets that it has. The source is not needed.",
    ),
    "pause": operation_view(MirrorEvent.PAUSE, operation_id="updateKafkaMirrorTopicsPause", summary="Pause mirror topics"),
    "resume": operation_view(MirrorEvent.RESUME, operation_id="updateKafkaMirrorTopicsResume", summary="Resume mirror topics"),
    "reverse-and-start-mirror": operation_view(
        MirrorEvent.REVERSE_AND_START,
        operation_id="updateKafkaMirrorTopicsReverseAndStartMirror",
        summary="Reverse mirror topics and start mirroring",
        description=f"{_BIDIRECTIONAL} {_REVERSED}",
    ),
    "reverse-and-pause-mirror": operation_view(
        MirrorEvent.REVERSE_AND_PAUSE,
        operation_id="updateKafkaMirrorTopicsReverseAndPauseMirror",
        summary="Reverse mirror topics and pause",
        description=f"{_BIDIRECTIONAL} {_REVERSED}",
    ),
    "truncate-and-restore": operation_view(
        MirrorEvent.RESTORE,
        operation_id="updateKafkaMirrorTopicsTruncateAndRestoreMirror",
        summary="Truncate topics and restore them as mirrors",
        description=_BIDIRECTIONAL,
        more=[
            query_flag(
                "include_partition_level_truncation_data",
                "Include the number of dropped records per partition. messages_truncated has their sum in any case, counted "
                "before the operation; null if unknown.",
            )
        ],
    ),
}


def _results(
    request: Request,
    row: ClusterLink,
    results: Sequence[OperationResult],
    *,
    by_partition: bool,
    validated: MirrorEvent | None,
) -> kafka_render.Json:
    stored = [result.mirror for result in results if result.mirror and result.mirror.pk]
    effects = {} if validated is None else _effects(row, results, validated, by=actor_of(request))
    lags = lags_of(stored)
    data = [
        _row(request, row, result, lags=lags, by_partition=by_partition) | effects.get(result.mirror_topic_name, {})
        for result in results
    ]
    return kafka_render.collection(request, "KafkaPromoteMirror", data)  # Confluent documents this kind for every verb


def _row(
    request: Request,
    row: ClusterLink,
    result: OperationResult,
    *,
    lags: Mapping[int, Sequence[MirrorPartition]],
    by_partition: bool,
) -> kafka_render.Json:
    known = kafka_render.mirror_lags(result.mirror, lags[result.mirror.pk]) if result.mirror and result.mirror.pk else []
    refusal = None if result.error_code is None else (result.error_code, result.error_message or "")
    shown = kafka_render.operation_row(request, row, name=result.mirror_topic_name, lags=known, refusal=refusal)
    if result.truncation is not None:
        shown["messages_truncated"] = sum(part.diverged for part in result.truncation)
        shown["partition_level_truncation_data"] = [_truncation(part) for part in result.truncation] if by_partition else []
    return shown


def _effects(
    row: ClusterLink, results: Sequence[OperationResult], event: MirrorEvent, *, by: Actor
) -> dict[str, kafka_render.Json]:
    """Return the field "effect" of a validated operation by mirror topic, without the topics for which it is refused."""
    accepted = {result.mirror: result for result in results if result.error_code is None and result.mirror and result.mirror.pk}
    mirrors = list(accepted)
    prefetch_related_objects(mirrors, "partitions")
    progress.refresh(mirrors, now=timezone.now())
    risks = risks_of(row, mirrors) if event in REVERSALS else {}
    warnings = cautions_of_many(mirrors, event, by=by, risks=risks)
    listed = figures.source_partitions(mirrors)
    return {
        mirror.name: {
            "effect": _effect(preview(mirror, event, source_partitions=listed[mirror.pk]), result.truncation)
            | {"warnings": list(warnings[mirror.pk])}
        }
        for mirror, result in accepted.items()
    }


def _effect(found: Preview, truncation: Sequence[RestorePoint] | None) -> kafka_render.Json:
    counted = None if truncation is None else sum(part.diverged for part in truncation)
    return {
        "state_after": found.state_after,
        "records_at_risk": found.records_at_risk if counted is None else counted,
        "records_to_copy": found.records_to_copy,
        "groups_clamped": len(found.groups_clamped),
        "configs_to_change": dict(found.configs_to_change),
    }


def _truncation(part: RestorePoint) -> kafka_render.Json:
    return {
        "partition_id": part.partition,
        "offset_truncated_to": max(part.start, part.point),
        "messages_truncated": part.diverged,
    }

"""Operations on mirror topics: a view per verb, with a result per mirror. A refused mirror does not fail the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.bulkoperations import operate_now
from console.actions.operations import OperationResult
from console.actions.reversing import risks_of
from console.actors import Actor
from console.api.kafka import answers, bodies, render
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import BadRequestError
from console.mirrors import loss, progress
from console.models import ClusterLink, MirrorPartition
from console.queries import links
from console.queries.cautions import REVERSALS, cautions_of_many
from console.queries.mirrors import lags_of
from console.queries.previews import Preview, preview
from linkengine.domain.mirrorjobs import RestorePoint
from linkengine.domain.states import MirrorEvent

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
        wanted = body(request, bodies.AlterMirrorsRequestData)
        names, pattern = wanted.get("mirror_topic_names"), wanted.get("mirror_topic_name_pattern")
        if names is not None and pattern is not None:
            raise BadRequestError("Give either mirror_topic_names or mirror_topic_name_pattern, not both.")
        by_partition = flag(request, "include_partition_level_truncation_data")
        row = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        results = operate_now(
            link=row,
            names=names,
            pattern=pattern,
            operation=self.event,
            validate_only=flag(request, "validate_only"),
            by=by,
            now=moment(),
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
            body=bodies.AlterMirrorsRequestData,
            responses={200: answers.AlterMirrorStatusResponseDataList},
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
) -> render.Json:
    stored = [result.mirror for result in results if result.mirror and result.mirror.pk]
    effects = {} if validated is None else _effects(row, results, validated, by=actor_of(request))
    lags = lags_of(stored)
    data = [
        _row(request, row, result, lags=lags, by_partition=by_partition) | effects.get(result.mirror_topic_name, {})
        for result in results
    ]
    return render.collection(request, "KafkaPromoteMirror", data)  # Confluent documents this kind for every verb


def _row(
    request: Request,
    row: ClusterLink,
    result: OperationResult,
    *,
    lags: Mapping[int, Sequence[MirrorPartition]],
    by_partition: bool,
) -> render.Json:
    known = render.mirror_lags(result.mirror, lags[result.mirror.pk]) if result.mirror and result.mirror.pk else []
    refusal = None if result.error_code is None else (result.error_code, result.error_message or "")
    shown = render.operation_row(request, row, name=result.mirror_topic_name, lags=known, refusal=refusal)
    if result.truncation is not None:
        shown["messages_truncated"] = sum(part.diverged for part in result.truncation)
        shown["partition_level_truncation_data"] = [_truncation(part) for part in result.truncation] if by_partition else []
    return shown


def _effects(row: ClusterLink, results: Sequence[OperationResult], event: MirrorEvent, *, by: Actor) -> dict[str, render.Json]:
    """Return the field "effect" of a validated operation by mirror topic, without the topics for which it is refused."""
    accepted = {result.mirror: result for result in results if result.error_code is None and result.mirror and result.mirror.pk}
    mirrors = list(accepted)
    prefetch_related_objects(mirrors, "partitions")
    progress.refresh(mirrors, now=timezone.now())
    risks = risks_of(row, mirrors) if event in REVERSALS else {}
    warnings = cautions_of_many(mirrors, event, by=by, risks=risks)
    listed = loss.source_partitions(mirrors)
    return {
        mirror.name: {
            "effect": _effect(preview(mirror, event, source_partitions=listed[mirror.pk]), result.truncation)
            | {"warnings": list(warnings[mirror.pk])}
        }
        for mirror, result in accepted.items()
    }


def _effect(found: Preview, truncation: Sequence[RestorePoint] | None) -> render.Json:
    counted = None if truncation is None else sum(part.diverged for part in truncation)
    return {
        "state_after": found.state_after,
        "records_at_risk": found.records_at_risk if counted is None else counted,
        "records_to_copy": found.records_to_copy,
        "groups_clamped": len(found.groups_clamped),
        "configs_to_change": dict(found.configs_to_change),
    }


def _truncation(part: RestorePoint) -> render.Json:
    return {
        "partition_id": part.partition,
        "offset_truncated_to": max(part.start, part.point),
        "messages_truncated": part.diverged,
    }

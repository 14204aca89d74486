"""Operations on mirror topics: one view per verb, one row per mirror. A refused row never fails the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from console import progress
from console.actions.operations import OperationResult, operate_many
from console.api.kafka import answers, bodies, render
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import BadRequestError
from console.models import ClusterLink, MirrorPartition
from console.queries import links
from console.queries.mirrors import lags_of
from console.queries.previews import preview
from linkengine.domain.restoring import RestorePoint
from linkengine.domain.states import MirrorEvent

_VALIDATE_ONLY = query_flag("validate_only", "Check the operation on each mirror topic and change nothing.")
_EXAMPLES = [
    OpenApiExample("by name", request_only=True, value={"mirror_topic_names": ["orders", "payments"]}),
    OpenApiExample("by pattern", request_only=True, value={"mirror_topic_name_pattern": "orders-.*"}),
]
_BIDIRECTIONAL = "Only for mirror topics of bidirectional links: every row of other links is refused."


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
        results = operate_many(
            link=row,
            names=names,
            pattern=pattern,
            operation=self.event,
            validate_only=flag(request, "validate_only"),
            by=by,
            now=moment(),
        )
        event = self.event if flag(request, "validate_only") else None
        return Response(_answer(request, row, results, by_partition=by_partition, validated=event))


def operation_view(event: MirrorEvent, *, operation_id: str, summary: str, description: str = "", more: Any = ()) -> Any:
    """Make the view of one verb; documented like the others."""

    class VerbView(OperationView):
        """One verb."""

        @operation(
            operation_id,
            summary=summary,
            description=description,
            parameters=[_VALIDATE_ONLY, *more],
            body=bodies.AlterMirrorsRequestData,
            answers={200: answers.AlterMirrorStatusResponseDataList},
            examples=_EXAMPLES,
        )
        def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
            """Carry the verb out."""
            return self.operate(request, cluster_id, link_name)

    VerbView.event = event
    return VerbView.as_view()


VERBS: dict[str, Any] = {
    "promote": operation_view(
        MirrorEvent.PROMOTE,
        operation_id="updateKafkaMirrorTopicsPromote",
        summary="Promote mirror topics",
        description="Waits until every record is copied, then makes the topic an ordinary, writable one.",
    ),
    "failover": operation_view(
        MirrorEvent.FAILOVER,
        operation_id="updateKafkaMirrorTopicsFailover",
        summary="Fail mirror topics over",
        description="Makes the topic writable at once, without waiting for the source.",
    ),
    "pause": operation_view(MirrorEvent.PAUSE, operation_id="updateKafkaMirrorTopicsPause", summary="Pause mirror topics"),
    "resume": operation_view(MirrorEvent.RESUME, operation_id="updateKafkaMirrorTopicsResume", summary="Resume mirror topics"),
    "reverse-and-start-mirror": operation_view(
        MirrorEvent.REVERSE_AND_START,
        operation_id="updateKafkaMirrorTopicsReverseAndStartMirror",
        summary="Reverse mirror topics and mirror back",
        description=_BIDIRECTIONAL,
    ),
    "reverse-and-pause-mirror": operation_view(
        MirrorEvent.REVERSE_AND_PAUSE,
        operation_id="updateKafkaMirrorTopicsReverseAndPauseMirror",
        summary="Reverse mirror topics and pause",
        description=_BIDIRECTIONAL,
    ),
    "truncate-and-restore": operation_view(
        MirrorEvent.RESTORE,
        operation_id="updateKafkaMirrorTopicsTruncateAndRestoreMirror",
        summary="Turn topics into mirrors again",
        description=_BIDIRECTIONAL,
        more=[
            query_flag(
                "include_partition_level_truncation_data",
                "Tell per partition what is dropped. messages_truncated counts it anyhow, before anything is; null: unknown.",
            )
        ],
    ),
}


def _answer(
    request: Request,
    row: ClusterLink,
    results: Sequence[OperationResult],
    *,
    by_partition: bool,
    validated: MirrorEvent | None,
) -> render.Json:
    stored = [one.mirror for one in results if one.mirror and one.mirror.pk]
    if validated is not None:
        prefetch_related_objects(stored, "partitions")  # previews look at more than lags
        progress.refresh(stored, now=timezone.now())
    lags = lags_of(stored)
    data = [_row(request, row, one, lags=lags, by_partition=by_partition) | _effect(one, validated) for one in results]
    return render.collection(request, "KafkaPromoteMirror", data)  # the documented kind for every verb


def _row(
    request: Request,
    row: ClusterLink,
    one: OperationResult,
    *,
    lags: Mapping[int, Sequence[MirrorPartition]],
    by_partition: bool,
) -> render.Json:
    known = render.mirror_lags(one.mirror, lags[one.mirror.pk]) if one.mirror and one.mirror.pk else []
    refusal = None if one.error_code is None else (one.error_code, one.error_message or "")
    shown = render.operation_row(request, row, name=one.mirror_topic_name, lags=known, refusal=refusal)
    if one.truncation is not None:
        shown["messages_truncated"] = sum(part.diverged for part in one.truncation)
        shown["partition_level_truncation_data"] = [_truncation(part) for part in one.truncation] if by_partition else []
    return shown


def _effect(one: OperationResult, event: MirrorEvent | None) -> render.Json:
    """Write what a validated operation would do, where it would be taken."""
    if event is None or one.error_code is not None or one.mirror is None or not one.mirror.pk:
        return {}
    found = preview(one.mirror, event)
    counted = None if one.truncation is None else sum(part.diverged for part in one.truncation)
    return {
        "effect": {
            "state_after": found.state_after,
            "records_at_risk": found.records_at_risk if counted is None else counted,
            "records_to_copy": found.records_to_copy,
            "groups_clamped": len(found.groups_clamped),
            "configs_to_change": dict(found.configs_to_change),
        }
    }


def _truncation(part: RestorePoint) -> render.Json:
    return {
        "partition_id": part.partition,
        "offset_truncated_to": max(part.start, part.point),
        "messages_truncated": part.diverged,
    }

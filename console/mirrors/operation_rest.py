"""Previews, recovery, reparenting, restores and refused configs of mirrors, below /api/v1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.db.models import prefetch_related_objects
from django.http import FileResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, check_permission
from console.api.errors import UnreadableError
from console.api.kafka_schemas import mirror_status
from console.api.schema import ADDITIONS, BinaryResponse, OffsetField, list_of, operation, query_flag
from console.api.views import RestView, actor_of, body, flag, request_time
from console.clusters import queries as cluster_queries
from console.clusters.topic_actions import why_not_delete
from console.links import queries as link_queries
from console.mirrors import diverged_exports, figures
from console.mirrors import queries as mirror_queries
from console.mirrors.actions import retry_refused_configs
from console.mirrors.operation_actions import operate
from console.mirrors.operation_queries import REVERSALS, cautions_of_many, mirrored_elsewhere, preview
from console.mirrors.reparenting import reparent
from console.mirrors.reversals import risks_of
from console.mirrors.rules import FIELD, matching, refused_steps, why_not
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import RestoreRun
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import OPERATIONS, MirrorEvent

# --- previews ---------------------------------------------------------------------------------------------------------


_OPERATIONS = sorted(operation.value for operation in OPERATIONS)


class GroupAtRiskData(serializers.Serializer[Any]):
    """An offset of a consumer group that would be clamped to the mirror's end."""

    group = serializers.CharField()
    partition = serializers.IntegerField()
    offset = OffsetField(help_text="The group's committed offset on the source.")
    clamped_to = OffsetField()


class PreviewData(serializers.Serializer[Any]):
    """The effect of the operation on a mirror topic."""

    mirror_topic_name = serializers.CharField()
    operation = serializers.ChoiceField(choices=_OPERATIONS)
    allowed = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True, help_text="Why the operation is refused now; empty if it is allowed.")
    state_after = serializers.CharField(allow_blank=True)
    records_at_risk = OffsetField(
        allow_null=True,
        help_text="Offsets that would not be copied (failover) or would be deleted (delete), by the last report; null if "
        "unknown.",
    )
    records_to_copy = OffsetField(
        allow_null=True,
        help_text="Offsets that a promotion or reversal copies first, by the last report; null if unknown.",
    )
    groups_clamped = GroupAtRiskData(many=True)
    configs_to_change = serializers.DictField(
        child=serializers.CharField(allow_null=True), help_text="The new values; null resets a config to the cluster's default."
    )
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Things to consider before the operation; it is allowed in spite of them."
    )


PreviewDataList = list_of(PreviewData, "A preview for each mirror topic.")


class TopicDeletionData(serializers.Serializer[Any]):
    """The effect of deleting a topic of a cluster."""

    topic_name = serializers.CharField()
    allowed = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True, help_text="Why the deletion is refused now; empty if it is allowed.")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="Mirror topics that copy from this topic; it can be deleted in spite of them."
    )


class TopicDeletionView(RestView):
    """…/topics/{topic_name}/deletion-preview"""

    @operation(
        "previewTopicDeletion",
        summary="Preview the deletion of a topic",
        description="Returns whether the topic, also a mirror topic, can be deleted, and which mirror topics copy from it. It "
        "does not check on the cluster whether the topic exists. Needs the role that the deletion needs.",
        responses={200: TopicDeletionData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return the warnings before the deletion of a topic."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        mirror = mirror_queries.find_by_topic(cluster_id=cluster_id, topic=topic_name, by=by)
        if mirror is None:
            reason = why_not_delete(cluster=cluster, topic=topic_name, by=by)
        else:
            check_permission(by, Permission.MANAGE_MIRROR, mirror=mirror)
            reason = why_not(mirror, MirrorEvent.DELETE)
        warning = mirrored_elsewhere(cluster_id, topic_name, by=by)
        found = {"topic_name": topic_name, "allowed": not reason, "reason": reason, "warnings": [warning] if warning else []}
        return Response(TopicDeletionData(found).data)


class PreviewListView(RestView):
    """…/links/{link_name}/previews"""

    @operation(
        "previewOperation",
        summary="Preview an operation",
        description="Returns what an operation would do, from the last reports; nothing is changed. To preview "
        "truncate-and-restore, use its validate_only, which counts the diverged records on the cluster.",
        parameters=[
            OpenApiParameter("operation", str, required=True, enum=_OPERATIONS, description="The operation."),
            OpenApiParameter("mirror_topic_name_pattern", str, description="Only mirrors whose whole name matches."),
            LIMIT,
        ],
        responses={200: PreviewDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return a preview for each mirror of the link."""
        by = actor_of(request)
        wanted = request.query_params.get("operation", "")
        if wanted not in _OPERATIONS:
            raise UnreadableError(f"The query parameter operation must be one of {', '.join(_OPERATIONS)}.")
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        visible = {summary.mirror.name: summary.mirror for summary in mirror_queries.list_mirrors(link=link, by=by)}
        chosen = matching(visible, request.query_params.get(FIELD, ".*"))
        rows = [visible[name] for name in chosen[: limit_of(request)]]
        prefetch_related_objects(rows, "partitions")
        event = MirrorEvent(wanted)
        risks = risks_of(link, rows) if event in REVERSALS else {}
        warnings, listed = cautions_of_many(rows, event, by=by, risks=risks), figures.source_partitions(rows)
        found = [asdict(preview(row, event, source_partitions=listed[row.pk])) | {"warnings": warnings[row.pk]} for row in rows]
        return Response(PreviewDataList({"data": found}).data)


# --- recovery of a failed mirror --------------------------------------------------------------------------------------


class RecoverData(serializers.Serializer[Any]):
    """A mirror that was recovered or, with validate_only, can be recovered."""

    mirror_topic_name = serializers.CharField()
    mirror_status = serializers.CharField(help_text="The current status.")


class RecoverView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/recover"""

    @operation(
        "recoverMirrorTopic",
        summary="Recover a failed mirror",
        description="Resumes copying. Only for mirrors that are FAILED and whose offsets still correspond to their source's, "
        "for example after a missing ACL was added. Otherwise the request is refused with the reason and the alternative.",
        parameters=[query_flag("validate_only", "Only check whether the mirror can be recovered.")],
        responses={200: RecoverData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Recover the mirror."""
        mirror, preview = self.mirror(request, path), flag(request, "validate_only")
        recover = MirrorEvent.RECOVER
        mirror = operate(mirror=mirror, operation=recover, validate_only=preview, by=actor_of(request), now=request_time())
        status = mirror_status(mirror.state, link_state=mirror.link.state)
        return Response(RecoverData({"mirror_topic_name": mirror.name, "mirror_status": status}).data)


# --- reparenting ------------------------------------------------------------------------------------------------------


class ReparentRequest(serializers.Serializer[Any]):
    """The link to which the mirror is moved."""

    link_name = serializers.CharField(max_length=249, help_text="A link to the same cluster from the other copy.")


class ReparentPointData(serializers.Serializer[Any]):
    """The offsets of a partition."""

    partition = serializers.IntegerField()
    end = OffsetField(help_text="The mirror's log end offset, where copying continues.")
    fence = OffsetField(help_text="Up to here the other copy has the records of the common source.")
    to_copy = OffsetField(help_text="Offsets that the other copy has beyond the mirror's end.")


class ReparentData(serializers.Serializer[Any]):
    """A mirror that was moved or, with validate_only, can be moved."""

    mirror_topic_name = serializers.CharField()
    link_name = serializers.CharField()
    source_cluster_id = serializers.CharField()
    source_topic_name = serializers.CharField()
    moved = serializers.BooleanField(help_text="False with validate_only: nothing was changed.")
    partitions: Any = ReparentPointData(many=True)


class ReparentView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/reparent"""

    @operation(
        "reparentMirrorTopic",
        summary="Move a paused mirror to a link from another copy of its source",
        description="For the other mirrors of a lost source cluster, after one of its mirrors was failed over. Allowed if in "
        "every partition the mirror is a prefix of the failed-over topic. No record is copied again. The mirror stays PAUSED.",
        body=ReparentRequest,
        parameters=[query_flag("validate_only", "Compare the offsets and change nothing.")],
        responses={200: ReparentData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Move the mirror."""
        link_name, preview = body(request, ReparentRequest)["link_name"], flag(request, "validate_only")
        mirror = self.mirror(request, path)
        done = reparent(mirror=mirror, link_name=link_name, validate_only=preview, by=actor_of(request), now=request_time())
        row = {
            "mirror_topic_name": mirror.name,
            "link_name": done.link.name,
            "source_cluster_id": done.link.source_cluster_id,
            "source_topic_name": done.parent.name,
            "moved": not preview,
            "partitions": done.points,
        }
        return Response(ReparentData(row).data)


# --- restores ---------------------------------------------------------------------------------------------------------


class RestorePointData(serializers.Serializer[Any]):
    """A partition at the start of the restore."""

    partition = serializers.IntegerField()
    start = OffsetField(help_text="The log start offset.")
    end = OffsetField(help_text="The log end offset.")
    common = OffsetField(help_text="The first offset at which the two sides differ.")
    other_start = OffsetField(default=0, help_text="The log start offset of the other side; records below it are exported too.")
    records = OffsetField(allow_null=True, help_text="Number of exported records; null until they are exported.")


class RestoreRunData(serializers.ModelSerializer[RestoreRun]):
    """A truncate-and-restore. Its export file, if there is one, is gzip with a JSON object per record."""

    points: Any = RestorePointData(many=True)
    export_records = OffsetField(allow_null=True)
    export_bytes = OffsetField(allow_null=True)
    messages_truncated = serializers.SerializerMethodField()

    class Meta:
        model = RestoreRun
        fields = (
            "id",
            "requested_by",
            "requested_at",
            "agreed_at",
            "in_place",
            "messages_truncated",
            "points",
            "export_name",
            "export_records",
            "export_bytes",
            "export_sha256",
            "exported_at",
            "finished_at",
        )

    @extend_schema_field(OffsetField())
    def get_messages_truncated(self, run: RestoreRun) -> int:
        """Return the number of diverged offsets of all partitions. Markers take up offsets too: there can be fewer records."""
        return run.messages_truncated


RestoreRunDataList = list_of(RestoreRunData, "The topic's restores, newest first.")


class RestoreRunListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/restores"""

    @operation("listRestores", summary="List restores", parameters=[LIMIT], responses={200: RestoreRunDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the restores of a topic."""
        runs = self.mirror(request, path).restores.all()[: limit_of(request)]
        return Response({"data": RestoreRunData(runs, many=True).data})


class RestoreRecordsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/restores/{restore_id}/records"""

    @operation(
        "getRestoreRecords",
        summary="Download the diverged records that a restore exported",
        description="gzip of JSON lines: partition, offset, timestamp, key and value (base64 or null), headers (pairs of name "
        "and base64 or null). They are the topic's data, so the permission to read records is needed.",
        responses={200: BinaryResponse},
        tag=ADDITIONS,
    )
    def get(self, request: Request, restore_id: int, **path: str) -> FileResponse:
        """Return the file."""
        mirror = self.mirror(request, path)
        check_permission(actor_of(request), Permission.READ_RECORDS, mirror=mirror)
        return diverged_exports.download_response(mirror.restores.filter(pk=restore_id).first(), restore_id)


# --- refused configs --------------------------------------------------------------------------------------------------


class RefusedConfigData(serializers.Serializer[Any]):
    """A config that the destination refused."""

    name = serializers.CharField(
        help_text="A topic config, or fillers for the empty records at the head, whose deletion cannot be retried."
    )
    value = serializers.CharField(allow_null=True, help_text="The value to set; null for the cluster's default.")
    code = serializers.CharField()
    message = serializers.CharField(help_text="Why the destination refused it.")


RefusedConfigDataList = list_of(RefusedConfigData, "The refused configs; empty if there are none.")


class RefusedConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/refused-configs"""

    @operation(
        "listRefusedConfigs",
        summary="List configs that the destination refused when the mirror was stopped",
        description="Without those that a retry has resolved. The topic is writable; these configs still have the mirror's "
        "values.",
        responses={200: RefusedConfigDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the refused configs."""
        return _response(refused_steps(self.mirror(request, path)))

    @operation(
        "retryRefusedConfigs",
        summary="Retry configs that the destination refused when the mirror was stopped",
        description="Returns the configs that are refused again. A config that was set to another value since then is not "
        "changed.",
        responses={200: RefusedConfigDataList},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Retry all refused configs."""
        mirror, by = self.mirror(request, path), actor_of(request)
        retry_refused_configs(mirror=mirror, by=by, now=request_time())
        return _response(refused_steps(mirror))


def _response(steps: Iterable[RefusedStep]) -> Response:
    return Response(RefusedConfigDataList({"data": [asdict(step) for step in steps]}).data)

"""Restores of a topic: list, and download the exported diverged records."""

from __future__ import annotations

from typing import Any

from django.http import FileResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, check_permission
from console.api.fields import OffsetField
from console.api.schema import ADDITIONS, BinaryAnswer, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import actor_of
from console.mirrors import diverged_exports
from console.models import RestoreRun


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
        """Return the number of diverged records of all partitions."""
        return run.messages_truncated


class RestoreRunDataList(serializers.Serializer[Any]):
    """The topic's restores, newest first."""

    data: Any = RestoreRunData(many=True)


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
        responses={200: BinaryAnswer},
        tag=ADDITIONS,
    )
    def get(self, request: Request, restore_id: int, **path: str) -> FileResponse:
        """Return the file."""
        mirror = self.mirror(request, path)
        check_permission(actor_of(request), Permission.READ_RECORDS, mirror=mirror)
        return diverged_exports.download_response(mirror.restores.filter(pk=restore_id).first(), restore_id)

"""Reparenting: moves a mirror topic to a link from another copy of its source."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.reparenting import reparent
from console.api.fields import OffsetField
from console.api.schema import ADDITIONS, operation, query_flag
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, body, flag, moment


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
        done = reparent(mirror=mirror, link_name=link_name, validate_only=preview, by=actor_of(request), now=moment())
        row = {
            "mirror_topic_name": mirror.name,
            "link_name": done.link.name,
            "source_cluster_id": done.link.source_cluster_id,
            "source_topic_name": done.parent.name,
            "moved": not preview,
            "partitions": done.points,
        }
        return Response(ReparentData(row).data)

"""Lineage of a mirror: from which cluster and topic its records came."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import OffsetField
from console.api.schema import ADDITIONS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import actor_of
from console.queries.lineage import Origin, lineage_of

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

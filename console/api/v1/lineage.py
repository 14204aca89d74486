"""Where a mirror's records came from."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.fields import OffsetField
from console.api.schema import OURS, operation
from console.api.v1.views import LIMIT, MirrorPartView, limit_of
from console.api.views import actor_of
from console.queries.lineage import Origin, lineage_of

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField
Flag = serializers.BooleanField
_HIDDEN = "You may see neither this topic nor its link: the names are empty, and what lies behind them is left out."


class UpstreamData(serializers.Serializer[Any]):
    """Where the origin itself had these offsets from."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    cluster_id = Text(allow_blank=True)
    topic = Text(allow_blank=True)
    topic_id = Text(allow_blank=True)
    link_name = Text(allow_blank=True)
    since = Time()
    until = Time(allow_null=True)
    hidden = Flag(help_text=_HIDDEN)
    links_away = Number(help_text="How many links lie between: 2 or more.")


class LineageData(serializers.Serializer[Any]):
    """Offsets of a partition and the topic they were copied from."""

    partition = Number()
    start = OffsetField()
    end = OffsetField(help_text="Exclusive; grows while until is null.")
    cluster_id = Text(allow_blank=True, help_text="Kafka's id of the cluster they came from.")
    topic = Text(allow_blank=True)
    topic_id = Text(allow_blank=True)
    link_name = Text(allow_blank=True)
    since = Time(help_text="When copying over this link began.")
    until = Time(allow_null=True, help_text="When it ended: at the mirror's stop.")
    hidden = Flag(help_text=_HIDDEN)
    upstream: Any = UpstreamData(many=True, help_text="The chain behind the origin, as far as this console knows it.")


class LineageDataList(serializers.Serializer[Any]):
    """The mirror's origins by partition and offset, earlier links of the same topic included."""

    data: Any = LineageData(many=True)


class LineageListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/lineage"""

    @operation("listLineage", summary="List a mirror's lineage", parameters=[LIMIT], answers={200: LineageDataList}, tag=OURS)
    def get(self, request: Request, **path: str) -> Response:
        """List which offsets came from where."""
        found = lineage_of(self.mirror(request, path), by=actor_of(request), limit=limit_of(request))
        return Response(LineageDataList({"data": [_written(one) for one in found]}).data)


def _written(one: Origin) -> dict[str, Any]:
    return {**_fields(one), "partition": one.partition, "upstream": list(_chain(one, away=2))}


def _chain(one: Origin, *, away: int) -> list[dict[str, Any]]:
    """Write the tree behind an origin as a list: OpenAPI's generators dislike types that hold themselves."""
    found: list[dict[str, Any]] = []
    for behind in one.upstream:
        found += [{**_fields(behind), "links_away": away}, *_chain(behind, away=away + 1)]
    return found


def _fields(one: Origin) -> dict[str, Any]:
    names = ("start", "end", "cluster_id", "topic", "topic_id", "link_name", "since", "until", "hidden")
    return {name: getattr(one, name) for name in names}

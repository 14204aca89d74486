"""Lag and throughput over time, of a link and of a mirror; the console's charts show the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import UnreadableError
from console.api.schema import ADDITIONS, OffsetField, list_of, operation
from console.api.views import request_time
from console.history.queries import SPANS, Point, link_history, mirror_history
from console.links.v1_rest import LinkPartView
from console.mirrors.v1_rest import MirrorPartView

_SPAN = OpenApiParameter("span", str, enum=list(SPANS), default="1h", description="The time span, up to now.")


class PointData(serializers.Serializer[Any]):
    """The largest lag and the mean rate of an interval. Unknown is null, never 0."""

    at = serializers.DateTimeField(help_text="Time of the interval's last sample, or the begin of its last summary.")
    lag = OffsetField(allow_null=True)
    lag_ms = OffsetField(allow_null=True, help_text="Time lag.")
    bytes_per_s = serializers.FloatField(allow_null=True)


PointDataList = list_of(PointData, "At most about 120 points, oldest first. Intervals without a sample have no point.")


class LinkHistoryView(LinkPartView):
    """…/links/{link_name}/history"""

    @operation(
        "getLinkHistory",
        summary="Get a link's lag over time",
        parameters=[_SPAN],
        responses={200: PointDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the lag of the worst partition and the sum of the rates; ranges of a day and more come from summaries."""
        return _response(link_history(link=self.whole_link(request, path), span=_span(request), now=request_time()))


class MirrorHistoryView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/history"""

    @operation(
        "getMirrorHistory",
        summary="Get a mirror's lag over time",
        parameters=[_SPAN],
        responses={200: PointDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the lag of all partitions and the rate; ranges of more than two hours come from summaries."""
        return _response(mirror_history(mirror=self.mirror(request, path), span=_span(request), now=request_time()))


def _span(request: Request) -> timedelta:
    text = request.query_params.get("span", "1h")
    if text not in SPANS:
        raise UnreadableError(f"The query parameter span must be one of {', '.join(SPANS)}.")
    return SPANS[text]


def _response(points: Sequence[Point]) -> Response:
    return Response(PointDataList({"data": [asdict(point) for point in points]}).data)

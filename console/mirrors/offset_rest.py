"""Offsets by time, and offset resets, below /api/v1."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.errors import UnreadableError
from console.api.schema import ADDITIONS, AnyTextField, FlagField, NumberField, OffsetField, operation
from console.api.views import actor_of, body, moment
from console.clusters import live_queries
from console.errors import ConflictError
from console.links.task_actions import reset_group
from console.mirrors.v1_rest import MirrorPartView
from console.models import MirrorTopic
from linkengine.domain.states import BECOMING

# --- offsets by time, and offset resets -------------------------------------------------------------------------------
#
# A lookup by time ignores fillers.


MAX_LOOKUP_OFFSET = (1 << 63) - 1
_POSITION = re.compile(r"(\d{1,9}):(\d{1,19})")
_TIMESTAMP = OpenApiParameter("timestamp_ms", int, required=True, description="The time, in milliseconds since 1970 (UTC).")
_FROM = OpenApiParameter(
    "from",
    str,
    many=True,
    description="PARTITION:OFFSET, once per partition: where to continue, which is searched_to of an incomplete response.",
)


class TimedOffsetData(serializers.Serializer[Any]):
    """The first record of a partition that is not older than the given time."""

    partition = serializers.IntegerField()
    offset = OffsetField(allow_null=True, help_text="Null if there is no such record or the search is not complete.")
    record_timestamp_ms = OffsetField(allow_null=True)
    searched_to = OffsetField(help_text="Where an incomplete search continues.")
    log_end_offset = OffsetField(
        help_text="The end of the committed records: the offset to reset a group to if offset is null."
    )
    is_complete = serializers.BooleanField()


class OffsetsForTimeData(serializers.Serializer[Any]):
    """The offsets of all partitions for a time."""

    timestamp_ms = OffsetField()
    is_complete = serializers.BooleanField(
        help_text="If false, repeat the request with from=PARTITION:SEARCHED_TO for each partition."
    )
    data = TimedOffsetData(many=True)  # type: ignore[assignment]  # a field of that name


class ResetOffsetBody(serializers.Serializer[Any]):
    """A partition and the offset to set."""

    partition = NumberField(min_value=0, max_value=(1 << 31) - 1)
    offset = NumberField(min_value=0, max_value=MAX_LOOKUP_OFFSET)


class GroupResetBody(serializers.Serializer[Any]):
    """The group to reset and its new offsets."""

    consumer_group_id = AnyTextField()
    offsets = ResetOffsetBody(many=True, allow_empty=False)
    execute = FlagField(default=False, help_text="If false, nothing is changed, and the response shows what would be.")


class ResetOffsetData(serializers.Serializer[Any]):
    """The offset of the group in a partition, before and after."""

    partition = serializers.IntegerField()
    before = OffsetField(allow_null=True, help_text="Null if the group had no offset.")
    after = OffsetField()
    is_written = serializers.BooleanField()
    message = serializers.CharField(allow_blank=True, help_text="Why the cluster refused the offset.")


class GroupResetData(serializers.Serializer[Any]):
    """The result of a reset, or its preview."""

    consumer_group_id = serializers.CharField()
    executed = serializers.BooleanField()
    data = ResetOffsetData(many=True)  # type: ignore[assignment]


class OffsetsForTimeView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/offsets-for-time"""

    @operation(
        "listOffsetsForTime",
        summary="Look up offsets by time, ignoring fillers",
        description="Kafka's lookup by time (ListOffsets) also finds the fillers of a mirror topic, which have the time of the "
        "copy, and may therefore return an earlier offset than on the source. This operation reads the mirror topic from there "
        "to the first record that is not older. It takes a few seconds at most; an incomplete response contains where to "
        "continue.",
        parameters=[_TIMESTAMP, _FROM],
        responses={200: OffsetsForTimeData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the offsets for a time."""
        mirror = _ready(self.mirror(request, path))
        timestamp_ms = _timestamp_of(request)
        positions = [_position(text) for text in request.query_params.getlist("from")]
        found = live_queries.offsets_for_time(mirror=mirror, timestamp_ms=timestamp_ms, positions=positions)
        complete = all(row["is_complete"] for row in found)
        result = {"timestamp_ms": timestamp_ms, "is_complete": complete, "data": found}
        return Response(OffsetsForTimeData(result).data)


class GroupResetView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/group-resets"""

    @operation(
        "resetConsumerGroup",
        summary="Reset a consumer group's offsets on a mirror topic",
        description="Changes nothing unless execute is true. The group must have no members. If the link syncs the group's "
        "offsets, an offset that was moved backwards is kept until the group commits again on the source.",
        body=GroupResetBody,
        responses={200: GroupResetData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Reset a group."""
        mirror = _ready(self.mirror(request, path))
        wanted = body(request, GroupResetBody)
        offsets = {row["partition"]: row["offset"] for row in wanted["offsets"]}
        group, execute = wanted["consumer_group_id"], wanted["execute"]
        found = reset_group(
            mirror=mirror,
            group=group,
            offsets=sorted(offsets.items()),
            execute=execute,
            by=actor_of(request),
            now=moment(),
        )
        return Response(GroupResetData({"consumer_group_id": group, "executed": execute, "data": found}).data)


def _ready(mirror: MirrorTopic) -> MirrorTopic:
    """Return the mirror; raise ConflictError while its topic is being created, when the log may begin with fillers."""
    if mirror.state in BECOMING:
        raise ConflictError(
            f"Topic '{mirror.name}' is not a mirror topic yet ({mirror.state}). Retry when its state is ACTIVE or PAUSED."
        )
    return mirror


def _timestamp_of(request: Request) -> int:
    text = request.query_params.get("timestamp_ms", "")
    if not re.fullmatch(r"\d{1,18}", text):
        raise UnreadableError("Cannot deserialize the query parameter timestamp_ms: it must be a whole number of milliseconds.")
    return int(text)


def _position(text: str) -> tuple[int, int]:
    found = _POSITION.fullmatch(text)
    if found is None or int(found[2]) > MAX_LOOKUP_OFFSET:
        raise UnreadableError("Cannot deserialize the query parameter from: it must have the form PARTITION:OFFSET.")
    return int(found[1]), int(found[2])

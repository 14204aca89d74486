"""Offsets of a mirror topic by time, counting records only, and resets of consumer groups to offsets."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.groups import reset_group
from console.api.errors import UnreadableError
from console.api.fields import AnyTextField, FlagField, NumberField, OffsetField
from console.api.schema import OURS, operation
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, body, moment
from console.errors import ConflictError
from console.models import MirrorTopic
from console.queries import brokers
from linkengine.domain.states import BECOMING

MAX_OFFSET = (1 << 63) - 1
_POSITION = re.compile(r"(\d{1,9}):(\d{1,19})")
_TIMESTAMP = OpenApiParameter("timestamp_ms", int, required=True, description="The moment, in milliseconds since 1970 (UTC).")
_FROM = OpenApiParameter(
    "from",
    str,
    many=True,
    description="PARTITION:OFFSET, once per partition: continue there. Give the searched_to of an answer that is not complete.",
)


class TimedOffsetData(serializers.Serializer[Any]):
    """The first record of a partition that is not older than the moment."""

    partition = serializers.IntegerField()
    offset = OffsetField(allow_null=True, help_text="Null: there is none, or the search is not complete.")
    record_timestamp_ms = OffsetField(allow_null=True)
    searched_to = OffsetField(help_text="Where an incomplete search continues.")
    log_end_offset = OffsetField(help_text="Of committed records; where a group is reset to if there is no such record.")
    is_complete = serializers.BooleanField()


class OffsetsForTimeData(serializers.Serializer[Any]):
    """Offsets by time of all partitions."""

    timestamp_ms = OffsetField()
    is_complete = serializers.BooleanField(help_text="False: ask again with from=PARTITION:SEARCHED_TO of each partition.")
    data = TimedOffsetData(many=True)  # type: ignore[assignment]  # a field of that name


class ResetOffsetBody(serializers.Serializer[Any]):
    """An offset to set."""

    partition = NumberField(min_value=0, max_value=(1 << 31) - 1)
    offset = NumberField(min_value=0, max_value=MAX_OFFSET)


class GroupResetBody(serializers.Serializer[Any]):
    """Which group to reset to which offsets."""

    consumer_group_id = AnyTextField()
    offsets = ResetOffsetBody(many=True, allow_empty=False)
    execute = FlagField(default=False, help_text="False: only show what would be done.")


class ResetOffsetData(serializers.Serializer[Any]):
    """One partition of the group."""

    partition = serializers.IntegerField()
    before = OffsetField(allow_null=True, help_text="Null: the group had no offset.")
    after = OffsetField()
    is_written = serializers.BooleanField()
    message = serializers.CharField(allow_blank=True, help_text="Why the cluster refused it.")


class GroupResetData(serializers.Serializer[Any]):
    """What was done, or would be."""

    consumer_group_id = serializers.CharField()
    executed = serializers.BooleanField()
    data = ResetOffsetData(many=True)  # type: ignore[assignment]


class OffsetsForTimeView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/offsets-for-time"""

    @operation(
        "listOffsetsForTime",
        summary="Look up offsets by time, counting records only",
        description="Kafka's own lookup by time counts the fillers of a mirror topic, which carry the time of the copy, and so "
        "may answer an earlier offset than on the source. This one reads the mirror topic from there to the first record that "
        "is not older. It reads for some seconds at most; an answer that is not complete says where to continue.",
        parameters=[_TIMESTAMP, _FROM],
        answers={200: OffsetsForTimeData},
        tag=OURS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Look offsets up."""
        mirror = _settled(self.mirror(request, path))
        timestamp_ms = _timestamp_of(request)
        positions = [_position(text) for text in request.query_params.getlist("from")]
        found = brokers.offsets_for_time(mirror=mirror, timestamp_ms=timestamp_ms, positions=positions)
        complete = all(row["is_complete"] for row in found)
        answer = {"timestamp_ms": timestamp_ms, "is_complete": complete, "data": found}
        return Response(OffsetsForTimeData(answer).data)


class GroupResetView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/group-resets"""

    @operation(
        "resetConsumerGroup",
        summary="Reset a consumer group's offsets on a mirror topic",
        description="Only shows what would be done unless execute is true. The group must have no members. Where the link "
        "syncs consumer offsets and the group follows its source, an offset that was moved back stays until the source's "
        "group commits again.",
        body=GroupResetBody,
        answers={200: GroupResetData},
        tag=OURS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Reset a group."""
        mirror = _settled(self.mirror(request, path))
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


def _settled(mirror: MirrorTopic) -> MirrorTopic:
    """Return the mirror; raise ConflictError while its topic is being made, when the log may begin with fillers."""
    if mirror.state in BECOMING:
        raise ConflictError(f"Topic '{mirror.name}' is being made a mirror topic ({mirror.state}). Wait until it is mirrored.")
    return mirror


def _timestamp_of(request: Request) -> int:
    text = request.query_params.get("timestamp_ms", "")
    if not re.fullmatch(r"\d{1,18}", text):
        raise UnreadableError("Cannot deserialize the query parameter timestamp_ms: it is a whole number of milliseconds.")
    return int(text)


def _position(text: str) -> tuple[int, int]:
    found = _POSITION.fullmatch(text)
    if found is None or int(found[2]) > MAX_OFFSET:
        raise UnreadableError("Cannot deserialize the query parameter from: it is PARTITION:OFFSET.")
    return int(found[1]), int(found[2])

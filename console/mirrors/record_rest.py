"""Offsets by time, offset resets, and the comparison of single records, below /api/v1."""

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
from console.mirrors.part_rest import MirrorPartView
from console.models import MirrorTopic
from console.verification.actions import MAX_OFFSET, compare_record
from linkengine.domain.record_views import Presence, RecordVerdict
from linkengine.domain.states import BECOMING, GapReason

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


# --- comparison of a record -------------------------------------------------------------------------------------------
#
# For users with the permission to read records.


_PARTITION = OpenApiParameter("partition", int, required=True, description="The number of the partition.")
_OFFSET = OpenApiParameter("offset", int, description="The offset. Give either this or timestamp_ms.")
_RECORD_TIMESTAMP = OpenApiParameter(
    "timestamp_ms",
    int,
    description="Instead of an offset: the mirror's first record that is not older, in milliseconds since 1970 (UTC).",
)
Text, Number, Flag = serializers.CharField, serializers.IntegerField, serializers.BooleanField


class FieldData(serializers.Serializer[Any]):
    """A key or a value; null instead if it is null."""

    size = OffsetField(help_text="Bytes of the whole field.")
    base64 = Text(allow_blank=True, help_text="The field, or its first bytes.")
    is_cut = Flag(help_text="Whether base64 has only the first bytes. The comparison includes all of them.")


class HeaderData(serializers.Serializer[Any]):
    """A header of a record."""

    name = Text(allow_blank=True, help_text="Bytes that are not UTF-8 are escaped, and a long name is cut.")
    value = FieldData(allow_null=True)


class RecordData(serializers.Serializer[Any]):
    """A record."""

    key = FieldData(allow_null=True)
    value = FieldData(allow_null=True)
    headers = HeaderData(many=True, help_text="The first 32 headers.")
    header_count = Number()
    timestamp_ms = OffsetField(help_text="-1 if the record's format has none.")
    timestamp_type = Text(help_text="CreateTime, LogAppendTime or none.")
    size = OffsetField(help_text="Bytes of key, value and headers.")


class BatchData(serializers.Serializer[Any]):
    """The batch that covers the offset, as it is stored."""

    base_offset = OffsetField()
    next_offset = OffsetField(help_text="The offset after the batch.")
    record_count = Number()
    size = OffsetField(help_text="Bytes in the log.")
    compression = Text(help_text="none, gzip, snappy, lz4 or zstd.")
    leader_epoch = Number(allow_null=True)
    is_transactional = Flag()


class RecordSideData(serializers.Serializer[Any]):
    """The record of a side at the offset, or why it has none. Unknown is null."""

    presence = serializers.ChoiceField(choices=list(Presence), help_text="UNREADABLE: unknown, see code and message.")
    marker = Text(allow_blank=True, help_text="Type of a transaction marker.")
    record = RecordData(allow_null=True)
    batch = BatchData(allow_null=True)
    log_start_offset = OffsetField(allow_null=True)
    last_stable_offset = OffsetField(allow_null=True)
    log_end_offset = OffsetField(allow_null=True)
    code = Text(allow_blank=True)
    message = Text(allow_blank=True)


class RecordComparisonData(serializers.Serializer[Any]):
    """Both sides at an offset."""

    partition = Number()
    offset = OffsetField()
    verdict = serializers.ChoiceField(choices=list(RecordVerdict))
    text = Text(help_text="The verdict in words.")
    filler_reason = serializers.ChoiceField(
        choices=list(GapReason), allow_null=True, help_text="Why the mirror has a filler. Null if it has none, or if unknown."
    )
    differing = serializers.ListField(child=Text(), help_text="The parts that differ: key, value, headers, timestamp.")
    next_offset = OffsetField(allow_null=True, help_text="The next offset at which either side may have a record.")
    source = RecordSideData()  # type: ignore[assignment]  # a field of that name
    mirror = RecordSideData()


class RecordComparisonView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/records"""

    @operation(
        "compareRecord",
        summary="Compare the record at an offset with the source's",
        description="Reads the offset on both clusters. Needs the permission to read records (role DeveloperManage). Each "
        "request is recorded in the audit log, without record contents.",
        parameters=[_PARTITION, _OFFSET, _RECORD_TIMESTAMP],
        responses={200: RecordComparisonData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return both sides at an offset."""
        partition = _number(request, "partition")
        if partition is None:
            raise UnreadableError("The query parameter partition is missing.")
        found = compare_record(
            mirror=self.mirror(request, path),
            partition=partition,
            offset=_number(request, "offset"),
            timestamp_ms=_number(request, "timestamp_ms"),
            by=actor_of(request),
            now=moment(),
        )
        names = ("partition", "offset", "differing", "next_offset", "source", "mirror")
        shown = {name: getattr(found, name) for name in names}
        judgement = found.judgement
        shown |= {"verdict": judgement.verdict, "text": judgement.text, "filler_reason": judgement.reason}
        return Response(RecordComparisonData(shown).data)


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or int(text) > MAX_OFFSET:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it must be a whole number.")
    return int(text)

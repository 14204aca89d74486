"""Parts of a mirror, below /api/v1: gaps, transitions, partitions, lineage, configs, state, offsets by time, group resets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Sum
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, can
from console.api import v1_schemas
from console.api.errors import UnreadableError
from console.api.schema import ADDITIONS, AnyTextField, FlagField, NumberField, OffsetField, list_of, operation
from console.api.views import RestView, actor_of, body, request_time
from console.clusters import live_queries
from console.errors import ConflictError
from console.links.health_queries import health_of_mirror
from console.links.health_rest import HealthData, health_data
from console.mirrors import queries as mirror_queries
from console.mirrors.actions import reset_group
from console.mirrors.lineage import Origin, lineage_of
from console.mirrors.queries import followed_configs, list_reverts
from console.models import ConfigRevert, MirrorTopic, StateTransitionError
from console.web.health_presenters import mirror_health_view
from linkengine.domain.states import BECOMING, MirrorState

# --- gaps, transitions and partitions ---------------------------------------------------------------------------------


MAX_ROWS = 1000
LIMIT = OpenApiParameter("limit", int, description=f"Maximum number of rows, 1 to {MAX_ROWS}.", default=100)


class MirrorPartView(RestView):
    """Base of views of resources that belong to a mirror."""

    def mirror(self, request: Request, path: Mapping[str, str]) -> MirrorTopic:
        """Return the mirror that the path names; raise NotFoundError if it does not exist or is not visible."""
        return mirror_queries.get_mirror(
            cluster_id=path["cluster_id"],
            link_name=path["link_name"],
            mirror_name=path["mirror_topic_name"],
            by=actor_of(request),
        )

    def reads_records(self, request: Request, mirror: MirrorTopic) -> dict[str, bool]:
        """Return the serializer context for differences: whether the actor may read records."""
        return {"reads_records": can(actor_of(request), Permission.READ_RECORDS, mirror=mirror)}


class GapListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/gaps"""

    @operation("listGaps", summary="List gaps", parameters=[LIMIT], responses={200: v1_schemas.GapDataList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the gap ledger of a mirror."""
        mirror = self.mirror(request, path)
        rows = mirror_queries.list_gaps(mirror=mirror, limit=limit_of(request))
        return Response({"totals": _totals(mirror), "data": v1_schemas.GapData(rows, many=True).data})


class TransitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/transitions"""

    @operation(
        "listTransitions",
        summary="List a mirror's transitions",
        parameters=[LIMIT],
        responses={200: v1_schemas.TransitionDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the state transitions of a mirror."""
        rows = mirror_queries.list_transitions(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": v1_schemas.TransitionData(rows, many=True).data})


class PartitionListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/partitions"""

    @operation(
        "listPartitions",
        summary="List a mirror's partitions",
        responses={200: v1_schemas.MirrorPartitionDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the progress of each partition."""
        rows = self.mirror(request, path).partitions.all()
        return Response({"data": v1_schemas.MirrorPartitionData(rows, many=True, context={"now": request_time()}).data})


def limit_of(request: Request) -> int:
    """Return the query parameter ``limit``; raise UnreadableError unless it is a number from 1 to MAX_ROWS."""
    text = request.query_params.get("limit", str(LIMIT.default))
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= MAX_ROWS or len(text) > 9:
        raise UnreadableError(f"Cannot deserialize the query parameter limit: it must be a whole number from 1 to {MAX_ROWS}.")
    return int(text)


def _totals(mirror: MirrorTopic) -> list[dict[str, Any]]:
    rows = mirror.gaps.order_by("reason").values("reason")
    return [dict(row) for row in rows.annotate(ranges=Count("pk"), offsets=Sum("filled"))]


# --- lineage ----------------------------------------------------------------------------------------------------------


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


LineageDataList = list_of(LineageData, "The mirror's lineage by partition and offset, including former links of the topic.")


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


# --- synced configs ---------------------------------------------------------------------------------------------------


class FollowedConfigData(serializers.Serializer[Any]):
    """A config that is synced from the source."""

    name = Text()
    source_value = Text(help_text="As last read.")
    mirror_value = Text(
        help_text="The mirror topic's value. Mirroring needs some values to differ until the mirror is stopped."
    )
    always = serializers.BooleanField(help_text="False if topic.config.sync.include can exclude the config.")


class ConfigRevertData(serializers.ModelSerializer[ConfigRevert]):
    """A local change of the mirror topic that was reverted."""

    class Meta:
        model = ConfigRevert
        fields = ("name", "found", "restored", "at")


class MirrorConfigs(serializers.Serializer[Any]):
    """The synced configs, and the last local changes that were reverted."""

    data: Any = FollowedConfigData(many=True)
    reverted: Any = ConfigRevertData(many=True)


class MirrorConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/configs"""

    @operation(
        "getMirrorConfigs",
        summary="Get the configs that a mirror syncs from its source",
        responses={200: MirrorConfigs},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the synced configs by name."""
        mirror = self.mirror(request, path)
        reverted = ConfigRevertData(list_reverts(mirror), many=True).data
        return Response({"data": FollowedConfigData(followed_configs(mirror), many=True).data, "reverted": reverted})


# --- the state of a mirror topic --------------------------------------------------------------------------------------
#
# Current and prior state, retries, errors.


class TransitionErrorData(serializers.ModelSerializer[StateTransitionError]):
    """An error or a condition that the mirror waits for; the documentation explains each code."""

    class Meta:
        model = StateTransitionError
        fields = ("code", "message", "since", "last_seen_at")


class MirrorStateData(serializers.ModelSerializer[MirrorTopic]):
    """The state of a mirror, with the names that its transitions use."""

    mirror_topic_name = serializers.CharField(source="name")
    prior_state = serializers.ChoiceField(
        choices=[state.value for state in MirrorState],
        allow_null=True,
        help_text="Null if the mirror had no other state before.",
    )
    retry_count = serializers.IntegerField(help_text="Number of consecutive failed attempts; 0 after a success.")
    retry_at = serializers.DateTimeField(
        allow_null=True, help_text="Earliest time of the next attempt; null if it is immediate or scheduled by the copy worker."
    )
    error_code = serializers.CharField(help_text="Why the mirror is FAILED; empty otherwise.")
    error_message = serializers.CharField()
    error_since = serializers.DateTimeField(
        allow_null=True, help_text="Since when there have been errors without interruption."
    )
    transition_errors = TransitionErrorData(many=True)
    health = serializers.SerializerMethodField()

    class Meta:
        model = MirrorTopic
        fields = (
            "mirror_topic_name",
            "state",
            "state_since",
            "prior_state",
            "retry_count",
            "retry_at",
            "error_code",
            "error_message",
            "error_since",
            "transition_errors",
            "health",
        )

    @extend_schema_field(HealthData)
    def get_health(self, instance: MirrorTopic) -> dict[str, str]:
        """Return what is copied, whatever the state is."""
        status, task_error = health_of_mirror(instance, now=request_time())
        return health_data(mirror_health_view(status, instance.link, task_error=task_error))

    def to_representation(self, instance: MirrorTopic) -> dict[str, Any]:
        """Return the fields with an empty prior state as null."""
        values: dict[str, Any] = super().to_representation(instance)
        return {**values, "prior_state": values["prior_state"] or None}


class MirrorStateView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/state"""

    @operation("getMirrorState", summary="Get a mirror's state", responses={200: MirrorStateData}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the mirror's state."""
        return Response(MirrorStateData(self.mirror(request, path)).data)


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
            now=request_time(),
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

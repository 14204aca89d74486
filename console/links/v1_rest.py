"""Rates, recurring tasks, consumer groups, ACLs and source topics of a link, below /api/v1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import v1_schemas
from console.api.kafka_schemas import mirror_status
from console.api.schema import ADDITIONS, OffsetField, list_of, operation
from console.api.views import RestView, actor_of, choice, request_time
from console.links import queries as link_queries
from console.links import task_queries
from console.links.actions import run_task
from console.links.task_queries import get_task, list_tasks
from console.links.topic_queries import check_source_topic, check_source_topics
from console.mirrors.v1_rest import LIMIT, MirrorPartView, limit_of
from console.models import ClampedOffset, ClusterLink, GroupOffset, SyncedAcl, SyncedGroup
from linkengine.domain.acls import AclStatus
from linkengine.domain.groups import GroupStatus, OffsetOutcome
from linkengine.domain.linktasks import TaskState
from linkengine.domain.mirrorability import CheckCode, CheckedTopic, MirrorabilityStatus

# --- rates ------------------------------------------------------------------------------------------------------------


class LinkPartView(RestView):
    """Base of views of resources that belong to a link."""

    def link(self, request: Request, path: Mapping[str, str]) -> ClusterLink:
        """Return the link that the path names; raise NotFoundError if it does not exist or is not visible."""
        return link_queries.get_link(cluster_id=path["cluster_id"], name=path["link_name"], by=actor_of(request))

    def whole_link(self, request: Request, path: Mapping[str, str]) -> ClusterLink:
        """Return the link for figures of all its mirrors; raise DeniedError if the actor may see only some of them."""
        return link_queries.get_whole_link(cluster_id=path["cluster_id"], name=path["link_name"], by=actor_of(request))


class LinkRatesView(LinkPartView):
    """…/links/{link_name}/rates"""

    @operation("getLinkRates", summary="Get a link's rates and lag", responses={200: v1_schemas.LinkRates}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return throughput and lag of a link."""
        link = self.whole_link(request, path)
        summary = link_queries.summarize([link], by=actor_of(request))[0]
        states: dict[str, int] = {}
        for state, count in summary.mirrors_by_state.items():
            status = mirror_status(state, link_state=link.state)
            states[status] = states.get(status, 0) + count
        figures = {name: getattr(summary, name) for name in ("bytes_per_s", "records_per_s", "lag_bytes", "oldest_lag_ms")}
        figures["max_lag"] = None if summary.unknown_lags else summary.max_lag
        figures["unknown_lag_partitions"] = summary.unknown_lags
        about = {"link_name": link.name, "link_state": link.state, "gap_filler": link.gap_filler}
        return Response({**about, "mirrors": states, **figures})


# --- recurring tasks --------------------------------------------------------------------------------------------------


Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField


class LinkTaskFault(serializers.Serializer[Any]):
    """An error of the last run."""

    code = Text()
    message = Text()


class LinkTaskStatus(serializers.Serializer[Any]):
    """A recurring task of a link. A time is null if the event has not occurred."""

    name = Text()
    state = serializers.ChoiceField(choices=list(TaskState))
    errors: Any = LinkTaskFault(many=True, help_text="The first errors of the last run.")
    error_count = Number(help_text="Number of all errors of the last run.")
    summary = Text()
    interval_ms = Number(allow_null=True, help_text="Null if the task is not scheduled by time.")
    started_at = Time(allow_null=True)
    finished_at = Time(allow_null=True)
    succeeded_at = Time(allow_null=True)
    failing_since = Time(allow_null=True)
    next_run_at = Time(allow_null=True)
    requested_at = Time(allow_null=True, help_text="When a run was requested that has not started yet.")
    runs = Number()
    failures = Number(help_text="Number of runs that ended with an error.")
    changes = Number(help_text="Number of changes by all runs: topics created, configs set, offsets committed, ACLs written.")
    can_run = serializers.BooleanField()
    why_not = Text(help_text="Why the task cannot run now; empty if it can.")


LinkTaskStatusList = list_of(LinkTaskStatus, "All tasks of a link.")


class LinkTaskListView(LinkPartView):
    """…/links/{link_name}/tasks"""

    @operation("listLinkTasks", summary="List a link's tasks", responses={200: LinkTaskStatusList}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the link's tasks with the results of their last runs."""
        return Response({"data": LinkTaskStatus(list_tasks(link=self.whole_link(request, path)), many=True).data})


class LinkTaskRunView(LinkPartView):
    """…/links/{link_name}/tasks/{task_name}/run"""

    @operation(
        "runLinkTask",
        summary="Run a task of a link now",
        description="The task runs immediately instead of at its next scheduled time. The response does not wait for the run.",
        responses={202: LinkTaskStatus},
        tag=ADDITIONS,
    )
    def post(self, request: Request, task_name: str, **path: str) -> Response:
        """Request a run of the task."""
        link = self.link(request, path)
        run_task(link=link, name=task_name, by=actor_of(request), now=request_time())
        return Response(LinkTaskStatus(get_task(link=link, name=task_name)).data, status=202)


# --- consumer groups and ACLs -----------------------------------------------------------------------------------------
#
# Those that the link syncs or skips, with reasons, and the offsets that stops have clamped.


_GROUP_STATUS = OpenApiParameter("status", str, enum=list(GroupStatus), description="Only groups with this status.")
_ACL_STATUS = OpenApiParameter("status", str, enum=list(AclStatus), description="Only ACLs with this status.")
_CONFLICTS = OpenApiParameter("conflicts", bool, description="Only conflicts.", default=False)


class StatusCount(serializers.Serializer[Any]):
    """The number of rows with a status."""

    status = Text()
    count = Number()


class GroupOffsetData(serializers.ModelSerializer[GroupOffset]):
    """The offsets of a group in a partition."""

    mirror_topic_name = Text(source="mirror.name")
    source_offset = OffsetField(help_text="Committed on the source, as last read.")
    destination_offset = OffsetField(allow_null=True, help_text="Committed on the destination; null if there is none.")
    target = OffsetField(help_text="max(mirror start, min(source offset, mirror end)).")
    outcome = serializers.ChoiceField(choices=list(OffsetOutcome))

    class Meta:
        model = GroupOffset
        fields = ("mirror_topic_name", "partition", "source_offset", "destination_offset", "target", "outcome", "message")


class SyncedGroupData(serializers.ModelSerializer[SyncedGroup]):
    """A consumer group of the source."""

    status = serializers.ChoiceField(choices=list(GroupStatus))
    type = Text(source="kind", help_text="classic, consumer, share or streams; empty if the broker does not return it.")
    message = Text(help_text="The reason for the status, for example why the group is skipped.")
    looked_at = Time(allow_null=True, help_text="When the group's offsets were last read.")
    listed_at = Time(help_text="When the source last listed the group.")
    offsets = serializers.SerializerMethodField()

    class Meta:
        model = SyncedGroup
        fields = ("name", "destination_name", "type", "status", "message", "looked_at", "listed_at", "offsets")

    @extend_schema_field(GroupOffsetData(many=True))
    def get_offsets(self, group: SyncedGroup) -> Any:
        """Return the group's offsets, which the view has read for all groups at once."""
        return GroupOffsetData(self.context["offsets"].get(group.pk, []), many=True).data


class SyncedGroupDataList(serializers.Serializer[Any]):
    """The consumer groups of the source. ``totals`` count all groups, ``data`` is a page."""

    totals = StatusCount(many=True)
    data: Any = SyncedGroupData(many=True)


class SyncedAclData(serializers.ModelSerializer[SyncedAcl]):
    """An ACL of the source and the result of its sync."""

    status = serializers.ChoiceField(choices=list(AclStatus))
    message = Text(help_text="Why the ACL was skipped, or which ACL conflicts with it.")

    class Meta:
        model = SyncedAcl
        fields = (
            "resource_type",
            "resource_name",
            "pattern_type",
            "principal",
            "host",
            "operation",
            "permission",
            "status",
            "message",
            "is_conflict",
            "since",
        )


class SyncedAclDataList(serializers.Serializer[Any]):
    """The ACLs of the source. ``totals`` count all ACLs, ``data`` is a page."""

    totals = StatusCount(many=True)
    conflicts = Number()
    data: Any = SyncedAclData(many=True)


class ClampedOffsetData(serializers.ModelSerializer[ClampedOffset]):
    """An offset of a consumer group that was beyond the mirrored end when the mirror was stopped, and was clamped to it."""

    source_offset = OffsetField(allow_null=True, help_text="Committed on the source, as last read.")
    before = OffsetField(
        allow_null=True, help_text="Committed on the destination before the stop; null if there was none or it was not read."
    )
    after = OffsetField(allow_null=True, help_text="Committed on the destination after the stop.")
    message = Text(help_text="Why the offset could not be set; empty if it was set.")

    class Meta:
        model = ClampedOffset
        fields = ("group", "partition", "source_offset", "before", "after", "message", "stopping_since", "at")


ClampedOffsetDataList = list_of(
    ClampedOffsetData, "Offsets of consumer groups that stops of the mirror have clamped, latest stop first."
)


class GroupListView(LinkPartView):
    """…/links/{link_name}/consumer-groups"""

    @operation(
        "listLinkConsumerGroups",
        summary="List the source's consumer groups and their sync status",
        parameters=[_GROUP_STATUS, LIMIT],
        responses={200: SyncedGroupDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return groups with their offsets on both sides."""
        link = self.whole_link(request, path)
        status = choice(request, "status", values=list(GroupStatus))
        groups = link.groups.filter(status=status) if status else link.groups.all()
        rows = list(groups[: limit_of(request)])
        data = SyncedGroupData(rows, many=True, context={"offsets": task_queries.offsets_of(rows)}).data
        return Response({"totals": _totals(task_queries.count_groups(link=link)[0].items()), "data": data})


class AclListView(LinkPartView):
    """…/links/{link_name}/acls"""

    @operation(
        "listLinkAcls",
        summary="List the source's ACLs and their sync status",
        parameters=[_ACL_STATUS, _CONFLICTS, LIMIT],
        responses={200: SyncedAclDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the ACLs of the source with their status."""
        link = self.whole_link(request, path)
        status = choice(request, "status", values=list(AclStatus))
        only = choice(request, "conflicts", values=("true", "false")) == "true"
        rows = link.acls.matching(status=status, conflicts=only)[: limit_of(request)]
        counts, conflicts = task_queries.count_acls(link=link)
        return Response(
            {"totals": _totals(counts.items()), "conflicts": conflicts, "data": SyncedAclData(rows, many=True).data}
        )


class ClampedOffsetListView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/clamped-offsets"""

    @operation(
        "listClampedOffsets",
        summary="List consumer group offsets that stops of the mirror have clamped",
        parameters=[LIMIT],
        responses={200: ClampedOffsetDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the offsets that stops have clamped."""
        rows = task_queries.list_clamped(mirror=self.mirror(request, path), limit=limit_of(request))
        return Response({"data": ClampedOffsetData(rows, many=True).data})


def _totals(counts: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"status": status, "count": count} for status, count in counts]


# --- source topics ----------------------------------------------------------------------------------------------------


Flag = serializers.BooleanField
_STANDING = OpenApiParameter("standing", str, enum=list(MirrorabilityStatus), description="Only topics with this standing.")
_SEARCH = OpenApiParameter("q", str, description="Only topics whose name contains this text.")


class SourceTopicCheck(serializers.Serializer[Any]):
    """A check of a source topic."""

    code = serializers.ChoiceField(choices=list(CheckCode))
    passed = Flag()
    blocks = Flag(help_text="True if the topic cannot be mirrored because of this check.")
    finding = Text()
    next_step = Text(help_text="Empty if nothing has to be done.")


class SourceTopicStanding(serializers.Serializer[Any]):
    """A source topic, whether the link mirrors it, and why or why not."""

    source_topic_name = Text(source="topic")
    mirror_topic_name = Text(
        source="mirror", help_text="The name that its mirror has or would have; empty if none is possible."
    )
    standing = serializers.ChoiceField(choices=list(MirrorabilityStatus))
    mirror_status = serializers.SerializerMethodField()
    checks: Any = SourceTopicCheck(many=True, help_text="Empty for a topic that is mirrored.")

    def get_mirror_status(self, checked: CheckedTopic) -> str | None:
        """Return the state of the topic's mirror, or None if it has none."""
        return checked.mirror_state


SourceTopicStandingList = list_of(SourceTopicStanding, "The topics of the source, by name.")


class SourceTopicListView(LinkPartView):
    """…/links/{link_name}/source-topics"""

    @operation(
        "listSourceTopics",
        summary="List a link's source topics and why they are mirrored or not",
        parameters=[LIMIT, _STANDING, _SEARCH],
        responses={200: SourceTopicStandingList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the topics that the source last listed."""
        link = self.whole_link(request, path)
        wanted, limit = choice(request, "standing", values=list(MirrorabilityStatus)), limit_of(request)
        checked_topics = check_source_topics(link=link, by=actor_of(request), search=request.query_params.get("q", ""))
        shown = [checked for checked in checked_topics if wanted in ("", checked.standing)][:limit]
        return Response({"data": SourceTopicStanding(shown, many=True).data})


class SourceTopicView(LinkPartView):
    """…/links/{link_name}/source-topics/{source_topic_name}"""

    @operation(
        "getSourceTopic",
        summary="Get why a source topic is mirrored or not",
        description="Also for a topic that the source does not have; then the first check fails.",
        responses={200: SourceTopicStanding},
        tag=ADDITIONS,
    )
    def get(self, request: Request, source_topic_name: str, **path: str) -> Response:
        """Return the checks of a topic."""
        checked = check_source_topic(link=self.whole_link(request, path), name=source_topic_name, by=actor_of(request))
        return Response(SourceTopicStanding(checked).data)

"""Why source topics of a link are mirrored or not, below /api/v1."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import OURS, operation
from console.api.v1.views import limit_of
from console.api.views import RestView, actor_of, choice
from console.models import ClusterLink
from console.queries import links
from console.queries.mirrorability import judge_source, judge_topic
from linkengine.domain.mirrorability import CheckCode, Standing, Verdict

Text, Flag = serializers.CharField, serializers.BooleanField
_LIMIT = OpenApiParameter("limit", int, description="Most rows to answer, 1 to 1000.", default=100)
_STANDING = OpenApiParameter("standing", str, enum=list(Standing), description="Only topics that stand like this.")
_SEARCH = OpenApiParameter("q", str, description="Only topics whose name holds this.")


class SourceTopicCheck(serializers.Serializer[Any]):
    """One thing that was looked at."""

    code = serializers.ChoiceField(choices=list(CheckCode))
    passed = Flag()
    blocks = Flag(help_text="False: it does not keep the topic from being mirrored.")
    finding = Text()
    next_step = Text(help_text="Empty where nothing is to be done.")


class SourceTopicStanding(serializers.Serializer[Any]):
    """How a source topic stands with the link, and why."""

    source_topic_name = Text(source="topic")
    mirror_topic_name = Text(source="mirror", help_text="The name its mirror has or would have; empty: it cannot have one.")
    standing = serializers.ChoiceField(choices=list(Standing))
    mirror_status = serializers.SerializerMethodField()
    checks: Any = SourceTopicCheck(many=True, help_text="Empty for a topic that is mirrored.")

    def get_mirror_status(self, verdict: Verdict) -> str | None:
        """Answer the state of its mirror, null without one."""
        return verdict.mirror_state


class SourceTopicStandingList(serializers.Serializer[Any]):
    """The topics of the source, by name."""

    data: Any = SourceTopicStanding(many=True)


class SourceTopicListView(RestView):
    """…/links/{link_name}/source-topics"""

    @operation(
        "listSourceTopics",
        summary="List a link's source topics and why they are mirrored or not",
        parameters=[_LIMIT, _STANDING, _SEARCH],
        answers={200: SourceTopicStandingList},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """List the topics that were seen last."""
        link = _link(request, cluster_id, link_name)
        wanted, limit = choice(request, "standing", values=list(Standing)), limit_of(request)
        judged = judge_source(link=link, by=actor_of(request), search=request.query_params.get("q", ""))
        shown = [one for one in judged if wanted in ("", one.standing)][:limit]
        return Response({"data": SourceTopicStanding(shown, many=True).data})


class SourceTopicView(RestView):
    """…/links/{link_name}/source-topics/{source_topic_name}"""

    @operation(
        "getSourceTopic",
        summary="Why is this topic (not) mirrored",
        description="Also for a topic that nobody has seen: then the first check says so.",
        answers={200: SourceTopicStanding},
        tag=OURS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str, source_topic_name: str) -> Response:
        """Judge one topic."""
        verdict = judge_topic(link=_link(request, cluster_id, link_name), name=source_topic_name, by=actor_of(request))
        return Response(SourceTopicStanding(verdict).data)


def _link(request: Request, cluster_id: str, link_name: str) -> ClusterLink:
    return links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))

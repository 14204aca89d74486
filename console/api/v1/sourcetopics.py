"""Source topics of a link and why they are mirrored or not, below /api/v1."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, operation
from console.api.v1.views import limit_of
from console.api.views import RestView, actor_of, choice
from console.models import ClusterLink
from console.queries import links
from console.queries.mirrorability import judge_source, judge_topic
from linkengine.domain.mirrorability import CheckCode, Standing, Verdict

Text, Flag = serializers.CharField, serializers.BooleanField
_LIMIT = OpenApiParameter("limit", int, description="Maximum number of rows, 1 to 1000.", default=100)
_STANDING = OpenApiParameter("standing", str, enum=list(Standing), description="Only topics with this standing.")
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
    standing = serializers.ChoiceField(choices=list(Standing))
    mirror_status = serializers.SerializerMethodField()
    checks: Any = SourceTopicCheck(many=True, help_text="Empty for a topic that is mirrored.")

    def get_mirror_status(self, verdict: Verdict) -> str | None:
        """Return the state of the topic's mirror, or None if it has none."""
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
        responses={200: SourceTopicStandingList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the topics that the source last listed."""
        link = _link(request, cluster_id, link_name)
        wanted, limit = choice(request, "standing", values=list(Standing)), limit_of(request)
        judged = judge_source(link=link, by=actor_of(request), search=request.query_params.get("q", ""))
        shown = [verdict for verdict in judged if wanted in ("", verdict.standing)][:limit]
        return Response({"data": SourceTopicStanding(shown, many=True).data})


class SourceTopicView(RestView):
    """…/links/{link_name}/source-topics/{source_topic_name}"""

    @operation(
        "getSourceTopic",
        summary="Get why a source topic is mirrored or not",
        description="Also for a topic that the source does not have; then the first check fails.",
        responses={200: SourceTopicStanding},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str, source_topic_name: str) -> Response:
        """Return the checks of a topic."""
        verdict = judge_topic(link=_link(request, cluster_id, link_name), name=source_topic_name, by=actor_of(request))
        return Response(SourceTopicStanding(verdict).data)


def _link(request: Request, cluster_id: str, link_name: str) -> ClusterLink:
    return links.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))

"""Health of links and mirror topics, below /api/v1."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, operation
from console.api.views import RestView, actor_of
from console.clusters import queries as cluster_queries
from console.links import queries as link_queries
from console.links.health_queries import LinkHealth
from console.models import ClusterLink
from console.web.health_presenters import HealthView, link_health_view, mirror_health_view
from linkengine.domain.health import Health, Reason

# --- health of links and mirror topics --------------------------------------------------------------------------------


MAX_MIRRORS = 1000
Text, Number = serializers.CharField, serializers.IntegerField


class HealthData(serializers.Serializer[Any]):
    """Health with its reason."""

    health = serializers.ChoiceField(choices=[health.value for health in Health])
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason])
    message = Text(help_text="The reason in one sentence.")
    next_step = Text(help_text="What to do; empty if no action is needed.")


class MirrorHealthData(HealthData):
    """Health of a mirror topic."""

    mirror_topic_name = Text()


class LinkHealthData(HealthData):
    """Health of a link: that of its worst mirror topic, or its own if that is worse."""

    link_name = Text()
    link_state = Text()
    mirror_topics = serializers.DictField(child=Number(), help_text="Number of mirror topics by health.")
    needs_attention = Number(help_text="Number of mirror topics that are not copied, degraded or of unknown health.")


class LinkHealthDetailData(LinkHealthData):
    """The same with the mirror topics that need attention."""

    mirrors: Any = MirrorHealthData(
        many=True, help_text=f"Mirror topics that need attention, worst first; at most {MAX_MIRRORS}."
    )


class LinkHealthDataList(serializers.Serializer[Any]):
    """Health of links."""

    data: Any = LinkHealthData(many=True)


def health_data(view: HealthView) -> dict[str, str]:
    """Return the fields of HealthData."""
    return {"health": view.badge.code, "reason": view.reason, "message": view.sentence, "next_step": view.next_step}


def _link(link: ClusterLink, health: LinkHealth) -> dict[str, Any]:
    return {
        **health_data(link_health_view(health, link)),
        "link_name": link.name,
        "link_state": link.state,
        "mirror_topics": {value: health.counts.get(value, 0) for value in Health},
        "needs_attention": health.attention,
    }


class LinkHealthListView(RestView):
    """/clusters/{cluster_id}/link-health"""

    @operation(
        "listLinkHealth", summary="List the health of a cluster's links", responses={200: LinkHealthDataList}, tag=ADDITIONS
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the health of the links of a cluster, worst first."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        found = link_queries.list_links(by=by, cluster_id=cluster.cluster_id)
        found.sort(key=lambda summary: (summary.health.status.severity, summary.link.name))
        data = [_link(summary.link, summary.health) for summary in found]
        return Response({"data": LinkHealthData(data, many=True).data})


class LinkHealthView(RestView):
    """…/links/{link_name}/health"""

    @operation("getLinkHealth", summary="Get the health of a link", responses={200: LinkHealthDetailData}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the health of a link and of its mirror topics that need attention."""
        by = actor_of(request)
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        (summary,) = link_queries.summarize([link], by=by)
        troubled = [mirror for mirror in summary.health.mirrors.values() if mirror.status.needs_attention]
        troubled.sort(key=lambda mirror: (mirror.status.severity, mirror.name))
        mirrors = [
            {**health_data(mirror_health_view(mirror.status, link)), "mirror_topic_name": mirror.name}
            for mirror in troubled[:MAX_MIRRORS]
        ]
        return Response(LinkHealthDetailData({**_link(link, summary.health), "mirrors": mirrors}).data)

"""Health of environments, clusters, links and mirror topics, below /api/v1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, list_of, operation
from console.api.views import RestView, actor_of
from console.clusters import queries as cluster_queries
from console.clusters.presenters import cluster_health, environment_health
from console.links import queries as link_queries
from console.links.health_queries import LinkHealth
from console.links.queries import LinkSummary
from console.models import Cluster, ClusterLink, Environment
from console.web.health_presenters import HealthView, link_health_view, mirror_health_view
from linkengine.domain.health import SEVERITY, Health, Reason

# --- fields -----------------------------------------------------------------------------------------------------------


MAX_MIRRORS = 1000
Text, Number = serializers.CharField, serializers.IntegerField


class HealthData(serializers.Serializer[Any]):
    """Health with its reason."""

    health = serializers.ChoiceField(choices=[health.value for health in Health])
    reason = serializers.ChoiceField(choices=[reason.value for reason in Reason])
    codes = serializers.ListField(child=Text(), help_text="Error codes of the reason; empty if it has none.")
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


LinkHealthDataList = list_of(LinkHealthData, "Health of links.")


class ClusterHealthData(HealthData):
    """Health of a cluster: that of its worst visible link, or of its last probe if that is worse."""

    cluster_id = Text()
    cluster_name = Text()
    links = serializers.DictField(child=Number(), help_text="Number of links to the cluster by health.")
    needs_attention = Number(help_text="Number of links that are not copied, degraded or of unknown health.")


class EnvironmentHealthData(HealthData):
    """Health of an environment: that of its worst visible link, or of the last probe of a cluster if that is worse."""

    environment = Text(help_text="The environment's name in URLs.")
    environment_name = Text()
    links = serializers.DictField(child=Number(), help_text="Number of links by health.")
    needs_attention = Number(help_text="Number of links that are not copied, degraded or of unknown health.")


class EnvironmentHealthDetailData(EnvironmentHealthData):
    """The same with the clusters of the environment."""

    clusters: Any = ClusterHealthData(many=True, help_text="Visible clusters of the environment, worst first.")


EnvironmentHealthDataList = list_of(EnvironmentHealthData, "Health of environments.")


def health_data(view: HealthView) -> dict[str, Any]:
    """Return the fields of HealthData."""
    return {
        "health": view.badge.code,
        "reason": view.reason,
        "codes": list(view.codes),
        "message": view.sentence,
        "next_step": view.next_step,
    }


def _link(link: ClusterLink, health: LinkHealth) -> dict[str, Any]:
    return {
        **health_data(link_health_view(health, link)),
        "link_name": link.name,
        "link_state": link.state,
        "mirror_topics": {value: health.counts.get(value, 0) for value in Health},
        "needs_attention": health.attention,
    }


def _links(summaries: Sequence[LinkSummary]) -> dict[str, Any]:
    """Return the fields that count links."""
    counts = Counter(summary.health.status.health for summary in summaries)
    return {
        "links": {value: counts[value] for value in Health},
        "needs_attention": sum(summary.health.status.needs_attention for summary in summaries),
    }


def _cluster(cluster: Cluster, summaries: Sequence[LinkSummary]) -> dict[str, Any]:
    own = [summary for summary in summaries if summary.link.destination_id == cluster.pk]
    return {
        **health_data(cluster_health(cluster, own)),
        "cluster_id": cluster.cluster_id,
        "cluster_name": cluster.name,
        **_links(own),
    }


def _environment(environment: Environment, clusters: Sequence[Cluster], summaries: Sequence[LinkSummary]) -> dict[str, Any]:
    views = [(summary.link.name, link_health_view(summary.health, summary.link)) for summary in summaries]
    return {
        **health_data(environment_health(clusters, views)),
        "environment": environment.slug,
        "environment_name": environment.name,
        **_links(summaries),
    }


# --- views ------------------------------------------------------------------------------------------------------------


class EnvironmentHealthListView(RestView):
    """/environment-health"""

    @operation(
        "listEnvironmentHealth",
        summary="List the health of environments",
        responses={200: EnvironmentHealthDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request) -> Response:
        """Return the health of the visible environments, worst first."""
        by = actor_of(request)
        clusters, summaries = cluster_queries.list_clusters(by=by), link_queries.list_links(by=by)
        data = [
            _environment(
                environment,
                [cluster for cluster in clusters if cluster.environment_id == environment.pk],
                [summary for summary in summaries if summary.link.destination.environment_id == environment.pk],
            )
            for environment in cluster_queries.list_environments(by=by)
        ]
        data.sort(key=lambda row: (SEVERITY[row["health"]], row["environment"]))
        return Response({"data": EnvironmentHealthData(data, many=True).data})


class EnvironmentHealthView(RestView):
    """/environments/{environment}/health"""

    @operation(
        "getEnvironmentHealth",
        summary="Get the health of an environment",
        responses={200: EnvironmentHealthDetailData},
        tag=ADDITIONS,
    )
    def get(self, request: Request, environment: str) -> Response:
        """Return the health of an environment and of its clusters."""
        by = actor_of(request)
        found = cluster_queries.get_environment(slug=environment, by=by)
        clusters = cluster_queries.list_clusters(by=by, environment=found)
        summaries = link_queries.list_links(by=by, environment=found)
        listed = sorted(
            (_cluster(cluster, summaries) for cluster in clusters),
            key=lambda row: (SEVERITY[row["health"]], row["cluster_name"]),
        )
        return Response(EnvironmentHealthDetailData({**_environment(found, clusters, summaries), "clusters": listed}).data)


class ClusterHealthView(RestView):
    """/clusters/{cluster_id}/health"""

    @operation("getClusterHealth", summary="Get the health of a cluster", responses={200: ClusterHealthData}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the health of a cluster. ``link-health`` lists that of its links."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        return Response(ClusterHealthData(_cluster(cluster, link_queries.list_links(by=by, cluster_id=cluster_id))).data)


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
            {
                **health_data(mirror_health_view(mirror.status, link, task_error=mirror.task_error)),
                "mirror_topic_name": mirror.name,
            }
            for mirror in troubled[:MAX_MIRRORS]
        ]
        return Response(LinkHealthDetailData({**_link(link, summary.health), "mirrors": mirrors}).data)

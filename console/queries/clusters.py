"""Registered clusters and their environments."""

from __future__ import annotations

from django.db.models import QuerySet

from console.access import Permission, check_permission, visible_clusters, visible_environments
from console.actors import Actor
from console.errors import NotFoundError
from console.models import Cluster, Environment, SourceTopic


def get_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Answer a cluster by Kafka's id; its environment comes with it."""
    cluster = visible_clusters(by).select_related("environment__organization").filter(cluster_id=cluster_id).first()
    if cluster is None:
        raise NotFoundError(f"Cluster {cluster_id} cannot be found.", code="UNKNOWN_CLUSTER")
    return cluster


def get_whole_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Answer a cluster for what is told of all its topics together; who may see some of them only is refused."""
    cluster = get_cluster(cluster_id=cluster_id, by=by)
    check_permission(by, Permission.VIEW, cluster=cluster)
    return cluster


def list_clusters(*, by: Actor, environment: Environment | None = None) -> list[Cluster]:
    """List clusters by name."""
    clusters = visible_clusters(by).select_related("environment__organization")
    if environment is not None:
        clusters = clusters.filter(environment=environment)
    return list(clusters)


def get_environment(*, slug: str, by: Actor) -> Environment:
    """Answer an environment by its slug."""
    environment = visible_environments(by).select_related("organization").filter(slug=slug).first()
    if environment is None:
        raise NotFoundError(f"Environment {slug} cannot be found.", code="UNKNOWN_ENVIRONMENT")
    return environment


def list_environments(*, by: Actor) -> list[Environment]:
    """List environments by name."""
    return list(visible_environments(by).select_related("organization").order_by("name"))


def listed_topics(cluster: Cluster) -> QuerySet[SourceTopic]:
    """List the topics last seen on a cluster by name, without Kafka's own."""
    return SourceTopic.objects.filter(cluster=cluster, internal=False)

"""Registered clusters and their environments."""

from __future__ import annotations

from django.db.models import QuerySet

from console.access import Permission, check_permission, visible_clusters, visible_environments
from console.actors import Actor
from console.errors import NotFoundError
from console.models import Cluster, Environment, SourceTopic


def get_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Return a cluster by its Kafka cluster ID, with its environment; raise NotFoundError."""
    cluster = visible_clusters(by).select_related("environment__organization").filter(cluster_id=cluster_id).first()
    if cluster is None:
        raise NotFoundError(f"Cluster {cluster_id} cannot be found.", code="UNKNOWN_CLUSTER")
    return cluster


def get_whole_cluster(*, cluster_id: str, by: Actor) -> Cluster:
    """Return a cluster for data of all its topics; raise DeniedError if the actor may see only some of them."""
    cluster = get_cluster(cluster_id=cluster_id, by=by)
    check_permission(by, Permission.VIEW, cluster=cluster)
    return cluster


def list_clusters(*, by: Actor, environment: Environment | None = None) -> list[Cluster]:
    """Return the visible clusters by name."""
    clusters = visible_clusters(by).select_related("environment__organization")
    if environment is not None:
        clusters = clusters.filter(environment=environment)
    return list(clusters)


def get_environment(*, slug: str, by: Actor) -> Environment:
    """Return an environment by its slug; raise NotFoundError."""
    environment = visible_environments(by).select_related("organization").filter(slug=slug).first()
    if environment is None:
        raise NotFoundError(f"Environment {slug} cannot be found.", code="UNKNOWN_ENVIRONMENT")
    return environment


def list_environments(*, by: Actor) -> list[Environment]:
    """Return the visible environments by name."""
    return list(visible_environments(by).select_related("organization").order_by("name"))


def listed_topics(cluster: Cluster) -> QuerySet[SourceTopic]:
    """Return the topics of a cluster as of the last refresh, by name, without internal topics."""
    return SourceTopic.objects.filter(cluster=cluster, internal=False)

"""The rows that an actor may see: environments, clusters, links, topics, mirrors and failover reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from console.access.permissions import Permission, ResourceType, can
from console.actors import Actor
from console.models import (
    BulkOperation,
    Cluster,
    ClusterLink,
    Environment,
    MirrorTopic,
    RoleBinding,
    SourceTopic,
    StopReport,
)
from console.models.mirrors import MirrorTopicQuerySet
from linkengine.domain.messages import gettext_lazy

# --- the rows that an actor may see -----------------------------------------------------------------------------------
#
# Every role includes VIEW, so any binding that covers a row makes it visible.


_NOTHING = Q(pk__in=())


def visible_environments(by: Actor) -> QuerySet[Environment]:
    """Return the environments in which the actor may see at least one row."""
    if by.may_do_all:
        return Environment.objects.all()
    scope = _NOTHING
    for binding in by.bindings:
        if binding.organization_id is not None:
            scope |= Q(organization=binding.organization_id)
        elif binding.environment_id is not None:
            scope |= Q(pk=binding.environment_id)
        elif binding.cluster_id is not None:
            scope |= Q(clusters=binding.cluster_id)
    return Environment.objects.filter(scope).distinct()


def visible_clusters(by: Actor) -> QuerySet[Cluster]:
    """Return the clusters of which the actor may see at least one resource, for example a single topic."""
    if by.may_do_all:
        return Cluster.objects.all()
    scope = _NOTHING
    for binding in by.bindings:
        scope |= _above(binding) or Q(pk=binding.cluster_id)
    return Cluster.objects.filter(scope)


def visible_links(by: Actor) -> QuerySet[ClusterLink]:
    """Return the links that the actor may see: by a role on the cluster, on the link, or on a topic that the link mirrors.

    Each row has ``sees_source``: whether the actor may see the registered source cluster.
    """
    return links_with_sight(by).filter(_sight_of_links(by))


def known_links(by: Actor) -> QuerySet[ClusterLink]:
    """Return ``visible_links`` without ``sees_source``, for values that do not depend on it."""
    return ClusterLink.objects.filter(_sight_of_links(by))


def _sight_of_links(by: Actor) -> Q:
    if by.may_do_all:
        return Q()
    scope = _NOTHING
    for binding in by.bindings:
        scope |= _link_scope(binding)
    return scope


def whole_links(by: Actor) -> QuerySet[ClusterLink]:
    """Return the links of which the actor may see everything: their source topics, consumer groups and configs."""
    if by.may_do_all:
        return ClusterLink.objects.all()
    scope = _NOTHING
    for binding in by.bindings:
        if binding.resource_type != ResourceType.TOPIC:  # a role on a topic shows the link, and not all of it
            scope |= _link_scope(binding)
    return ClusterLink.objects.filter(scope)


def visible_topics(by: Actor) -> QuerySet[SourceTopic]:
    """Return the listed topics of registered clusters that the actor may see, without internal topics."""
    topics = SourceTopic.objects.filter(cluster__isnull=False, internal=False)
    if by.may_do_all:
        return topics
    scope = _NOTHING
    for binding in by.bindings:
        above, cluster = _above(binding, path="cluster__"), Q(cluster=binding.cluster_id)
        if above is not None:
            scope |= above
        elif binding.resource_type in ("", ResourceType.CLUSTER):
            scope |= cluster
        elif binding.resource_type == ResourceType.TOPIC:
            scope |= cluster & _name("name", binding)
    return topics.filter(scope)


def links_with_sight(by: Actor) -> QuerySet[ClusterLink]:
    """Return all links, annotated with ``sees_source``, which ``ClusterLink.known_source`` needs."""
    return ClusterLink.objects.annotate(sees_source=sight_of("source", by))


def sight_of(source: str, by: Actor) -> ExpressionWrapper[Any]:
    """Return the expression for whether the actor may see the registered cluster in the field ``source``."""
    sight = Value(value=True) if by.may_do_all else Exists(visible_clusters(by).filter(pk=OuterRef(source)))
    return ExpressionWrapper(sight, output_field=BooleanField())


def cluster_names(by: Actor) -> dict[str, str]:
    """Return the names of the clusters of which the actor may see at least one resource, by Kafka's cluster id."""
    return dict(visible_clusters(by).values_list("cluster_id", "name"))


def whole_cluster_names(by: Actor) -> dict[str, str]:
    """Return the names of the clusters of which the actor may see all resources, by Kafka's cluster id."""
    clusters = visible_clusters(by).select_related("environment")
    return {cluster.cluster_id: cluster.name for cluster in clusters if can(by, Permission.VIEW, cluster=cluster)}


def link_words(by: Actor, destination: Cluster) -> Callable[[str], str]:
    """Return a function from a link's name to its ``words_for_link``. One query."""
    names = set(visible_links(by).filter(destination=destination).order_by().values_list("name", flat=True))
    return lambda name: words_for_link(name, seen=name in names)


@lru_cache(maxsize=1_000)  # called for each mirror of a cluster
def words_for_link(name: str, *, seen: bool) -> str:
    """Return words for a sentence: the name of a link, or "another cluster link" if it is not visible."""
    return gettext_lazy("cluster link '%(link)s'", link=name) if seen else gettext_lazy("another cluster link")


def visible_mirrors(by: Actor) -> MirrorTopicQuerySet:
    """Return the mirror topics that the actor may see, without the scratch copies of drills."""
    listed = MirrorTopic.objects.listed()
    if by.may_do_all:
        return listed
    scope = _NOTHING
    for binding in by.bindings:
        if binding.resource_type == ResourceType.TOPIC:
            scope |= Q(link__destination=binding.cluster_id) & _name("name", binding)
        else:
            scope |= Q(link__in=ClusterLink.objects.filter(_link_scope(binding)).values("pk"))
    return listed.filter(scope)


def visible_reports(by: Actor) -> QuerySet[StopReport]:
    """Return the failover reports of mirror topics that the actor may see, without those of drills.

    A role counts by name, so it also shows reports whose mirror topic or link was deleted. Reports of an unregistered cluster
    are shown to superusers only.
    """
    reports = StopReport.objects.filter(drill=None)
    if by.may_do_all:
        return reports
    scope = _NOTHING
    for binding in by.bindings:
        if binding.resource_type == ResourceType.TOPIC:
            scope |= Q(destination=binding.cluster_id) & _name("mirror_name", binding)
        else:
            scope |= _by_link_name(binding)
    return reports.filter(scope)


def visible_operations(by: Actor) -> QuerySet[BulkOperation]:
    """Return the operations on links of which the actor may see everything, and the actor's own, newest first.

    The names of topics in an operation of another user may be names that the actor may not see. A role counts by name, as for
    failover reports.
    """
    operations = BulkOperation.objects.select_related(
        "link__destination__environment__organization", "link__source", "destination__environment"
    )
    if by.may_do_all:
        return operations
    scope = Q(user=by.user)
    for binding in by.bindings:
        if binding.resource_type != ResourceType.TOPIC:
            scope |= _by_link_name(binding)
    return operations.filter(scope)


def _by_link_name(binding: RoleBinding, *, field: str = "link_name") -> Q:
    """Return the condition for links, or for rows that store the name and the destination of a link; not for a topic binding.

    ``field`` has the name of the link, which may have been deleted.
    """
    above = _above(binding, path="destination__")
    if above is not None:
        return above
    cluster = Q(destination=binding.cluster_id)
    if binding.resource_type == ResourceType.CLUSTER_LINK:
        return cluster & _name(field, binding)
    return _NOTHING if binding.resource_type == ResourceType.GROUP else cluster


def _link_scope(binding: RoleBinding) -> Q:
    if binding.resource_type == ResourceType.TOPIC:
        mirrors = MirrorTopic.objects.filter(_name("name", binding), link=OuterRef("pk"))
        return Q(Exists(mirrors), destination=binding.cluster_id)
    return _by_link_name(binding, field="name")


def _above(binding: RoleBinding, *, path: str = "") -> Q | None:
    """Return the condition for a binding on an organization or environment; None for a binding on a cluster."""
    if binding.organization_id is not None:
        return Q(**{f"{path}environment__organization": binding.organization_id})
    if binding.environment_id is not None:
        return Q(**{f"{path}environment": binding.environment_id})
    return None


def _name(field: str, binding: RoleBinding) -> Q:
    """Return the condition that ``covers_resource`` applies to a name, as SQL.

    Compares a prefix with LEFT, because LIKE ignores case in SQLite and would match ``PAY.`` with ``pay.``.
    """
    name = binding.resource_name
    if binding.prefixed:
        return Q(Exact(Left(field, len(name)), name)) if name else Q()
    return Q() if name == "*" else Q(**{field: name})

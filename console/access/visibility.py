"""Which rows an actor may know about, as querysets. Every role includes VIEW, so any binding that reaches a row shows it."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from console.access.policies import can
from console.access.roles import Permission
from console.actors import Actor
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, RoleBinding

ResourceType = RoleBinding.ResourceType
_NOTHING = Q(pk__in=())


def visible_environments(by: Actor) -> QuerySet[Environment]:
    """Answer the environments in which the actor may see something."""
    if by.may_do_all:
        return Environment.objects.all()
    scope = _NOTHING
    for one in by.bindings:
        if one.organization_id is not None:
            scope |= Q(organization=one.organization_id)
        elif one.environment_id is not None:
            scope |= Q(pk=one.environment_id)
        elif one.cluster_id is not None:
            scope |= Q(clusters=one.cluster_id)
    return Environment.objects.filter(scope).distinct()


def visible_clusters(by: Actor) -> QuerySet[Cluster]:
    """Answer the clusters in which the actor may see something, be it one topic."""
    if by.may_do_all:
        return Cluster.objects.all()
    scope = _NOTHING
    for one in by.bindings:
        scope |= _above(one) or Q(pk=one.cluster_id)
    return Cluster.objects.filter(scope)


def visible_links(by: Actor) -> QuerySet[ClusterLink]:
    """Answer the links the actor may see: of a whole cluster, by name, or because a topic of theirs is mirrored by it.

    Each row has ``sees_source``: whether the actor may see the registered cluster behind its source.
    """
    if by.may_do_all:
        return with_sight(ClusterLink.objects.all(), by)
    scope = _NOTHING
    for one in by.bindings:
        scope |= _link_scope(one)
    return with_sight(ClusterLink.objects.filter(scope), by)


def with_sight(links: QuerySet[ClusterLink], by: Actor) -> QuerySet[ClusterLink]:
    """Add ``sees_source`` to links; ``ClusterLink.known_source`` needs it."""
    sight = Value(value=True) if by.may_do_all else Exists(visible_clusters(by).filter(pk=OuterRef("source")))
    return links.annotate(sees_source=ExpressionWrapper(sight, output_field=BooleanField()))


def cluster_names(by: Actor) -> dict[str, str]:
    """Return the names of the registered clusters of which the actor may see something, by Kafka's id."""
    return dict(visible_clusters(by).values_list("cluster_id", "name"))


def whole_cluster_names(by: Actor) -> dict[str, str]:
    """Return the names of the registered clusters of which the actor may see everything, by Kafka's id."""
    clusters = visible_clusters(by).select_related("environment")
    return {cluster.cluster_id: cluster.name for cluster in clusters if can(by, Permission.VIEW, cluster=cluster)}


def link_words(by: Actor, destination: Cluster) -> Callable[[str], str]:
    """Return a function that names a link of a cluster in a sentence, or only says that there is one the actor may not see."""
    names = set(visible_links(by).filter(destination=destination).order_by().values_list("name", flat=True))
    return lambda name: f"cluster link '{name}'" if name in names else "another cluster link"


def visible_mirrors(by: Actor) -> QuerySet[MirrorTopic]:
    """Answer the mirror topics the actor may see; scratch copies of drills are not among them."""
    listed = MirrorTopic.objects.filter(drill=None)
    if by.may_do_all:
        return listed
    scope = _NOTHING
    for one in by.bindings:
        if one.resource_type == ResourceType.TOPIC:
            scope |= Q(link__destination=one.cluster_id) & _name("name", one)
        else:
            scope |= Q(link__in=ClusterLink.objects.filter(_link_scope(one)).values("pk"))
    return listed.filter(scope)


def _link_scope(binding: RoleBinding) -> Q:
    above = _above(binding, path="destination__")
    if above is not None:
        return above
    cluster = Q(destination=binding.cluster_id)
    if binding.resource_type == ResourceType.CLUSTER_LINK:
        return cluster & _name("name", binding)
    if binding.resource_type == ResourceType.TOPIC:
        return cluster & Q(Exists(MirrorTopic.objects.filter(_name("name", binding), link=OuterRef("pk"))))
    return _NOTHING if binding.resource_type == ResourceType.GROUP else cluster


def _above(binding: RoleBinding, *, path: str = "") -> Q | None:
    """Answer the condition of a binding above the clusters; None for one on a cluster."""
    if binding.organization_id is not None:
        return Q(**{f"{path}environment__organization": binding.organization_id})
    if binding.environment_id is not None:
        return Q(**{f"{path}environment": binding.environment_id})
    return None


def _name(field: str, binding: RoleBinding) -> Q:
    """Answer the condition that policies put to a name; SQLite's LIKE would take ``PAY.`` for ``pay.``."""
    name = binding.resource_name
    if binding.prefixed:
        return Q(Exact(Left(field, len(name)), name)) if name else Q()
    return Q() if name == "*" else Q(**{field: name})

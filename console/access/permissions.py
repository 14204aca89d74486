"""The permissions of roles: what an actor may do at a place, which roles it may grant, and which rows it may see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Left
from django.db.models.lookups import Exact

from console import audit
from console.actors import Actor
from console.errors import DeniedError
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, Organization, RoleBinding, SourceTopic, StopReport
from console.models.mirrors import MirrorTopicQuerySet

# --- the permissions of each role -------------------------------------------------------------------------------------
#
# Permissions apply to the place where the role was granted and below. Their names are those of Confluent Cloud.


Role = RoleBinding.Role


class Permission(StrEnum):
    """An action that a role can allow. The values are the words of refusals: "the permission to manage links"."""

    VIEW = "view"  # see clusters, links, mirrors, their state and configs without secrets
    MANAGE_LINK = "manage links"  # create, configure and delete cluster links
    MANAGE_MIRROR = "manage mirror topics"  # create and delete mirror topics
    OPERATE_MIRROR = "operate mirror topics"  # pause, resume, promote, fail over
    MANAGE_TOPIC = "manage topics"  # create, delete, configure and grow ordinary topics
    MANAGE_GROUP = "manage consumer groups"  # reset their offsets
    MANAGE_ACLS = "manage ACLs"  # of a cluster
    READ_RECORDS = "read records"  # see contents of records of a mirror topic and of its source
    VERIFY = "verify mirror topics"  # start verification runs
    MANAGE_CLUSTER = "manage clusters"  # register clusters, change their credentials
    USE_CREDENTIALS = (
        "use the stored credentials of clusters"  # create links that sign in with a registered cluster's credentials
    )
    MANAGE_ACCESS = "manage access"  # grant and revoke roles
    VIEW_ACCESS = "view access"  # see role bindings of others and explain access
    MANAGE_USERS = "manage users"  # invite and deactivate users, manage service accounts and groups of the organization
    VIEW_AUDIT = "view the audit"
    MANAGE_ORGANIZATION = "manage the organization"  # create and delete environments


_ALL = frozenset(Permission)
_MIRRORS = frozenset(
    {
        Permission.VIEW,
        Permission.MANAGE_MIRROR,
        Permission.OPERATE_MIRROR,
        Permission.MANAGE_TOPIC,
        Permission.MANAGE_GROUP,
        Permission.READ_RECORDS,
        Permission.VERIFY,
    }
)
_LINKS = _MIRRORS | {Permission.MANAGE_LINK}
ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = MappingProxyType(
    {
        Role.ORGANIZATION_ADMIN: _ALL,
        Role.ENVIRONMENT_ADMIN: _ALL - {Permission.MANAGE_ORGANIZATION, Permission.MANAGE_USERS},
        Role.CLOUD_CLUSTER_ADMIN: _LINKS
        | {Permission.MANAGE_CLUSTER, Permission.USE_CREDENTIALS, Permission.MANAGE_ACLS, Permission.VIEW_AUDIT},
        Role.RESOURCE_OWNER: _LINKS | {Permission.MANAGE_ACCESS, Permission.VIEW_ACCESS},
        Role.DEVELOPER_MANAGE: _MIRRORS,
        Role.OPERATOR: frozenset({Permission.VIEW, Permission.OPERATE_MIRROR, Permission.VERIFY}),
        Role.AUDITOR: frozenset({Permission.VIEW, Permission.VIEW_AUDIT, Permission.VIEW_ACCESS}),
        Role.DEVELOPER_READ: frozenset({Permission.VIEW}),
    }
)
ROLE_DESCRIPTIONS: Mapping[Role, str] = MappingProxyType(
    {
        Role.ORGANIZATION_ADMIN: "Everything in the organization.",
        Role.ENVIRONMENT_ADMIN: "Everything in the environment, including who may do what there.",
        Role.CLOUD_CLUSTER_ADMIN: "Everything with the cluster, its links and its mirror topics; no access rights.",
        Role.RESOURCE_OWNER: "Everything with the named links or topics, including who may do what with them.",
        Role.DEVELOPER_MANAGE: "Create, operate, verify and delete the named topics and mirror topics.",
        Role.OPERATOR: "Pause, resume, promote, fail over and verify mirror topics. Cannot configure, create or delete.",
        Role.AUDITOR: "Read-only: see clusters, links and mirror topics, the audit log and who may do what; no records.",
        Role.DEVELOPER_READ: "See the named links and topics.",
    }
)
if set(ROLE_PERMISSIONS) != set(Role) or set(ROLE_DESCRIPTIONS) != set(Role):
    raise AssertionError("every role needs its permissions and its description")


def permissions_of(binding: RoleBinding) -> frozenset[Permission]:
    """Return the permissions that a binding grants; a scoped API key limits them to those of its own role (``cap``)."""
    allowed = ROLE_PERMISSIONS[Role(binding.role)]
    return allowed & ROLE_PERMISSIONS[Role(binding.cap)] if binding.cap else allowed


# --- whether an actor has a permission --------------------------------------------------------------------------------
#
# Places form a tree: organization > environment > cluster > resource. A refusal names the least powerful role that has the
# permission, and is recorded in the audit log.


ResourceType = RoleBinding.ResourceType
# Least powerful first: a refusal names the first role that has the permission.
_BY_POWER = (
    Role.DEVELOPER_READ,
    Role.AUDITOR,
    Role.OPERATOR,
    Role.DEVELOPER_MANAGE,
    Role.RESOURCE_OWNER,
    Role.CLOUD_CLUSTER_ADMIN,
    Role.ENVIRONMENT_ADMIN,
    Role.ORGANIZATION_ADMIN,
)


FOREVER = datetime.max.replace(tzinfo=UTC)  # the end of a binding without an expiry time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A node of the tree with its ancestors; ``resources`` are pairs (type, name), and a binding on any of them suffices."""

    organization_id: int | None = None
    environment_id: int | None = None
    cluster_id: int | None = None
    resources: tuple[tuple[str, str], ...] = ()
    path: str = ""


def check_permission(  # noqa: PLR0913 - one keyword per level of the tree, of which a caller names one
    by: Actor,
    permission: Permission,
    *,
    cluster: Cluster | None = None,
    environment: Environment | None = None,
    organization: Organization | None = None,
    link: ClusterLink | None = None,
    mirror: MirrorTopic | None = None,
    resource_type: str = "",
    resource_name: str = "",
) -> None:
    """Raise DeniedError and add an audit row unless a role of the actor has the permission at the place."""
    resource = ((resource_type, resource_name),) if resource_type else ()
    place = _place(cluster or environment or organization, link=link, mirror=mirror, resources=resource)
    if _allowed(by, permission, place):
        return
    reason = (
        f"You do not have the permission to {permission} in {place.path}. Ask an administrator for the role "
        f"{role_needed(permission)} there, or a higher one."
    )
    audit.record_denial(by=by, action=permission.name, resource=place.path, reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def can(  # noqa: PLR0913 - see check_permission
    by: Actor,
    permission: Permission,
    *,
    cluster: Cluster | None = None,
    environment: Environment | None = None,
    organization: Organization | None = None,
    link: ClusterLink | None = None,
    mirror: MirrorTopic | None = None,
    resource_type: str = "",
    resource_name: str = "",
) -> bool:
    """Return whether the actor has the permission at the place. The actor's bindings are read once per actor."""
    resource = ((resource_type, resource_name),) if resource_type else ()
    place = _place(cluster or environment or organization, link=link, mirror=mirror, resources=resource)
    return _allowed(by, permission, place)


def allowing(  # noqa: PLR0913 - see check_permission
    bindings: Iterable[RoleBinding],
    permission: Permission,
    *,
    cluster: Cluster | None = None,
    environment: Environment | None = None,
    organization: Organization | None = None,
    link: ClusterLink | None = None,
    mirror: MirrorTopic | None = None,
    resource_type: str = "",
    resource_name: str = "",
) -> list[RoleBinding]:
    """Return those of the bindings that grant the permission at the place. ``can`` is true if there is one."""
    resource = ((resource_type, resource_name),) if resource_type else ()
    place = _place(cluster or environment or organization, link=link, mirror=mirror, resources=resource)
    return [binding for binding in bindings if _grants(binding, permission, place)]


def check_anywhere(by: Actor, permission: Permission) -> None:
    """Raise DeniedError and add an audit row unless a role has the permission somewhere: on a cluster, above it, or on links.

    For actions before the place is chosen, such as the test of an address for a link that is being created.
    """
    places = ("", ResourceType.CLUSTER, ResourceType.CLUSTER_LINK)
    if by.may_do_all or any(
        permission in permissions_of(binding) and binding.resource_type in places for binding in by.bindings
    ):
        return
    reason = (
        f"You do not have the permission to {permission} on any cluster. Ask an administrator for the role "
        f"{role_needed(permission)} on a cluster, or a higher one."
    )
    audit.record_denial(by=by, action=permission.name, resource="this installation", reason=reason)
    raise DeniedError(reason, code="NOT_AUTHORIZED")


def role_needed(permission: Permission) -> Role:
    """Return the least powerful role that has the permission."""
    return next(role for role in _BY_POWER if permission in ROLE_PERMISSIONS[role])


def covers_resource(binding: RoleBinding, resources: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a binding on a cluster covers one of the resources; a binding without a resource covers all."""
    if binding.resource_type in ("", ResourceType.CLUSTER):
        return True
    return any(
        kind == binding.resource_type
        and (name.startswith(binding.resource_name) if binding.prefixed else binding.resource_name in (name, "*"))
        for kind, name in resources
    )


def _allowed(by: Actor, permission: Permission, place: _Place) -> bool:
    if by.may_do_all:
        return True
    return any(_grants(binding, permission, place) for binding in by.bindings)


def _grants(binding: RoleBinding, permission: Permission, place: _Place) -> bool:
    return permission in permissions_of(binding) and _reaches(binding, place)


def _reaches(binding: RoleBinding, place: _Place) -> bool:
    if binding.organization_id is not None:
        return binding.organization_id == place.organization_id
    if binding.environment_id is not None:
        return binding.environment_id == place.environment_id
    return binding.cluster_id == place.cluster_id and covers_resource(binding, place.resources)


def _place(
    node: Cluster | Environment | Organization | None,
    *,
    link: ClusterLink | None,
    mirror: MirrorTopic | None,
    resources: tuple[tuple[str, str], ...],
) -> _Place:
    if mirror is not None:
        link, resources = mirror.link, (*resources, (ResourceType.TOPIC, mirror.name))
    if link is not None:
        node, resources = link.destination, (*resources, (ResourceType.CLUSTER_LINK, link.name))
    if isinstance(node, Cluster):
        path = audit.path_of(mirror or link or node)
        if not (mirror or link) and resources:
            path += "".join(f"/{kind.lower()}/{name}" for kind, name in resources)
        environment = node.environment
        return _Place(
            organization_id=environment.organization_id,
            environment_id=environment.pk,
            cluster_id=node.pk,
            resources=resources,
            path=path,
        )
    if isinstance(node, Environment):
        return _Place(organization_id=node.organization_id, environment_id=node.pk, path=audit.path_of(node))
    if isinstance(node, Organization):
        return _Place(organization_id=node.pk, path=audit.path_of(node))
    return _Place(path="this installation")


# --- whether an actor may grant a role --------------------------------------------------------------------------------
#
# An actor needs MANAGE_ACCESS at the place of the binding and every permission of the role, for at least as long as the
# binding is in force. Otherwise a role that expires could be made permanent. Credentials of an account (an API
# key of a service account) let the actor use all roles of the account, and membership lets a user use all roles of the group,
# so both need the same for each of these roles.


def reach_of(binding: RoleBinding) -> dict[str, Any]:
    """Return the place of a binding as keywords for ``can``.

    A prefixed binding is checked as ``name*``, so that an owner of the single resource ``name`` cannot grant the whole prefix.
    """
    return {
        "organization": binding.organization,
        "environment": binding.environment,
        "cluster": binding.cluster,
        "resource_type": binding.resource_type,
        "resource_name": f"{binding.resource_name}*" if binding.prefixed else binding.resource_name,
    }


def missing_permission(by: Actor, binding: RoleBinding) -> Permission | None:
    """Return the first permission of the binding's role that the actor does not have at its place, or None."""
    reach = reach_of(binding)
    return next((permission for permission in sorted(permissions_of(binding)) if not can(by, permission, **reach)), None)


def may_grant(by: Actor, binding: RoleBinding) -> bool:
    """Return whether the actor may grant or revoke the binding. The end of a grant is checked apart (``held_until``)."""
    return can(by, Permission.MANAGE_ACCESS, **reach_of(binding)) and missing_permission(by, binding) is None


def held_until(by: Actor, binding: RoleBinding) -> datetime:
    """Return until when the actor may grant the binding; for an actor for whom ``may_grant`` is true."""
    if by.may_do_all:
        return FOREVER
    reach, needed = reach_of(binding), {Permission.MANAGE_ACCESS, *permissions_of(binding)}
    return min(max(map(_end_of, allowing(by.bindings, permission, **reach))) for permission in needed)


def covered_until(by: Actor, bindings: Iterable[RoleBinding]) -> datetime | None:
    """Return until when the actor may grant all these bindings; None if one of them may not be granted by the actor."""
    ends = [held_until(by, binding) if may_grant(by, binding) else None for binding in bindings]
    known = [end for end in ends if end is not None]
    return None if len(known) < len(ends) else min(known, default=FOREVER)


def _end_of(binding: RoleBinding) -> datetime:
    return binding.expires_at or FOREVER


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
    if by.may_do_all:
        return links_with_sight(by)
    scope = _NOTHING
    for binding in by.bindings:
        scope |= _link_scope(binding)
    return links_with_sight(by).filter(scope)


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
    """Return a function from a link's name to words for a sentence: its name, or "another cluster link" if not visible."""
    names = set(visible_links(by).filter(destination=destination).order_by().values_list("name", flat=True))
    return lambda name: f"cluster link '{name}'" if name in names else "another cluster link"


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
        above, cluster = _above(binding, path="destination__"), Q(destination=binding.cluster_id)
        if above is not None:
            scope |= above
        elif binding.resource_type == ResourceType.TOPIC:
            scope |= cluster & _name("mirror_name", binding)
        elif binding.resource_type == ResourceType.CLUSTER_LINK:
            scope |= cluster & _name("link_name", binding)
        elif binding.resource_type != ResourceType.GROUP:
            scope |= cluster
    return reports.filter(scope)


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

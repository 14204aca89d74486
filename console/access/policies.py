"""Decides whether an actor may do something somewhere; the refusal names a role that would do and is kept in the audit."""

from __future__ import annotations

from dataclasses import dataclass

from console import audit
from console.access.roles import ROLE_PERMISSIONS, Permission, Role
from console.actors import Actor
from console.errors import DeniedError
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, Organization, RoleBinding

ResourceType = RoleBinding.ResourceType
# The humblest role comes first: the one worth asking for.
_BY_HUMILITY = (
    Role.DEVELOPER_READ,
    Role.DEVELOPER_MANAGE,
    Role.RESOURCE_OWNER,
    Role.CLOUD_CLUSTER_ADMIN,
    Role.ENVIRONMENT_ADMIN,
    Role.ORGANIZATION_ADMIN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A node of the tree with all nodes above it; ``resources`` are (type, name), each of which suffices."""

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
    """Raise DeniedError, and leave an audit row, unless a role of the actor covers the place."""
    resource = ((resource_type, resource_name),) if resource_type else ()
    place = _place(cluster or environment or organization, link=link, mirror=mirror, resources=resource)
    if _allowed(by, permission, place):
        return
    reason = f"You may not {permission} in {place.path}. Ask for the role {role_needed(permission)} there, or a higher one."
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
    """Tell whether ``check_permission`` would pass. The actor's bindings are read once per actor."""
    resource = ((resource_type, resource_name),) if resource_type else ()
    place = _place(cluster or environment or organization, link=link, mirror=mirror, resources=resource)
    return _allowed(by, permission, place)


def role_needed(permission: Permission) -> Role:
    """Answer the humblest role that allows it."""
    return next(role for role in _BY_HUMILITY if permission in ROLE_PERMISSIONS[role])


def covers_resource(binding: RoleBinding, resources: tuple[tuple[str, str], ...]) -> bool:
    """Tell whether a cluster binding reaches one of the resources; one that names none reaches all."""
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
    return any(permission in ROLE_PERMISSIONS[Role(one.role)] and _reaches(one, place) for one in by.bindings)


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

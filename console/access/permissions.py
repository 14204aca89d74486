"""Decides whether an actor has a permission at a place of the tree organization > environment > cluster > resource.

A refusal names the least powerful role that has the permission, and is recorded in the audit log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from console import audit
from console.access.roles import ROLE_PERMISSIONS, Permission, Role, permissions_of
from console.actors import Actor
from console.errors import DeniedError
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, Organization, RoleBinding

ResourceType = RoleBinding.ResourceType
# Least powerful first: a refusal advises to ask for the first role that has the permission.
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

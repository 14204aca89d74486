"""The permissions of roles: what an actor may do at a place, and which roles it may grant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from django.utils.translation import gettext, gettext_noop

from console import audit
from console.actors import Actor
from console.errors import DeniedError
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, Organization, RoleBinding

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
# The pages translate them.
ROLE_DESCRIPTIONS: Mapping[Role, str] = MappingProxyType(
    {
        Role.ORGANIZATION_ADMIN: gettext_noop("Everything in the organization."),
        Role.ENVIRONMENT_ADMIN: gettext_noop("Everything in the environment, including who may do what there."),
        Role.CLOUD_CLUSTER_ADMIN: gettext_noop(
            "Everything with the cluster, its links and its mirror topics; no access rights."
        ),
        Role.RESOURCE_OWNER: gettext_noop("Everything with the named links or topics, including who may do what with them."),
        Role.DEVELOPER_MANAGE: gettext_noop("Create, operate, verify and delete the named topics and mirror topics."),
        Role.OPERATOR: gettext_noop(
            "Pause, resume, promote, fail over and verify mirror topics. Cannot configure, create or delete."
        ),
        Role.AUDITOR: gettext_noop(
            "Read-only: see clusters, links and mirror topics, the audit log and who may do what; no records."
        ),
        Role.DEVELOPER_READ: gettext_noop("See the named links and topics."),
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
    values = {"permission": permission, "place": place.path, "role": role_needed(permission)}
    raise denied(_LACKS_PERMISSION, values, by=by, action=permission.name, resource=place.path)


_LACKS_PERMISSION = gettext_noop(
    "You do not have the permission to %(permission)s in %(place)s. Ask an administrator for the role %(role)s there, or a "
    "higher one."
)


def denied(
    text: str, values: Mapping[str, str], *, by: Actor, action: str, resource: str, field: str | None = None
) -> DeniedError:
    """Record a denial and return its error, which is in the language of the page. The audit log stays English.

    ``text`` is English, marked for translation (``gettext_noop``); ``field`` is the field of a form that caused the denial.
    """
    audit.record_denial(by=by, action=action, resource=resource, reason=text % values)
    return DeniedError(gettext(text) % values, code="NOT_AUTHORIZED", field=field)


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
    text = gettext_noop(
        "You do not have the permission to %(permission)s on any cluster. Ask an administrator for the role %(role)s on a "
        "cluster, or a higher one."
    )
    values = {"permission": permission, "role": role_needed(permission)}
    raise denied(text, values, by=by, action=permission.name, resource="this installation")


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

"""The permissions of each role, which apply to the place where it was granted and below. Names are those of Confluent Cloud."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from console.models import RoleBinding

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

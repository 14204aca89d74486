"""View models of role bindings, roles and API keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.access.roles import ROLE_DESCRIPTIONS, ROLE_PERMISSIONS, Permission, Role
from console.presenters.numbers import Moment, moment

if TYPE_CHECKING:
    from console.models import ApiKey, RoleBinding

# The permissions of a role as its card on the Roles page lists them.
PERMISSION_WORDS: Mapping[Permission, str] = MappingProxyType(
    {
        Permission.VIEW: "View clusters, links, mirror topics and their state",
        Permission.MANAGE_LINK: "Create, edit and delete cluster links",
        Permission.MANAGE_MIRROR: "Add and delete mirror topics",
        Permission.MANAGE_TOPIC: "Create, configure and delete topics",
        Permission.MANAGE_GROUP: "Reset offsets of consumer groups",
        Permission.MANAGE_ACLS: "Create and delete ACLs",
        Permission.OPERATE_MIRROR: "Pause, resume, promote and fail over mirror topics",
        Permission.READ_RECORDS: "View records of a mirror topic and of its source, side by side",
        Permission.VERIFY: "Verify mirror topics",
        Permission.MANAGE_CLUSTER: "Register clusters and change their credentials",
        Permission.USE_CREDENTIALS: "Create links that use the stored credentials of a cluster",
        Permission.MANAGE_ACCESS: "Grant and revoke roles",
        Permission.VIEW_AUDIT: "View the audit log",
        Permission.MANAGE_ORGANIZATION: "Create environments",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRow:
    """A role binding."""

    key: int
    principal: str
    role: str
    scope: str
    resource: str
    granted: Moment | None
    granted_by: str
    removable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """An API key, without its secret."""

    key: str
    owner: str
    description: str
    created: Moment | None
    used: Moment | None
    expires: Moment | None


def binding_row(binding: RoleBinding, *, now: datetime, removable: bool) -> BindingRow:
    """Create the row of a binding. The scope is the path from the organization."""
    return BindingRow(
        key=binding.pk,
        principal=binding.user.get_username(),
        role=binding.role,
        scope=scope_of(binding),
        resource=_resource(binding),
        granted=moment(binding.granted_at, now=now),
        granted_by=binding.granted_by,
        removable=removable,
    )


def scope_of(binding: RoleBinding) -> str:
    """Return the path of the organization, environment or cluster of a binding."""
    if binding.organization:
        return binding.organization.name
    if binding.environment:
        return f"{binding.environment.organization.name} / {binding.environment.name}"
    cluster = binding.cluster
    if cluster is None:
        return ""
    return f"{cluster.environment.organization.name} / {cluster.environment.name} / {cluster.name}"


def key_row(key: ApiKey, *, now: datetime) -> KeyRow:
    """Create the row of an API key."""
    return KeyRow(
        key=key.key,
        owner=key.user.get_username(),
        description=key.description,
        created=moment(key.created_at, now=now),
        used=moment(key.last_used_at, now=now),
        expires=moment(key.expires_at, now=now),
    )


def role_cards() -> list[dict[str, object]]:
    """Return all roles with their descriptions and permissions."""
    return [
        {
            "name": role.value,
            "description": ROLE_DESCRIPTIONS[role],
            "allows": [words for permission, words in PERMISSION_WORDS.items() if permission in ROLE_PERMISSIONS[role]],
        }
        for role in Role
    ]


def _resource(binding: RoleBinding) -> str:
    if not binding.resource_type:
        return "everything"
    return f"{binding.resource_type} {binding.resource_name}{'*' if binding.prefixed else ''}".strip()

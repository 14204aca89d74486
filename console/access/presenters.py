"""View models of role bindings, roles, API keys and audit events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from console.access.permissions import ROLE_DESCRIPTIONS, ROLE_PERMISSIONS, Permission, Role
from console.models import Account, ApiKey, Cluster, Environment, Organization, RoleBinding, UserSession
from console.web.badges import AUDIT_BADGES, Badge
from console.web.numbers import Moment, moment

if TYPE_CHECKING:
    from console.models import AuditEvent


# --- role bindings, roles and API keys --------------------------------------------------------------------------------


# The permissions of a role as its card on the Roles page lists them.
PERMISSION_WORDS: Mapping[Permission, str] = MappingProxyType(
    {
        Permission.VIEW: gettext_noop("View clusters, links, mirror topics and their state"),
        Permission.MANAGE_LINK: gettext_noop("Create, edit and delete cluster links"),
        Permission.MANAGE_MIRROR: gettext_noop("Add and delete mirror topics"),
        Permission.MANAGE_TOPIC: gettext_noop("Create, configure and delete topics"),
        Permission.MANAGE_GROUP: gettext_noop("Reset offsets of consumer groups"),
        Permission.MANAGE_ACLS: gettext_noop("Create and delete ACLs"),
        Permission.OPERATE_MIRROR: gettext_noop("Pause, resume, promote and fail over mirror topics"),
        Permission.READ_RECORDS: gettext_noop("View records of a mirror topic and of its source, side by side"),
        Permission.VERIFY: gettext_noop("Verify mirror topics"),
        Permission.MANAGE_CLUSTER: gettext_noop("Register clusters and change their credentials"),
        Permission.USE_CREDENTIALS: gettext_noop("Create links that use the stored credentials of a cluster"),
        Permission.MANAGE_ACCESS: gettext_noop("Grant and revoke roles"),
        Permission.VIEW_ACCESS: gettext_noop("View role bindings, and who may do what"),
        Permission.MANAGE_USERS: gettext_noop("Invite and deactivate users, manage groups and service accounts"),
        Permission.VIEW_AUDIT: gettext_noop("View the audit log"),
        Permission.MANAGE_ORGANIZATION: gettext_noop("Create environments"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRow:
    """A role binding."""

    key: int
    principal: str
    is_group: bool
    role: str
    scope: str
    resource: str
    granted: Moment | None
    granted_by: str
    expires: Moment | None
    expired: bool
    removable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """An API key, without its secret."""

    key: str
    owner: str
    description: str
    limit: str  # role and place, "" for everything that the owner may do
    created: Moment | None
    used: Moment | None
    expires: Moment | None
    expired: bool
    rotated_to: str  # the key that replaces this one, or ""


def binding_row(binding: RoleBinding, *, now: datetime, removable: bool) -> BindingRow:
    """Create the row of a binding. The scope is the path from the organization."""
    return BindingRow(
        key=binding.pk,
        principal=binding.principal,
        is_group=binding.group_id is not None,
        role=binding.role,
        scope=scope_of(binding),
        resource=_resource(binding),
        granted=moment(binding.granted_at, now=now),
        granted_by=binding.granted_by,
        expires=moment(binding.expires_at, now=now),
        expired=binding.has_expired(now),
        removable=removable,
    )


def scope_of(binding: RoleBinding) -> str:
    """Return the path of the organization, environment or cluster of a binding."""
    return path_of(binding.node)


def path_of(node: Organization | Environment | Cluster | None) -> str:
    """Return the names on the way from the organization to a node; "" for None."""
    if node is None:
        return ""
    if isinstance(node, Cluster):
        return f"{path_of(node.environment)} / {node.name}"
    return f"{node.organization.name} / {node.name}" if isinstance(node, Environment) else node.name


def key_row(key: ApiKey, *, now: datetime) -> KeyRow:
    """Create the row of an API key."""
    return KeyRow(
        key=key.key,
        owner=key.user.get_username(),
        description=key.description,
        limit=_limit(key),
        created=moment(key.created_at, now=now),
        used=moment(key.last_used_at, now=now),
        expires=moment(key.expires_at, now=now),
        expired=key.expires_at is not None and key.expires_at <= now,
        rotated_to=key.rotated_to.key if key.rotated_to else "",
    )


def _limit(key: ApiKey) -> str:
    place = path_of(key.node)
    return gettext("%(role)s in %(place)s") % {"role": key.role, "place": place} if key.role and place else key.role or place


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """A user or a service account. Pages translate kind and status; the CSV file does not."""

    key: int
    name: str
    kind: str
    description: str
    organization: str
    status: str  # Active, Deactivated, Invited, Invitation expired
    since: Moment | None
    last_sign_in: Moment | None
    manageable: bool
    is_active: bool
    is_invited: bool
    is_service: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A session of the user."""

    key: int
    started: Moment | None
    address: str
    program: str
    current: bool


def account_row(user: User, *, now: datetime, manageable: bool) -> AccountRow:
    """Create the row of a user that was loaded with account and invitation."""
    account: Account | None = getattr(user, "account", None)
    invitation = getattr(user, "invitation", None)
    service = account is not None and account.kind == Account.Kind.SERVICE
    if user.is_active:
        status = gettext_noop("Active")
    elif invitation is None:
        status = gettext_noop("Deactivated")
    else:
        status = gettext_noop("Invited") if invitation.expires_at > now else gettext_noop("Invitation expired")
    if service:
        kind = gettext_noop("Service account")
    else:
        kind = gettext_noop("Administrator of this installation") if user.is_superuser else gettext_noop("User")
    return AccountRow(
        key=user.pk,
        name=user.get_username(),
        kind=kind,
        description=account.description if account else "",
        organization=account.organization.name if account and account.organization else "",
        status=status,
        since=moment(account.created_at if account else user.date_joined, now=now),
        last_sign_in=moment(user.last_login, now=now),
        manageable=manageable,
        is_active=user.is_active,
        is_invited=invitation is not None,
        is_service=service,
    )


def session_row(session: UserSession, *, current_key: str | None, now: datetime) -> SessionRow:
    """Create the row of a session."""
    return SessionRow(
        key=session.pk,
        started=moment(session.started_at, now=now),
        address=session.client_address,
        program=session.user_agent,
        current=session.session_key == current_key,
    )


def role_cards() -> list[dict[str, object]]:
    """Return all roles with their descriptions and permissions."""
    return [
        {
            "name": role.value,
            "description": gettext(ROLE_DESCRIPTIONS[role]),
            "allows": [
                gettext(words) for permission, words in PERMISSION_WORDS.items() if permission in ROLE_PERMISSIONS[role]
            ],
        }
        for role in Role
    ]


def _resource(binding: RoleBinding) -> str:
    if not binding.resource_type:
        return gettext("everything")
    return f"{binding.resource_type} {binding.resource_name}{'*' if binding.prefixed else ''}".strip()


# --- audit events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A row of the audit log."""

    key: int
    at: Moment | None
    actor: str
    action: str
    resource: str
    badge: Badge
    detail: Sequence[tuple[str, str]]
    url: str  # of the bulk operation that the event is about; "" if it is about none, or about one that was deleted
    client: str
    request_id: str


def event_row(event: AuditEvent, *, operations: Collection[int], now: datetime) -> EventRow:
    """Create the row of an event. ``operations`` are the keys of those bulk operations that have a page for the user."""
    operation = event.detail.get("bulk_operation")
    return EventRow(
        key=event.pk,
        at=moment(event.at, now=now),
        actor=event.actor,
        action=event.action,
        resource=event.resource,
        badge=AUDIT_BADGES[event.result],
        detail=[(name, _text(value)) for name, value in event.detail.items()],
        url=reverse("pages:operation", args=(operation,)) if operation in operations else "",
        client=event.client_address,
        request_id=event.request_id,
    )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return "" if value is None else str(value)

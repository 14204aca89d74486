"""Grants and revokes roles, manages groups of users, and creates, rotates and deletes API keys and bearer tokens.

Accounts, sessions and passwords: ``account_actions``. Approvals: ``approvals``.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext, gettext_noop

from console import audit
from console.access import Permission, can, check_permission
from console.access.credentials import hash_secret, write_token
from console.access.permissions import FOREVER, covered_until, denied, held_until, may_grant, missing_permission, reach_of
from console.actors import ENGINE, Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import Account, ApiKey, Cluster, Environment, GroupMember, Organization, RoleBinding, UserGroup

# --- roles ------------------------------------------------------------------------------------------------------------


def grant_role(  # noqa: PLR0913 - one keyword per level of the tree
    *,
    user: User | None = None,
    group: UserGroup | None = None,
    role: str,
    organization: Organization | None = None,
    environment: Environment | None = None,
    cluster: Cluster | None = None,
    resource_type: str = "",
    resource_name: str = "",
    prefixed: bool = False,
    expires_at: datetime | None = None,
    by: Actor,
    now: datetime,
) -> RoleBinding:
    """Grant a role to a user or a group on one node of the tree and return the binding.

    Returns the existing binding if the role is granted there already until the same time. A binding with another expiry time is
    replaced. Raises DeniedError if the actor lacks MANAGE_ACCESS there, lacks one of the permissions that the role contains, or
    has one of them for a shorter time than the binding would be in force.
    """
    values: dict[str, Any] = {
        "user": user,
        "group": group,
        "role": role,
        "organization": organization,
        "environment": environment,
        "cluster": cluster,
        "resource_type": resource_type,
        "resource_name": resource_name,
        "prefixed": prefixed,
    }
    binding = RoleBinding(**values, expires_at=expires_at, granted_at=now, granted_by=by.name)
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    existing = RoleBinding.objects.filter(**values).first()
    if existing is not None and existing.expires_at == expires_at:
        return existing
    try:
        return _store(binding, replaces=existing, by=by, now=now)
    except (InvalidInputError, IntegrityError):
        found = RoleBinding.objects.filter(**values, expires_at=expires_at).first()
        if found is None:
            raise
        return found  # another request has granted it since the check


def revoke_role(*, binding: RoleBinding, by: Actor, now: datetime) -> None:
    """Revoke a role; raise DeniedError if the actor could not grant it."""
    check_permission(by, Permission.MANAGE_ACCESS, **reach_of(binding))
    _check_holds_role(by, binding, action="RevokeRole")
    with transaction.atomic():
        _remove(binding, by=by, now=now)


def _store(binding: RoleBinding, *, replaces: RoleBinding | None, by: Actor, now: datetime) -> RoleBinding:
    if binding.expires_at is not None and binding.expires_at <= now:
        message = gettext("The expiry time is in the past. Choose a later time, or none.")
        raise InvalidInputError(message, field="expires_at")
    _check_binding(binding, is_new=replaces is None)
    _check_holds_role(by, binding, action="GrantRole")
    _check_held_as_long(by, binding)
    with transaction.atomic():
        if replaces is not None:
            _remove(replaces, by=by, now=now)
        binding.save()
        audit.record(by=by, action="GrantRole", resource=_path(binding), now=now, detail=_facts(binding))
    return binding


def _remove(binding: RoleBinding, *, by: Actor, now: datetime) -> None:
    audit.record(by=by, action="RevokeRole", resource=_path(binding), now=now, detail=_facts(binding))
    binding.delete()


def _check_holds_role(by: Actor, binding: RoleBinding, *, action: str) -> None:
    missing = missing_permission(by, binding)
    if missing is None:
        return
    path = _path(binding)
    text = gettext_noop(
        "The role %(role)s includes the permission to %(permission)s in %(path)s, which you do not have. Ask an administrator "
        "who has it."
    )
    raise denied(text, {"role": binding.role, "permission": missing, "path": path}, by=by, action=action, resource=path)


def _check_held_as_long(by: Actor, binding: RoleBinding) -> None:
    """Raise DeniedError if the binding would be in force for longer than the actor holds its permissions."""
    until = held_until(by, binding)
    if until == FOREVER or (binding.expires_at is not None and binding.expires_at <= until):
        return
    path = _path(binding)
    text = gettext_noop(
        "Your own role for %(path)s expires at %(time)s UTC, so a role that you grant there must expire by then. Choose an "
        "earlier expiry time, or ask an administrator whose role does not expire."
    )
    values = {"path": path, "time": f"{until:%Y-%m-%d %H:%M}"}
    raise denied(text, values, by=by, action="GrantRole", resource=path, field="expires_at")


def _check_binding(binding: RoleBinding, *, is_new: bool) -> None:
    if bool(binding.resource_type) != bool(binding.resource_name) and binding.resource_type != "Cluster":
        message = gettext("A resource needs both a type and a name. Give both, or neither.")
        raise InvalidInputError(message, field="resource_name")
    if (binding.user is None) == (binding.group is None):
        raise InvalidInputError(gettext("A role binding has either a user or a group. Give one of them."), field="user")
    group, place = binding.group, binding.organization_of_place
    if group is not None and place is not None and group.organization_id != place.pk:
        message = gettext("Group '%(group)s' belongs to another organization. Choose a group of %(organization)s, or a user.")
        raise InvalidInputError(message % {"group": group.name, "organization": place.name}, field="group")
    try:
        binding.full_clean(validate_constraints=is_new)  # a binding that is replaced has met them
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError(" ".join(map(gettext, messages)), field=None if field == "__all__" else field) from None


def _path(binding: RoleBinding) -> str:
    path = audit.path_of(binding.node) if binding.node else "nowhere"  # full_clean rejects a binding without a place
    return f"{path}/{binding.resource_type.lower()}/{binding.resource_name}" if binding.resource_name else path


def _facts(binding: RoleBinding) -> dict[str, str | bool]:
    principal = {"user": binding.principal} if binding.user else {"group": binding.principal}
    expiry = {"expires_at": binding.expires_at.isoformat()} if binding.expires_at else {}
    return {**principal, "role": binding.role, "prefixed": binding.prefixed, **expiry}


# --- groups of users --------------------------------------------------------------------------------------------------
#
# A member has all roles of the group, so only an actor who could grant all of them for as long as they are in
# force may add a member. Removing a member, or deleting a group, needs MANAGE_USERS in the organization.


Origin = GroupMember.Origin


def create_group(
    *, name: str, organization: Organization, description: str = "", external_name: str = "", by: Actor, now: datetime
) -> UserGroup:
    """Create a group without members and roles. ``external_name`` maps a group of the identity provider to it.

    Only superusers map groups: the identity provider decides about their members, in all organizations.
    """
    check_permission(by, Permission.MANAGE_USERS, organization=organization)
    if external_name and not by.may_do_all:
        text = gettext_noop(
            "Only an administrator of this installation may map a group of the identity provider. Ask one of them."
        )
        path = f"{audit.path_of(organization)}/group/{name}"
        raise denied(text, {}, by=by, action="CreateGroup", resource=path, field="external_name")
    group = UserGroup(
        organization=organization,
        name=name,
        description=description,
        external_name=external_name,
        created_at=now,
        created_by=by.name,
    )
    try:
        group.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError(" ".join(map(gettext, messages)), field=None if field == "__all__" else field) from None
    with transaction.atomic():
        group.save(force_insert=True)
        detail = {"organization": organization.name, **({"external_name": external_name} if external_name else {})}
        audit.record(by=by, action="CreateGroup", resource=_group_path(group), now=now, detail=detail)
    return group


def delete_group(*, group: UserGroup, by: Actor, now: datetime) -> None:
    """Delete a group with its role bindings; its members lose these roles.

    Needs MANAGE_USERS in the organization, and the right to revoke each of the group's roles.
    """
    check_permission(by, Permission.MANAGE_USERS, organization=group.organization)
    _check_bindings(group, by=by, action="DeleteGroup", lasting=False, now=now)
    with transaction.atomic():
        members = sorted(group.memberships.values_list("user__username", flat=True))
        audit.record(by=by, action="DeleteGroup", resource=_group_path(group), now=now, detail={"members": members})
        group.delete()


def add_member(*, group: UserGroup, user: User, by: Actor, now: datetime) -> GroupMember:
    """Add a user to a group manually; return the existing membership if there is one."""
    check_permission(by, Permission.MANAGE_USERS, organization=group.organization)
    _check_bindings(group, by=by, action="AddGroupMember", lasting=True, now=now)
    with transaction.atomic():
        values = {"added_at": now, "added_by": by.name, "origin": Origin.MANUAL}
        member, created = GroupMember.objects.get_or_create(group=group, user=user, defaults=values)
        if created:
            detail = {"user": user.get_username()}
            audit.record(by=by, action="AddGroupMember", resource=_group_path(group), now=now, detail=detail)
    return member


def remove_member(*, group: UserGroup, user: User, by: Actor, now: datetime) -> None:
    """Remove a user from a group. The identity provider may add the user again at the next sign-in."""
    check_permission(by, Permission.MANAGE_USERS, organization=group.organization)
    with transaction.atomic():
        deleted, _ = GroupMember.objects.filter(group=group, user=user).delete()
        if not deleted:
            message = gettext("User '%(user)s' is not a member of group '%(group)s'.")
            raise NotFoundError(message % {"user": user.get_username(), "group": group.name})
        detail = {"user": user.get_username()}
        audit.record(by=by, action="RemoveGroupMember", resource=_group_path(group), now=now, detail=detail)


def follow_provider(*, user: User, external_names: Collection[str], now: datetime) -> None:
    """Make the user a member of exactly those mapped groups that the identity provider named, at a sign-in.

    Members that were added manually stay. The mapping itself was made by a superuser (``create_group``).
    """
    mapped = UserGroup.objects.exclude(external_name="")
    with transaction.atomic():
        gone = GroupMember.objects.filter(user=user, origin=Origin.PROVIDER).exclude(group__external_name__in=external_names)
        for member in gone.select_related("group"):
            detail = {"user": user.get_username(), "origin": Origin.PROVIDER}
            audit.record(by=ENGINE, action="RemoveGroupMember", resource=_group_path(member.group), now=now, detail=detail)
        gone.delete()
        for group in mapped.filter(external_name__in=external_names).exclude(memberships__user=user):
            GroupMember.objects.create(group=group, user=user, origin=Origin.PROVIDER, added_at=now, added_by=ENGINE.name)
            detail = {"user": user.get_username(), "origin": Origin.PROVIDER}
            audit.record(by=ENGINE, action="AddGroupMember", resource=_group_path(group), now=now, detail=detail)


def _check_bindings(group: UserGroup, *, by: Actor, action: str, lasting: bool, now: datetime) -> None:
    """Raise DeniedError unless the actor could grant each role of the group; ``lasting``: for as long as it is in force."""
    rows = group.role_bindings.in_force(now).select_related("organization", "environment", "cluster__environment")
    for binding in rows:
        if may_grant(by, binding) and (not lasting or held_until(by, binding) >= (binding.expires_at or FOREVER)):
            continue
        text = gettext_noop(
            "Group '%(group)s' has the role %(role)s, which you could not grant yourself, or not for as long as the group has "
            "it. Ask an administrator who may grant it."
        )
        values = {"group": group.name, "role": binding.role}
        raise denied(text, values, by=by, action=action, resource=_group_path(group))


def _group_path(group: UserGroup) -> str:
    return f"{audit.path_of(group.organization)}/group/{group.name}"


# --- API keys and bearer tokens ---------------------------------------------------------------------------------------
#
# A key acts as its owner. Users have keys of their own. The keys of a service account are created by the administrators of its
# organization who could grant all of its roles: a key lets them use these roles. A limited key (to a role or a place) has at
# most the permissions of its owner, and no request that signs in with an API key creates or rotates another key.


KEY_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
KEY_LENGTH = 16
SECRET_BYTES = 32
LONGEST_OVERLAP = timedelta(days=30)  # of the old and the new secret after a rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimit:
    """The limits of a key: a role, and a place of the tree; the default limits nothing."""

    role: str = ""
    organization: Organization | None = None
    environment: Environment | None = None
    cluster: Cluster | None = None


UNLIMITED = KeyLimit()


def create_api_key(
    *,
    user: User,
    description: str,
    expires_at: datetime | None = None,
    limit: KeyLimit = UNLIMITED,
    by: Actor,
    now: datetime,
) -> tuple[ApiKey, str]:
    """Create an API key of a user and return the row and the secret, of which only a hash is stored.

    Raises DeniedError unless the user is the actor, or a service account whose roles the actor could grant, or the actor is a
    superuser.
    """
    if expires_at is not None and expires_at <= now:
        message = gettext("The expiry time is in the past. Choose a later time, or none.")
        raise InvalidInputError(message, field="expires_at")
    _check_may_issue(user, expires_at=expires_at, by=by, now=now)
    if limit.role and limit.role not in RoleBinding.Role.values:
        message = gettext("'%(value)s' is not a role. Choose one from the list.") % {"value": limit.role}
        raise InvalidInputError(message, field="role")
    row, secret = _new_key(user=user, description=description, expires_at=expires_at, limit=limit, by=by, now=now)
    with transaction.atomic():
        row.save(force_insert=True)
        audit.record(by=by, action="CreateApiKey", resource=f"api-key/{row.key}", now=now, detail=_key_facts(row))
    return row, secret


def rotate_api_key(*, api_key: ApiKey, overlap: timedelta, by: Actor, now: datetime) -> tuple[ApiKey, str]:
    """Replace a key by a new key of the same owner, description, limit and lifetime; return the new row and its secret.

    The old key is accepted for ``overlap`` longer, and never longer than before. Raises ConflictError for a key that was
    rotated already or has expired.
    """
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        message = gettext("The old secret can remain valid for 0 to %(days)s days. Choose a time in that range.")
        raise InvalidInputError(message % {"days": LONGEST_OVERLAP.days}, field="overlap")
    expires_at = now + (api_key.expires_at - api_key.created_at) if api_key.expires_at else None
    _check_may_issue(api_key.user, expires_at=expires_at, by=by, now=now)
    with transaction.atomic():
        old = ApiKey.objects.select_for_update(of=("self",)).get(pk=api_key.pk)
        if old.rotated_to_id is not None or (old.expires_at is not None and old.expires_at <= now):
            message = (
                gettext("API key %(key)s was rotated already; nothing was changed. Rotate the current key or create one.")
                if old.rotated_to_id is not None
                else gettext("API key %(key)s has expired; nothing was changed. Rotate the current key or create one.")
            )
            raise ConflictError(message % {"key": old.key})
        limit = KeyLimit(role=old.role, organization=old.organization, environment=old.environment, cluster=old.cluster)
        new, secret = _new_key(user=old.user, description=old.description, expires_at=expires_at, limit=limit, by=by, now=now)
        new.save(force_insert=True)
        old.rotated_to, old.expires_at = new, min(old.expires_at or FOREVER, now + overlap)
        old.save(update_fields=["rotated_to", "expires_at"])
        detail = {**_key_facts(new), "replaces": old.key, "old_key_expires_at": old.expires_at.isoformat()}
        audit.record(by=by, action="RotateApiKey", resource=f"api-key/{new.key}", now=now, detail=detail)
    return new, secret


def delete_api_key(*, api_key: ApiKey, by: Actor, now: datetime) -> None:
    """Delete an API key; it and its bearer tokens are rejected from then on. A limited key deletes itself only."""
    if not may_manage_keys(api_key.user, by=by):
        raise _key_denied(api_key.user, by=by)
    if by.key is not None and by.key.is_limited and by.key.pk != api_key.pk:
        text = gettext_noop("A limited API key can delete itself only. Use another key, or the console.")
        raise _key_denied(api_key.user, text, by=by)
    with transaction.atomic():
        audit.record(by=by, action="DeleteApiKey", resource=f"api-key/{api_key.key}", now=now)
        api_key.delete()


def create_token(*, key: str, life_s: int, by: Actor, now: datetime) -> str:
    """Create a bearer token for an API key of the actor; it expires after ``life_s`` seconds, or with the key."""
    if not 1 <= life_s <= settings.API_TOKEN_LIFE_S:
        message = (
            f"A token can be valid for 1 to {settings.API_TOKEN_LIFE_S} seconds. Give expires_in_s in that range, or leave it "
            "out."
        )
        raise InvalidInputError(message, field="expires_in_s")
    with transaction.atomic():
        row = ApiKey.objects.select_related("user").get(key=key)
        if not (by.may_do_all or _is_self(row.user, by)):
            raise _key_denied(row.user, by=by)
        audit.record(by=by, action="CreateAccessToken", resource=f"api-key/{key}", now=now, detail={"life_s": life_s})
    return write_token(key, expires_at=now + timedelta(seconds=life_s))


def may_manage_keys(user: User, *, by: Actor) -> bool:
    """Return whether the actor may see and delete the keys of a user: their own, and those of service accounts they manage."""
    if by.may_do_all or _is_self(user, by):
        return True
    account = Account.objects.filter(user=user).select_related("organization").first()
    return _manages_service_account(account, by)


def _manages_service_account(account: Account | None, by: Actor) -> bool:
    if account is None or account.kind != Account.Kind.SERVICE or account.organization is None:
        return False
    return can(by, Permission.MANAGE_USERS, organization=account.organization)


def _check_may_issue(user: User, *, expires_at: datetime | None, by: Actor, now: datetime) -> None:
    """Raise DeniedError unless the actor may get a secret that acts as the user until ``expires_at``."""
    if by.key is not None:
        text = gettext_noop("A request with an API key cannot create API keys. Sign in to the console to do it.")
        raise _key_denied(user, text, by=by)
    if by.may_do_all or _is_self(user, by):
        return
    if user.is_superuser or not may_manage_keys(user, by=by):
        raise _key_denied(user, by=by)
    bindings = RoleBinding.objects.of_user(user).in_force(now)
    until = covered_until(by, bindings.select_related("organization", "environment", "cluster__environment"))
    if until is None:
        text = gettext_noop(
            "Service account '%(name)s' has a role that you could not grant, and a key would let you use it. Ask an "
            "administrator who has all of its permissions."
        )
        raise _key_denied(user, text, by=by, name=user.get_username())
    if until != FOREVER and (expires_at is None or expires_at > until):
        text = gettext_noop(
            "Your own role expires at %(time)s UTC, so the key must expire by then. Choose an earlier expiry time."
        )
        raise _key_denied(user, text, by=by, field="expires_at", time=f"{until:%Y-%m-%d %H:%M}")


def _is_self(user: User, by: Actor) -> bool:
    return by.user is not None and by.user.pk == user.pk


def _key_denied(user: User, text: str = "", *, by: Actor, field: str | None = None, **values: str) -> DeniedError:
    text = text or gettext_noop(
        "You may create and delete only your own API keys, and those of service accounts of organizations whose users you "
        "manage. Ask an administrator of this installation to do it."
    )
    return denied(text, values, by=by, action="MANAGE_API_KEY", resource=f"user/{user.get_username()}", field=field)


def _new_key(
    *, user: User, description: str, expires_at: datetime | None, limit: KeyLimit, by: Actor, now: datetime
) -> tuple[ApiKey, str]:
    secret = secrets.token_urlsafe(SECRET_BYTES)
    row = ApiKey(
        key="".join(secrets.choice(KEY_CHARACTERS) for _ in range(KEY_LENGTH)),
        secret_hash=hash_secret(secret),
        user=user,
        description=description,
        role=limit.role,
        organization=limit.organization,
        environment=limit.environment,
        cluster=limit.cluster,
        created_at=now,
        created_by=by.name,
        expires_at=expires_at,
    )
    return row, secret


def _key_facts(row: ApiKey) -> dict[str, Any]:
    facts: dict[str, Any] = {"user": row.user.get_username()}
    if row.role:
        facts["role"] = row.role
    if row.node is not None:
        facts["scope"] = audit.path_of(row.node)
    if row.expires_at is not None:
        facts["expires_at"] = row.expires_at.isoformat()
    return facts

"""Grants and revokes roles, sets the actor's password, and manages groups of users. API keys: ``key_actions``."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext, gettext_noop

from console import audit
from console.access import Permission, check_permission
from console.access.permissions import FOREVER, denied, held_until, may_grant, missing_permission, reach_of
from console.actors import ENGINE, Actor
from console.errors import InvalidInputError, NotFoundError
from console.models import Cluster, Environment, GroupMember, Organization, RoleBinding, UserGroup

# --- roles and the user's own password --------------------------------------------------------------------------------


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


def change_own_password(*, new: str, by: Actor, now: datetime) -> None:
    """Set the actor's password, which ends the actor's sessions; the caller has checked the current password.

    API keys and bearer tokens stay valid. Raises InvalidInputError for a password that ``AUTH_PASSWORD_VALIDATORS`` rejects.
    """
    user = by.user
    assert user is not None  # only users have passwords
    check_password(new, user, field="new_password")
    with transaction.atomic():
        user.set_password(new)
        user.save(update_fields=["password"])
        audit.record(by=by, action="ChangePassword", resource=f"user/{user.get_username()}", now=now)


def check_password(new: str, user: User, *, field: str) -> None:
    """Raise InvalidInputError for a password that ``AUTH_PASSWORD_VALIDATORS`` rejects."""
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise InvalidInputError(" ".join(error.messages), field=field) from None


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


def _check_binding(binding: RoleBinding, *, is_new: bool = True) -> None:
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

"""Creates and deletes groups of users, and adds and removes members.

A member has all roles of the group, so adding one is allowed only to an actor who could grant all of them for as long as they
are in force. Removing a member, or deleting a group, needs MANAGE_USERS in the organization.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from console import audit
from console.access import Permission, check_permission
from console.access.grants import held_until, may_grant
from console.access.permissions import FOREVER
from console.actors import ENGINE, Actor
from console.errors import DeniedError, InvalidInputError, NotFoundError
from console.models import GroupMember, Organization, UserGroup

Origin = GroupMember.Origin


def create_group(
    *, name: str, organization: Organization, description: str = "", external_name: str = "", by: Actor, now: datetime
) -> UserGroup:
    """Create a group without members and roles. ``external_name`` maps a group of the identity provider to it.

    Only superusers map groups: the identity provider decides about their members, in all organizations.
    """
    check_permission(by, Permission.MANAGE_USERS, organization=organization)
    if external_name and not by.may_do_all:
        reason = "Only an administrator of this installation may map a group of the identity provider. Ask one of them."
        audit.record_denial(by=by, action="CreateGroup", resource=f"{audit.path_of(organization)}/group/{name}", reason=reason)
        raise DeniedError(reason, code="NOT_AUTHORIZED", field="external_name")
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
        raise InvalidInputError(" ".join(messages), field=None if field == "__all__" else field) from None
    with transaction.atomic():
        group.save(force_insert=True)
        detail = {"organization": organization.name, **({"external_name": external_name} if external_name else {})}
        audit.record(by=by, action="CreateGroup", resource=_path(group), now=now, detail=detail)
    return group


def delete_group(*, group: UserGroup, by: Actor, now: datetime) -> None:
    """Delete a group with its role bindings; its members lose these roles.

    Needs MANAGE_USERS in the organization, and the right to revoke each of the group's roles.
    """
    check_permission(by, Permission.MANAGE_USERS, organization=group.organization)
    _check_bindings(group, by=by, action="DeleteGroup", lasting=False, now=now)
    with transaction.atomic():
        members = sorted(group.memberships.values_list("user__username", flat=True))
        audit.record(by=by, action="DeleteGroup", resource=_path(group), now=now, detail={"members": members})
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
            audit.record(by=by, action="AddGroupMember", resource=_path(group), now=now, detail=detail)
    return member


def remove_member(*, group: UserGroup, user: User, by: Actor, now: datetime) -> None:
    """Remove a user from a group. The identity provider may add the user again at the next sign-in."""
    check_permission(by, Permission.MANAGE_USERS, organization=group.organization)
    with transaction.atomic():
        deleted, _ = GroupMember.objects.filter(group=group, user=user).delete()
        if not deleted:
            raise NotFoundError(f"User '{user.get_username()}' is not a member of group '{group.name}'.")
        detail = {"user": user.get_username()}
        audit.record(by=by, action="RemoveGroupMember", resource=_path(group), now=now, detail=detail)


def follow_provider(*, user: User, external_names: Collection[str], now: datetime) -> None:
    """Make the user a member of exactly those mapped groups that the identity provider named, at a sign-in.

    Members that were added manually stay. The mapping itself was made by a superuser (``create_group``).
    """
    mapped = UserGroup.objects.exclude(external_name="")
    with transaction.atomic():
        gone = GroupMember.objects.filter(user=user, origin=Origin.PROVIDER).exclude(group__external_name__in=external_names)
        for member in gone.select_related("group"):
            detail = {"user": user.get_username(), "origin": Origin.PROVIDER}
            audit.record(by=ENGINE, action="RemoveGroupMember", resource=_path(member.group), now=now, detail=detail)
        gone.delete()
        for group in mapped.filter(external_name__in=external_names).exclude(memberships__user=user):
            GroupMember.objects.create(group=group, user=user, origin=Origin.PROVIDER, added_at=now, added_by=ENGINE.name)
            detail = {"user": user.get_username(), "origin": Origin.PROVIDER}
            audit.record(by=ENGINE, action="AddGroupMember", resource=_path(group), now=now, detail=detail)


def _check_bindings(group: UserGroup, *, by: Actor, action: str, lasting: bool, now: datetime) -> None:
    """Raise DeniedError unless the actor could grant each role of the group; ``lasting``: for as long as it is in force."""
    rows = group.role_bindings.in_force(now).select_related("organization", "environment", "cluster__environment")
    for binding in rows:
        if may_grant(by, binding) and (not lasting or held_until(by, binding) >= (binding.expires_at or FOREVER)):
            continue
        reason = (
            f"Group '{group.name}' has the role {binding.role}, which you could not grant yourself, or not for as long as the "
            "group has it. Ask an administrator who may grant it."
        )
        audit.record_denial(by=by, action=action, resource=_path(group), reason=reason)
        raise DeniedError(reason, code="NOT_AUTHORIZED")


def _path(group: UserGroup) -> str:
    return f"{audit.path_of(group.organization)}/group/{group.name}"

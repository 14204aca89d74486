"""Checks whether an actor may grant or revoke a role, or get the credentials of an account.

An actor needs MANAGE_ACCESS at the place of the binding and every permission of the role, for at least as long as the binding
is in force. Otherwise a role that expires could be turned into a permanent one. Credentials of an account (an API key of a
service account) let the actor use all roles of the account, and membership lets a user use all roles of the group, so both need
the same for each of these roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from console.access.permissions import FOREVER, allowing, can
from console.access.roles import Permission, permissions_of
from console.actors import Actor
from console.models import RoleBinding


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

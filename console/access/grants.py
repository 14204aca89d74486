"""Checks whether an actor may grant or revoke a role: it needs MANAGE_ACCESS there and every permission of the role."""

from __future__ import annotations

from typing import Any

from console.access.permissions import can
from console.access.roles import ROLE_PERMISSIONS, Permission, Role
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
    allowed = sorted(ROLE_PERMISSIONS[Role(binding.role)])
    return next((permission for permission in allowed if not can(by, permission, **reach)), None)


def may_grant(by: Actor, binding: RoleBinding) -> bool:
    """Return whether the actor may grant or revoke the binding."""
    return can(by, Permission.MANAGE_ACCESS, **reach_of(binding)) and missing_permission(by, binding) is None

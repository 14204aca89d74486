"""Who may hand a role on, or take it away: whoever manages access at its place and may do there all that the role allows."""

from __future__ import annotations

from typing import Any

from console.access.policies import can
from console.access.roles import ROLE_PERMISSIONS, Permission, Role
from console.actors import Actor
from console.models import RoleBinding


def reach_of(binding: RoleBinding) -> dict[str, Any]:
    """Answer where a binding reaches, as the keywords of ``can``; the owner of one name has no say about its prefix."""
    return {
        "organization": binding.organization,
        "environment": binding.environment,
        "cluster": binding.cluster,
        "resource_type": binding.resource_type,
        "resource_name": f"{binding.resource_name}*" if binding.prefixed else binding.resource_name,
    }


def withheld(by: Actor, binding: RoleBinding) -> Permission | None:
    """Answer something that the role of a binding allows at its place and the actor may not do there; None if nothing."""
    reach = reach_of(binding)
    allowed = sorted(ROLE_PERMISSIONS[Role(binding.role)])
    return next((one for one in allowed if not can(by, one, **reach)), None)


def may_hand_on(by: Actor, binding: RoleBinding) -> bool:
    """Tell whether the actor may grant, or revoke, what a binding gives."""
    return can(by, Permission.MANAGE_ACCESS, **reach_of(binding)) and withheld(by, binding) is None

"""The operations that an actor can perform on a mirror now, with the reasons why others are not possible."""

from __future__ import annotations

from dataclasses import dataclass

from console.access import can, role_needed
from console.actors import Actor
from console.mirrors.rules import OFFERED, permission_for, why_not
from console.models import MirrorTopic
from linkengine.domain.states import MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationChoice:
    """An operation, whether it is possible now, and if not, why."""

    event: MirrorEvent
    allowed: bool
    reason: str = ""


def allowed(mirror: MirrorTopic, by: Actor) -> list[OperationChoice]:
    """Return the operations. Queries only the actor's bindings if the link and the clusters of the mirror are loaded."""
    return [_choice(mirror, event, by) for event in OFFERED]


def _choice(mirror: MirrorTopic, event: MirrorEvent, by: Actor) -> OperationChoice:
    permission = permission_for(event)
    if not can(by, permission, mirror=mirror):
        return OperationChoice(
            event=event, allowed=False, reason=f"Requires the role {role_needed(permission)} or a higher one."
        )
    reason = why_not(mirror, event)
    return OperationChoice(event=event, allowed=not reason, reason=reason)

"""Operations that need a second approver, and whether an approval is there.

An environment lists the operations (``Environment.approval_operations``). They are refused for every user, superusers included,
without an approval by another user that is in force. The engine's own operations need none. Pages, REST and operations on
several topics all operate through ``console.actions``, which checks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.utils import timezone

from console import audit
from console.actors import Actor
from console.errors import DeniedError
from console.models import ApprovalRequest, ClusterLink, Environment, MirrorTopic
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent

_E = MirrorEvent
APPROVABLE = (_E.PROMOTE, _E.FAILOVER, _E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE, _E.RESTORE, _E.DELETE)
CODE = "APPROVAL_NEEDED"


def needs_approval(link: ClusterLink, operation: MirrorEvent, *, by: Actor) -> bool:
    """Return whether the operation on mirrors of the link needs an approval.

    A reversal or restore changes the topics of both sides, so the environments of both count. No query for other operations.
    """
    if by.trusted or operation not in APPROVABLE:
        return False
    environments: list[Environment] = [link.destination.environment]
    if operation in BIDIRECTIONAL_ONLY and link.source is not None:
        environments.append(link.source.environment)
    return any(operation.value in environment.approval_operations for environment in environments)


def check_approved(mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor) -> None:
    """Raise DeniedError and add an audit row if the operation needs an approval that the actor does not have."""
    if mirror.drill_id is not None or approved([mirror], operation, by=by):
        return
    environment = mirror.link.destination.environment.name
    reason = (
        f"Nothing was changed: this operation needs the approval of a second user in environment {environment}. Request it "
        "under Access, Approvals, and repeat the operation when it is approved."
    )
    audit.record_denial(by=by, action=f"{operation.value} without approval", resource=audit.path_of(mirror), reason=reason)
    raise DeniedError(reason, code=CODE)


def approved(mirrors: Sequence[MirrorTopic], operation: MirrorEvent, *, by: Actor) -> list[MirrorTopic]:
    """Return those of the mirrors, which share a link, that need no approval or for which the actor has one. One query."""
    if not mirrors or not needs_approval(mirrors[0].link, operation, by=by):
        return list(mirrors)
    if by.user is None:
        return []
    found = _in_force(mirrors[0].link, operation, by=by)
    return [mirror for mirror in mirrors if any(request.covers(mirror) for request in found)]


def _in_force(link: ClusterLink, operation: MirrorEvent, *, by: Actor) -> Iterable[ApprovalRequest]:
    """Return the approvals of the actor that are in force. The approver must still be an active user."""
    requests = ApprovalRequest.objects.in_force(timezone.now())
    return list(requests.filter(link=link, operation=operation.value, user=by.user, decided_by__is_active=True))

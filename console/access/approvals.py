"""Operations that need a second approver, and whether an approval is there.

An environment lists the operations (``Environment.approval_operations``). They are refused for every user, superusers included,
without an approval by another user that is in force. The engine's own operations need none. The actions of mirrors and links
check it (``check_approved``), so it applies to pages, REST and operations on several topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import OuterRef, Q, Subquery
from django.utils import timezone

from console import audit
from console.access import can
from console.actors import Actor
from console.errors import DeniedError
from console.mirrors.rules import permission_for
from console.models import ApprovalRequest, ClusterLink, Environment, MirrorTopic, StateTransition
from console.models.approvals import AsArray
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent

_E = MirrorEvent
APPROVABLE = (_E.PROMOTE, _E.FAILOVER, _E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE, _E.RESTORE, _E.DELETE)
CODE = "APPROVAL_NEEDED"
Status = ApprovalRequest.Status


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
    reason = join_messages(" ", (gettext_lazy("Nothing was changed."), refusal_of(mirror.link)))
    audit.record_denial(by=by, action=f"{operation.value} without approval", resource=audit.path_of(mirror), reason=reason)
    raise DeniedError(reason, code=CODE)


def refusal_of(link: ClusterLink) -> str:
    """Return why an operation on a mirror of the link is refused without an approval, and what to do."""
    return gettext_lazy(
        "This operation needs the approval of a second user in environment %(environment)s. Request it "
        "under Access, Approvals, and repeat the operation when it is approved.",
        environment=link.destination.environment.name,
    )


def approved(mirrors: Sequence[MirrorTopic], operation: MirrorEvent, *, by: Actor) -> list[MirrorTopic]:
    """Return those of the mirrors, which share a link, that need no approval or for which the actor has one."""
    if not mirrors or not needs_approval(mirrors[0].link, operation, by=by):
        return list(mirrors)
    if by.user is None:
        return []
    return covered(mirrors, open_requests(mirrors[0].link, operation, by=by))


def covered(mirrors: Sequence[MirrorTopic], requests: Sequence[ApprovalRequest]) -> list[MirrorTopic]:
    """Return those of the mirrors that an approved request covers, and on which the operation has not begun since.

    So an approval is used up for a mirror topic when the operation begins. ``requests`` are from ``open_requests``. No query.
    """
    given = [(request, frozenset(request.begun or ())) for request in requests if request.is_approved]  # type: ignore[attr-defined]
    return [mirror for mirror in mirrors if any(request.covers(mirror) and mirror.pk not in begun for request, begun in given)]


def open_requests(link: ClusterLink, operation: MirrorEvent, *, by: Actor) -> list[ApprovalRequest]:
    """Return the requests of the actor that have not ended, approved ones included, whose approver is still an active user.

    Each has the primary keys of the mirrors of the link on which the operation has ``begun`` since the decision. One query.
    """
    steps = StateTransition.objects.filter(mirror__link=link, event=operation.value, at__gte=OuterRef("decided_at"))
    rows = ApprovalRequest.objects.filter(link=link, operation=operation.value, user=by.user, expires_at__gt=timezone.now())
    requested, given = Q(status=Status.REQUESTED), Q(status=Status.APPROVED, decided_by__is_active=True)
    begun = Subquery(steps.order_by().values(json=AsArray("mirror_id")))
    return list(rows.filter(requested | given).select_related("decided_by").annotate(begun=begun))


def may_decide(request: ApprovalRequest, *, by: Actor) -> bool:
    """Return whether the actor may approve or reject: another user with the permission for the operation on the whole link."""
    if by.user is None or by.key is not None or by.user.pk == request.user_id:
        return False
    return can(by, permission_for(MirrorEvent(request.operation)), link=request.link)


def undecided(*, by: Actor) -> int:
    """Return the number of requests that wait for a decision of the actor.

    Every page shows it, so it needs no query of its own: the bindings have the requests. Superusers need no bindings.
    """
    if by.may_do_all:
        waiting = ApprovalRequest.objects.waiting(timezone.now())
        return sum(may_decide(request, by=by) for request in waiting.select_related("link__destination__environment"))
    return sum(may_decide(request, by=by) for request in by.waiting_requests)

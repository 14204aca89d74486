"""Approvals by a second user: which operations need them, whether one is there, and requests and decisions.

An environment lists the operations (``Environment.approval_operations``). They are refused for every user, superusers included,
without an approval by another user that is in force. The engine's own operations need none. The actions of mirrors and links
check it (``check_approved``), so it applies to pages, REST and operations on several topics.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import OuterRef, Q, Subquery
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from console import audit
from console.access import Permission, can, check_permission, visible_mirrors
from console.access.permissions import denied
from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError
from console.mirrors.rules import permission_for
from console.models import ApprovalRequest, ClusterLink, Environment, MirrorTopic, RoleBinding, StateTransition
from console.models.access import AsArray
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent

# --- whether an operation needs an approval, and has one --------------------------------------------------------------


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


# --- requests, decisions, and the rule of an environment --------------------------------------------------------------


MOST_TOPICS = 1_000
WAITS = timedelta(hours=24)  # a request without a decision expires
LONGEST = timedelta(hours=24)  # of an approval


def set_approval_operations(*, environment: Environment, operations: Collection[str], by: Actor, now: datetime) -> None:
    """Choose the operations that need an approval in the environment.

    Needs MANAGE_ORGANIZATION: users whom the rule restricts should not be able to remove it.
    """
    check_permission(by, Permission.MANAGE_ORGANIZATION, organization=environment.organization)
    unknown = set(operations) - {operation.value for operation in APPROVABLE}
    if unknown:
        message = gettext("'%(value)s' is not an operation that can need an approval.") % {"value": sorted(unknown)[0]}
        raise InvalidInputError(message, field="operations")
    with transaction.atomic():
        row = Environment.objects.select_for_update().get(pk=environment.pk)
        before, row.approval_operations = row.approval_operations, sorted(operations)
        row.save(update_fields=["approval_operations"])
        detail = {"from": before, "to": row.approval_operations}
        audit.record(by=by, action="SetApprovalOperations", resource=audit.path_of(row), now=now, detail=detail)


def request_approval(
    *, link: ClusterLink, operation: MirrorEvent, topics: Sequence[str], reason: str, by: Actor, now: datetime
) -> ApprovalRequest:
    """Request the approval of an operation on mirror topics of a link, or on all that it has now if ``topics`` is empty.

    The actor needs the permission for the operation, and every operation is checked again when it is carried out. A request may
    come with an API key; the decision may not (``may_decide``).
    """
    if by.user is None:
        raise _denied(link, gettext_noop("Approvals are requested by users."), by=by)
    _check_may_operate(link, operation, topics, by=by)
    if not needs_approval(link, operation, by=by):
        raise InvalidInputError(gettext("This operation needs no approval here. Carry it out directly."), field="operation")
    if not reason.strip():
        message = gettext("Give the reason for the operation. The approver and the audit log see it.")
        raise InvalidInputError(message, field="reason")
    if len(topics) > MOST_TOPICS:
        message = gettext("Name at most %(count)s topics, or none for all of the link.") % {"count": f"{MOST_TOPICS:,}"}
        raise InvalidInputError(message, field="topics")
    _check_topics(link, operation, topics, by=by)
    with transaction.atomic():
        request = ApprovalRequest.objects.create(
            link=link,
            operation=operation.value,
            topics=sorted(set(topics)),
            reason=reason.strip(),
            user=by.user,
            requested_at=now,
            expires_at=now + WAITS,
        )
        _record("RequestApproval", request, by=by, now=now, reason=request.reason)
    return request


def approve(*, request: ApprovalRequest, reason: str, lasts: timedelta, by: Actor, now: datetime) -> None:
    """Approve a request of another user. It lets that user carry out the operation for the time ``lasts``."""
    if not timedelta(0) < lasts <= LONGEST:
        message = gettext("An approval can be in force for up to 24 hours. Choose a time in that range.")
        raise InvalidInputError(message, field="lasts")
    _check_may_decide(request, by=by)
    _decide(request, Status.APPROVED, reason=reason, expires_at=now + lasts, by=by, now=now)


def reject(*, request: ApprovalRequest, reason: str, by: Actor, now: datetime) -> None:
    """Reject a request of another user, with a reason."""
    if not reason.strip():
        raise InvalidInputError(gettext("Give the reason for the rejection, which the requester sees."), field="reason")
    _check_may_decide(request, by=by)
    _decide(request, Status.REJECTED, reason=reason, expires_at=now, by=by, now=now)


def withdraw(*, request: ApprovalRequest, by: Actor, now: datetime) -> None:
    """Withdraw a request, or end an approval, as its requester or as a user with the right to decide about it."""
    if by.user is None or by.user.pk != request.user_id:
        _check_may_decide(request, by=by)
    with transaction.atomic():
        unexpired = ApprovalRequest.objects.filter(pk=request.pk, expires_at__gt=now)
        if not unexpired.filter(status__in=(Status.REQUESTED, Status.APPROVED)).update(status=Status.WITHDRAWN):
            message = gettext("This request was rejected or withdrawn, or has expired, so nothing was changed.")
            raise ConflictError(message)
        _record("WithdrawApproval", request, by=by, now=now)


def _check_may_decide(request: ApprovalRequest, *, by: Actor) -> None:
    if may_decide(request, by=by):
        return
    text = gettext_noop(
        "You cannot decide about this request. Another user than the requester, with the permission for the operation on the "
        "whole link, decides about it in the console."
    )
    raise _denied(request.link, text, by=by)


def _decide(request: ApprovalRequest, status: Status, *, reason: str, expires_at: datetime, by: Actor, now: datetime) -> None:
    values = {"status": status, "decided_by": by.user, "decided_at": now, "decision_reason": reason.strip()}
    with transaction.atomic():
        waiting = ApprovalRequest.objects.filter(pk=request.pk, status=Status.REQUESTED, expires_at__gt=now)
        if not waiting.update(**values, expires_at=expires_at):
            message = gettext("This request was decided or withdrawn, or has expired, so nothing was changed.")
            raise ConflictError(message)
        action = "ApproveOperation" if status is Status.APPROVED else "RejectOperation"
        _record(action, request, by=by, now=now, reason=reason.strip(), until=expires_at.isoformat())


def _check_may_operate(link: ClusterLink, operation: MirrorEvent, topics: Sequence[str], *, by: Actor) -> None:
    permission, kind = permission_for(operation), RoleBinding.ResourceType.TOPIC
    for name in topics:
        check_permission(by, permission, link=link, resource_type=kind, resource_name=name)
    if not topics:
        check_permission(by, permission, link=link)


def _check_topics(link: ClusterLink, operation: MirrorEvent, topics: Sequence[str], *, by: Actor) -> None:
    """Raise InvalidInputError for a name that is no mirror topic: an approval of it would cover nothing.

    A restore is requested for topics that may not have been mirrors.
    """
    if operation is MirrorEvent.RESTORE:
        return
    known = set(visible_mirrors(by).filter(link=link, name__in=topics).values_list("name", flat=True))
    unknown = sorted(set(topics) - known)
    if unknown:
        message = gettext("Topic '%(topic)s' is not a mirror topic of cluster link '%(link)s'. Correct the name or omit it.")
        raise InvalidInputError(message % {"topic": unknown[0], "link": link.name}, field="topics")


def _denied(link: ClusterLink, text: str, *, by: Actor) -> DeniedError:
    return denied(text, {}, by=by, action="DecideApproval", resource=audit.path_of(link))


def _record(action: str, request: ApprovalRequest, *, by: Actor, now: datetime, **more: str) -> None:
    what = {"operation": request.operation, "topics": request.topics or "all", "requested_by": request.user.get_username()}
    detail = {"request": request.pk, **what, **more}
    audit.record(by=by, action=action, resource=audit.path_of(request.link), now=now, detail=detail)

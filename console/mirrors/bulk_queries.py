"""Operations on several mirror topics, and their results per topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from django.db.models import Case, CharField, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from console.access import visible_mirrors, visible_operations
from console.actors import Actor
from console.errors import NotFoundError
from console.models import AuditEvent, BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import MirrorEvent, MirrorState

# --- what followed a request ------------------------------------------------------------------------------------------
#
# A request is accepted at once; a promotion may then wait for hours. The outcome of a topic is derived from the present state
# of its mirror, as long as no other operation has changed the mirror since (``MirrorTopic.operated_at``).


Status = BulkOperationTopic.Status
_E, _S = MirrorEvent, MirrorState


class Outcome(StrEnum):
    """What followed the request for a topic; the first four are those of ``BulkOperationTopic.Status``."""

    WAITING = "WAITING"
    ACCEPTED = "ACCEPTED"  # of an operation that is complete when it is accepted, or whose result is not in the state
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    REQUESTED = "REQUESTED"  # accepted, and not at its end yet
    ENDED = "ENDED"  # the mirror is in a state that the operation leads to, or was deleted by it
    MIRROR_FAILED = "MIRROR_FAILED"  # the mirror is FAILED, or the cluster refused to delete its topic
    CHANGED = "CHANGED"  # another operation has changed the mirror since, or it is gone
    LINK_DELETED = "LINK_DELETED"  # accepted; what followed is not known, since the rows of the mirrors are gone with the link


FAILURES = frozenset({Outcome.FAILED, Outcome.MIRROR_FAILED})
_MIRRORING = frozenset({_S.ACTIVE, _S.SOURCE_UNAVAILABLE, _S.LINK_FAILED})
# The states in which an operation has ended. A reversal stops the mirror in the transaction that makes its source a mirror.
ENDS: Mapping[str, frozenset[MirrorState]] = MappingProxyType(
    {
        BulkOperation.CREATE: _MIRRORING,
        _E.PROMOTE: frozenset({_S.STOPPED}),
        _E.FAILOVER: frozenset({_S.STOPPED}),
        _E.REVERSE_AND_START: frozenset({_S.STOPPED}),
        _E.REVERSE_AND_PAUSE: frozenset({_S.STOPPED}),
        _E.RESTORE: _MIRRORING,
        _E.DELETE: frozenset(),  # the mirror is gone
    }
)


def with_outcome(topics: QuerySet[BulkOperationTopic]) -> QuerySet[Any]:
    """Add ``outcome`` to topics of operations. A join of mirrors and operations, and no further query."""
    deletes, gone = Q(operation__operation=_E.DELETE), Q(mirror__state__isnull=True)
    creates = Q(operation__operation=BulkOperation.CREATE)
    unchanged = (creates & Q(mirror__operated_at__isnull=True) & ~gone) | (~creates & Q(mirror__operated_at=F("done_at")))
    ended = Q(pk__in=())
    for operation, states in ENDS.items():
        ended |= Q(operation__operation=operation, mirror__state__in=states)
    outcome = Case(
        When(~Q(status=Status.ACCEPTED) | ~Q(operation__operation__in=list(ENDS)), then=F("status")),
        When(operation__link__isnull=True, then=Value(Outcome.LINK_DELETED)),
        When(deletes & gone & Q(mirror_id__isnull=False), then=Value(Outcome.ENDED)),
        When(deletes & Q(mirror__deletion_requested_at__isnull=False), then=Value(Outcome.REQUESTED)),
        When(unchanged & (deletes | Q(mirror__state=_S.FAILED)), then=Value(Outcome.MIRROR_FAILED)),
        When(unchanged & ended, then=Value(Outcome.ENDED)),
        When(unchanged, then=Value(Outcome.REQUESTED)),
        default=Value(Outcome.CHANGED),
        output_field=CharField(),
    )
    return topics.annotate(outcome=outcome)


# --- operations on several mirror topics ------------------------------------------------------------------------------


def get_operation(*, operation_id: int, by: Actor) -> BulkOperation:
    """Return an operation with its link; raise NotFoundError if it is not visible."""
    operation = visible_operations(by).filter(pk=operation_id).first()
    if operation is None:
        raise NotFoundError(
            gettext_lazy("Operation %(operation_id)s does not exist, or is older than 90 days.", operation_id=operation_id),
            code="UNKNOWN_OPERATION",
        )
    return operation


def deletion_of_link(operation: BulkOperation) -> AuditEvent | None:
    """Return the audit event of the deletion of the operation's link; None if it has its link, or without the event. One query.

    A link of the same name may have been created and deleted since, so it is the first deletion after the request.
    """
    if operation.link_id is not None:
        return None
    resource = f"cluster/{operation.destination_cluster_id}/link/{operation.link_name}"
    found = AuditEvent.objects.filter(action="DeleteClusterLink", resource=resource, result=AuditEvent.Result.SUCCESS)
    return found.filter(at__gte=operation.requested_at).order_by("at", "pk").first()


def count_topics(operations: Iterable[BulkOperation]) -> dict[int, Counter[str]]:
    """Return the number of topics by ``Outcome`` of each operation, by primary key. One query."""
    found: dict[int, Counter[str]] = {operation.pk: Counter() for operation in operations}
    rows = with_outcome(BulkOperationTopic.objects.filter(operation__in=list(found)).order_by())
    for key, outcome, number in rows.values_list("operation", "outcome").annotate(number=Count("pk")):
        found[key][outcome] = number
    return found


def with_counts(operations: QuerySet[BulkOperation]) -> QuerySet[BulkOperation]:
    """Add ``topic_count``, ``done`` (the topics that are not waiting) and ``failed`` to operations. No further query."""
    topics = BulkOperationTopic.objects.filter(operation=OuterRef("pk"))
    return operations.annotate(
        topic_count=_number_of(topics),
        done=_number_of(topics.exclude(status=Status.WAITING)),
        failed=_number_of(topics.filter(status=Status.FAILED)),
    )


def operation_status(operation: BulkOperation, outcomes: Collection[str]) -> str:
    """Return the status of an operation whose topics have these outcomes: the first of ``STATUSES`` that applies."""
    for status, deciding in STATUSES.items():
        if not deciding.isdisjoint(outcomes) or (status == "CANCELED" and operation.canceled_by):
            return status
    return "FINISHED"


# The status of an operation is the first of which a topic has an outcome; an operation that a user canceled is CANCELED.
STATUSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "RUNNING": frozenset({Outcome.WAITING}),
        "REQUESTED": frozenset({Outcome.REQUESTED}),
        "CANCELED": frozenset(),
        "FINISHED_WITH_FAILURES": FAILURES,
        "CHANGED": frozenset({Outcome.CHANGED}),
        "LINK_DELETED": frozenset({Outcome.LINK_DELETED}),
        "FINISHED": frozenset(),
    }
)


def has_status(wanted: str) -> Q:
    """Return the condition for operations with a status, by the rule of ``operation_status``."""
    topics = with_outcome(BulkOperationTopic.objects.filter(operation=OuterRef("pk")))
    earlier = Q()
    for status, deciding in STATUSES.items():
        applies = ~Q(canceled_by="") if status == "CANCELED" else Q(Exists(topics.filter(outcome__in=list(deciding))))
        if status == wanted:
            return earlier if status == "FINISHED" else earlier & applies
        earlier &= ~applies
    return Q(pk__in=())


def _number_of(topics: QuerySet[BulkOperationTopic]) -> Coalesce:
    counts = topics.order_by().values("operation").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts, output_field=IntegerField()), 0)


def topics_of(operation: BulkOperation) -> QuerySet[Any]:
    """Return the topics of an operation with ``outcome`` and ``rank`` (0 for failures), failed topics first, then by name."""
    rank = Case(When(outcome__in=list(FAILURES), then=Value(0)), default=Value(1))
    found: QuerySet[Any] = with_outcome(operation.topics.all()).annotate(rank=rank)
    return found.order_by("rank", "name")


def mirrors_by_name(link: ClusterLink | None, names: Iterable[str], *, by: Actor) -> dict[str, MirrorTopic]:
    """Return the visible mirrors of a link with these names, and their transition errors. Two queries; none without a link."""
    if link is None:
        return {}
    found = visible_mirrors(by).filter(link=link, name__in=list(names))
    fields = ("name", "state", "stop_reason", "error_code", "error_message", "link_id")
    mirrors = {mirror.name: mirror for mirror in found.only(*fields).prefetch_related("transition_errors")}
    for mirror in mirrors.values():
        mirror.link = link
    return mirrors

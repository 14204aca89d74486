"""Operations on several mirror topics, with the number of topics by result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Case, Count, Q, QuerySet, Value, When

from console.access import visible_mirrors, whole_links
from console.actors import Actor
from console.errors import NotFoundError
from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic

Status = BulkOperationTopic.Status


def visible_operations(by: Actor) -> QuerySet[BulkOperation]:
    """Return the operations on links of which the actor may see everything, and the actor's own, newest first.

    The names of topics in an operation of another user may be names that the actor may not see.
    """
    operations = BulkOperation.objects.select_related("link__destination__environment__organization", "link__source")
    if by.may_do_all:
        return operations
    return operations.filter(Q(link__in=whole_links(by).values("pk")) | Q(user=by.user))


def get_operation(*, operation_id: int, by: Actor) -> BulkOperation:
    """Return an operation with its link; raise NotFoundError if it is not visible."""
    operation = visible_operations(by).filter(pk=operation_id).first()
    if operation is None:
        raise NotFoundError(f"Operation {operation_id} does not exist, or is older than 90 days.", code="UNKNOWN_OPERATION")
    return operation


def count_topics(operations: Iterable[BulkOperation]) -> dict[int, Counter[str]]:
    """Return the number of topics by status of each operation, by primary key. One query."""
    found: dict[int, Counter[str]] = {operation.pk: Counter() for operation in operations}
    rows = BulkOperationTopic.objects.filter(operation__in=list(found)).order_by()
    for key, status, number in rows.values_list("operation", "status").annotate(number=Count("pk")):
        found[key][status] = number
    return found


def topics_of(operation: BulkOperation, *, status: str = "") -> QuerySet[BulkOperationTopic]:
    """Return the topics of an operation, failed ones first, then by name."""
    rank = Case(When(status=Status.FAILED, then=Value(0)), default=Value(1))
    rows = operation.topics.order_by(rank, "name")
    return rows.filter(status=status) if status else rows


def mirrors_by_name(link: ClusterLink, names: Iterable[str], *, by: Actor) -> dict[str, MirrorTopic]:
    """Return the visible mirrors of a link with these names. One query."""
    found = visible_mirrors(by).filter(link=link, name__in=list(names))
    return {mirror.name: mirror for mirror in found.only("name", "state", "stop_reason", "link_id")}

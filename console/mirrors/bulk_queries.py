"""Operations on several mirror topics, and their results per topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Case, Count, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from console.access import visible_mirrors, whole_links
from console.actors import Actor
from console.errors import NotFoundError
from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic
from linkengine.domain.messages import gettext_lazy

# --- operations on several mirror topics ------------------------------------------------------------------------------


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
        raise NotFoundError(
            gettext_lazy("Operation %(operation_id)s does not exist, or is older than 90 days.", operation_id=operation_id),
            code="UNKNOWN_OPERATION",
        )
    return operation


def count_topics(operations: Iterable[BulkOperation]) -> dict[int, Counter[str]]:
    """Return the number of topics by status of each operation, by primary key. One query."""
    found: dict[int, Counter[str]] = {operation.pk: Counter() for operation in operations}
    rows = BulkOperationTopic.objects.filter(operation__in=list(found)).order_by()
    for key, status, number in rows.values_list("operation", "status").annotate(number=Count("pk")):
        found[key][status] = number
    return found


def with_counts(operations: QuerySet[BulkOperation]) -> QuerySet[BulkOperation]:
    """Add ``topic_count``, ``done`` (the topics that are not waiting) and ``failed`` to operations. No further query."""
    topics = BulkOperationTopic.objects.filter(operation=OuterRef("pk"))
    return operations.annotate(
        topic_count=_number_of(topics),
        done=_number_of(topics.exclude(status=Status.WAITING)),
        failed=_number_of(topics.filter(status=Status.FAILED)),
    )


def has_status(status: str) -> Q:
    """Return the condition for operations with a status: RUNNING, FINISHED, FINISHED_WITH_FAILURES or CANCELED."""
    topics = BulkOperationTopic.objects.filter(operation=OuterRef("pk"))
    running, failed = Q(Exists(topics.filter(status=Status.WAITING))), Q(Exists(topics.filter(status=Status.FAILED)))
    if status == "RUNNING":
        return running
    if status == "CANCELED":
        return ~running & ~Q(canceled_by="")
    return ~running & Q(canceled_by="") & (failed if status == "FINISHED_WITH_FAILURES" else ~failed)


def _number_of(topics: QuerySet[BulkOperationTopic]) -> Coalesce:
    counts = topics.order_by().values("operation").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counts, output_field=IntegerField()), 0)


def topics_of(operation: BulkOperation, *, status: str = "") -> QuerySet[BulkOperationTopic]:
    """Return the topics of an operation, failed topics first, then by name."""
    rank = Case(When(status=Status.FAILED, then=Value(0)), default=Value(1))
    rows = operation.topics.order_by(rank, "name")
    return rows.filter(status=status) if status else rows


def mirrors_by_name(link: ClusterLink, names: Iterable[str], *, by: Actor) -> dict[str, MirrorTopic]:
    """Return the visible mirrors of a link with these names. One query."""
    found = visible_mirrors(by).filter(link=link, name__in=list(names))
    return {mirror.name: mirror for mirror in found.only("name", "state", "stop_reason", "link_id")}

"""Approval requests that an actor may see."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from console.access import Permission, can, visible_links, whole_links
from console.actors import Actor
from console.models import ApprovalRequest, Environment


def visible_requests(*, by: Actor) -> QuerySet[ApprovalRequest]:
    """Return the requests on links that the actor may see as a whole, and the actor's own: requests name mirror topics."""
    requests = ApprovalRequest.objects.select_related(
        "user", "decided_by", "link__destination__environment__organization", "link__source__environment"
    )
    if by.may_do_all:
        return requests
    own = Q(user=by.user) & Q(link__in=visible_links(by).values("pk"))
    return requests.filter(own | Q(link__in=whole_links(by).values("pk")))


def governed_environments(*, by: Actor) -> list[Environment]:
    """Return the environments in which the actor may choose the operations that need an approval. One query."""
    organizations = [binding.organization_id for binding in by.bindings if binding.organization_id]
    rows = Environment.objects.select_related("organization").order_by("name")
    rows = rows if by.may_do_all else rows.filter(organization__in=organizations)
    return [row for row in rows if can(by, Permission.MANAGE_ORGANIZATION, organization=row.organization)]

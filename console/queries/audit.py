"""The audit, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q, QuerySet

from console.access import Permission, check_permission
from console.access.roles import ROLE_PERMISSIONS, Role
from console.actors import Actor
from console.audit import path_of
from console.models import AuditEvent, Cluster, Environment, Organization, RoleBinding


def list_events(*, by: Actor, search: str = "", action: str = "", result: str = "", resource: str = "") -> QuerySet[AuditEvent]:
    """List events of the places whose audit the actor may read, and the actor's own; as many as there are."""
    return narrow(readable_events(by=by), search=search, action=action, result=result, resource=resource)


def actions_of(events: QuerySet[AuditEvent]) -> list[str]:
    """Name what was done in these events, each once; one query."""
    return sorted(events.order_by().values_list("action", flat=True).distinct())


def narrow(
    events: QuerySet[AuditEvent], *, search: str = "", action: str = "", result: str = "", resource: str = ""
) -> QuerySet[AuditEvent]:
    """Leave those that have all of this; ``resource`` is a place with all below it."""
    if search:
        events = events.filter(Q(actor__icontains=search) | Q(resource__icontains=search) | Q(action__icontains=search))
    if action:
        events = events.filter(action=action)
    if result:
        events = events.filter(result=result)
    if resource:
        events = events.filter(Q(resource=resource) | Q(resource__startswith=f"{resource}/"))
    return events


def readable_events(*, by: Actor) -> QuerySet[AuditEvent]:
    """Answer what the actor may read of the audit; raise DeniedError where that is nothing."""
    if by.may_do_all:
        return AuditEvent.objects.all()
    reading = [
        one for one in by.bindings if Permission.VIEW_AUDIT in ROLE_PERMISSIONS[Role(one.role)] and not one.resource_type
    ]
    if not reading:
        check_permission(by, Permission.VIEW_AUDIT)
    scope = Q(actor=by.name)
    for path in _paths(reading):
        scope |= Q(resource=path) | Q(resource__startswith=f"{path}/")
    return AuditEvent.objects.filter(scope)


def _paths(reading: Sequence[RoleBinding]) -> list[str]:
    """Name the places of these bindings and all below them, as the audit does."""
    organizations = Organization.objects.filter(pk__in=[one.organization_id for one in reading if one.organization_id])
    named = Q(pk__in=[one.environment_id for one in reading if one.environment_id])
    environments = Environment.objects.filter(named | Q(organization__in=organizations))
    named = Q(pk__in=[one.cluster_id for one in reading if one.cluster_id])
    clusters = Cluster.objects.filter(named | Q(environment__in=environments))
    return [*map(path_of, organizations), *map(path_of, environments), *map(path_of, clusters)]

"""Audit events, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q, QuerySet

from console.access import Permission, check_permission
from console.access.roles import ROLE_PERMISSIONS, Role
from console.actors import Actor
from console.audit import path_of
from console.models import AuditEvent, Cluster, Environment, Organization, RoleBinding


def list_events(*, by: Actor, search: str = "", action: str = "", result: str = "", resource: str = "") -> QuerySet[AuditEvent]:
    """Return the events of the scopes whose audit log the actor may view, and the actor's own."""
    return narrow(readable_events(by=by), search=search, action=action, result=result, resource=resource)


def actions_of(events: QuerySet[AuditEvent]) -> list[str]:
    """Return the distinct actions of these events. One query."""
    return sorted(events.order_by().values_list("action", flat=True).distinct())


def narrow(
    events: QuerySet[AuditEvent], *, search: str = "", action: str = "", result: str = "", resource: str = ""
) -> QuerySet[AuditEvent]:
    """Filter events. ``resource`` includes the resources below it."""
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
    """Return the events that the actor may view; raise DeniedError if the actor may view none."""
    if by.may_do_all:
        return AuditEvent.objects.all()
    reading = [
        binding
        for binding in by.bindings
        if Permission.VIEW_AUDIT in ROLE_PERMISSIONS[Role(binding.role)] and not binding.resource_type
    ]
    if not reading:
        check_permission(by, Permission.VIEW_AUDIT)
    scope = Q(actor=by.name)
    for path in _paths(reading):
        scope |= Q(resource=path) | Q(resource__startswith=f"{path}/")
    return AuditEvent.objects.filter(scope)


def _paths(bindings: Sequence[RoleBinding]) -> list[str]:
    """Return the audit paths of the scopes of these bindings and of all scopes below."""
    organizations = Organization.objects.filter(pk__in=[row.organization_id for row in bindings if row.organization_id])
    named = Q(pk__in=[row.environment_id for row in bindings if row.environment_id])
    environments = Environment.objects.filter(named | Q(organization__in=organizations))
    named = Q(pk__in=[row.cluster_id for row in bindings if row.cluster_id])
    clusters = Cluster.objects.filter(named | Q(environment__in=environments))
    return [*map(path_of, organizations), *map(path_of, environments), *map(path_of, clusters)]

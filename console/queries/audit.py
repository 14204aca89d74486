"""The audit, newest first."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from console.access import Permission, check_permission, visible_clusters
from console.access.roles import ROLE_PERMISSIONS, Role
from console.actors import Actor
from console.models import AuditEvent


def list_events(
    *, by: Actor, search: str = "", action: str = "", result: str = "", resource: str = "", limit: int = 200
) -> list[AuditEvent]:
    """List events of the clusters whose audit the actor may read, and the actor's own."""
    events = _readable(by)
    if search:
        events = events.filter(Q(actor__icontains=search) | Q(resource__icontains=search) | Q(action__icontains=search))
    if action:
        events = events.filter(action=action)
    if result:
        events = events.filter(result=result)
    if resource:
        events = events.filter(Q(resource=resource) | Q(resource__startswith=f"{resource}/"))
    return list(events[:limit])


def _readable(by: Actor) -> QuerySet[AuditEvent]:
    if by.may_do_all:
        return AuditEvent.objects.all()
    reading = [
        one for one in by.bindings if Permission.VIEW_AUDIT in ROLE_PERMISSIONS[Role(one.role)] and not one.resource_type
    ]
    if not reading:
        check_permission(by, Permission.VIEW_AUDIT)
    clusters = visible_clusters(Actor(name=by.name, user=by.user))
    scope = Q(actor=by.name)
    for cluster in clusters.select_related("environment"):
        if any(_reads(one, cluster.pk, cluster.environment_id, cluster.environment.organization_id) for one in reading):
            scope |= Q(resource=f"cluster/{cluster.cluster_id}") | Q(resource__startswith=f"cluster/{cluster.cluster_id}/")
    return AuditEvent.objects.filter(scope)


def _reads(binding: object, cluster: int, environment: int, organization: int) -> bool:
    return (
        getattr(binding, "cluster_id", None) == cluster
        or getattr(binding, "environment_id", None) == environment
        or getattr(binding, "organization_id", None) == organization
    )

"""Audit events, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from console.access import Permission, check_permission
from console.access.roles import permissions_of
from console.actors import Actor
from console.audit import path_of
from console.models import AuditEvent, Cluster, Environment, Organization, RoleBinding
from console.models.access import AuditEventQuerySet


def readable_events(*, by: Actor) -> AuditEventQuerySet:
    """Return the events of the scopes whose audit log the actor may view, and the actor's own.

    Raises DeniedError if the actor may view no audit log.
    """
    if by.may_do_all:
        return AuditEvent.objects.all()
    reading = [
        binding for binding in by.bindings if Permission.VIEW_AUDIT in permissions_of(binding) and not binding.resource_type
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

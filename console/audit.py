"""Writes the audit: who did what to which resource, with which result. Rows are added, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone

from console.actors import Actor
from console.models import AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic, Organization

Result = AuditEvent.Result
MOST_CHARACTERS = 600  # of the name of a resource


def record(
    *, by: Actor, action: str, resource: str, now: datetime, result: str = Result.SUCCESS, detail: dict[str, Any] | None = None
) -> AuditEvent:
    """Add one row. Call it inside the transaction of the change, so that neither exists without the other."""
    row = draft(by=by, action=action, resource=resource, now=now, result=result, detail=detail)
    row.save(force_insert=True)
    return row


def draft(
    *, by: Actor, action: str, resource: str, now: datetime, result: str = Result.SUCCESS, detail: dict[str, Any] | None = None
) -> AuditEvent:
    """Make a row without storing it, for whoever stores many at once. Names longer than any that can be given are cut."""
    return AuditEvent(
        at=now,
        actor=by.name,
        action=action,
        resource=resource if len(resource) <= MOST_CHARACTERS else f"{resource[: MOST_CHARACTERS - 1]}…",
        result=result,
        detail=detail or {},
        request_id=by.request_id,
        client_address=by.client_address,
    )


def record_denial(*, by: Actor, action: str, resource: str, reason: str) -> None:
    """Note a refusal; outside of any transaction that the refusal ends."""
    record(by=by, action=action, resource=resource, now=timezone.now(), result=Result.DENIED, detail={"reason": reason})


def path_of(thing: Organization | Environment | Cluster | ClusterLink | MirrorTopic) -> str:
    """Name a resource as the audit does: ``cluster/<id>/link/<name>/mirror/<topic>``."""
    if isinstance(thing, MirrorTopic):
        return f"{path_of(thing.link)}/mirror/{thing.name}"
    if isinstance(thing, ClusterLink):
        return f"{path_of(thing.destination)}/link/{thing.name}"
    if isinstance(thing, Cluster):
        return f"cluster/{thing.cluster_id}"
    return f"environment/{thing.slug}" if isinstance(thing, Environment) else f"organization/{thing.name}"

"""Writes the audit log: actor, action, resource and result.

Rows are only added; ``carried_out`` completes its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.actors import Actor
from console.errors import from_cluster
from console.models import AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic, Organization
from linkengine.domain.errors import LinkEngineError

Result = AuditEvent.Result
MOST_CHARACTERS = 600  # of the name of a resource


def record(
    *, by: Actor, action: str, resource: str, now: datetime, result: str = Result.SUCCESS, detail: dict[str, Any] | None = None
) -> AuditEvent:
    """Add a row. Call it in the transaction of the change, so that neither exists without the other."""
    row = unsaved_event(by=by, action=action, resource=resource, now=now, result=result, detail=detail)
    row.save(force_insert=True)
    return row


def unsaved_event(
    *, by: Actor, action: str, resource: str, now: datetime, result: str = Result.SUCCESS, detail: dict[str, Any] | None = None
) -> AuditEvent:
    """Return a row without storing it, for bulk inserts. Resource names that are too long are cut."""
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
    """Add a row for a denied action. Call it outside of any transaction that the denial rolls back."""
    record(by=by, action=action, resource=resource, now=timezone.now(), result=Result.DENIED, detail={"reason": reason})


class RepeatedChangeError(Exception):
    """The change was made before; its message was delivered twice or copied."""


@dataclass(slots=True)
class ClusterChange:
    """A change of a cluster in progress. ``found`` is the cluster's response; False: there was nothing to change."""

    found: Any = None


def entry(*, by: Actor, action: str, resource: str, detail: dict[str, Any], response_key: str = "") -> dict[str, Any]:
    """Return what a task needs to write the row of a change, as JSON values.

    ``response_key`` is the name under which the row stores the cluster's response, if any.
    """
    actor = {"actor": by.name, "request_id": by.request_id, "client_address": by.client_address}
    return {**actor, "action": action, "resource": resource, "detail": detail, "response_key": response_key}


@contextmanager
def carried_out(entry: Mapping[str, Any], *, change_id: str) -> Iterator[ClusterChange]:
    """Write the audit row of a change of a cluster around the change: UNKNOWN before, the result afterwards.

    The row exists before anything happens, even if this process crashes. Its ``change_id`` is unique, so the change is made
    once. Raises RepeatedChangeError for the second time.
    """
    by = Actor(name=entry["actor"], user=None, request_id=entry["request_id"], client_address=entry["client_address"])
    about = {"action": entry["action"], "resource": entry["resource"], "detail": entry["detail"]}
    row = unsaved_event(by=by, now=timezone.now(), result=Result.UNKNOWN, **about)
    row.change_id = change_id
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise RepeatedChangeError(change_id) from None
    change = ClusterChange()
    try:
        yield change
    except LinkEngineError as error:
        refusal = from_cluster(error)
        _complete(row, Result.FAILURE, code=refusal.code, reason=refusal.message)
        raise
    if change.found is False:
        _complete(row, Result.FAILURE, reason="There was nothing to change.")
    else:
        _complete(row, Result.SUCCESS, **({entry["response_key"]: change.found} if entry["response_key"] else {}))


def _complete(row: AuditEvent, result: str, **detail: Any) -> None:
    row.result, row.detail = result, {**row.detail, **detail}
    row.save(update_fields=["result", "detail"])


def path_of(thing: Organization | Environment | Cluster | ClusterLink | MirrorTopic) -> str:
    """Return the resource name for the audit log: ``cluster/<id>/link/<name>/mirror/<topic>``."""
    if isinstance(thing, MirrorTopic):
        return f"{path_of(thing.link)}/mirror/{thing.name}"
    if isinstance(thing, ClusterLink):
        return f"{path_of(thing.destination)}/link/{thing.name}"
    if isinstance(thing, Cluster):
        return f"cluster/{thing.cluster_id}"
    return f"environment/{thing.slug}" if isinstance(thing, Environment) else f"organization/{thing.name}"

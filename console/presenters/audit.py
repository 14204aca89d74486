"""View model of an audit event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.urls import reverse

from console.presenters.badges import Badge
from console.presenters.numbers import Moment, moment
from console.presenters.reasons import AUDIT_LOOKS

if TYPE_CHECKING:
    from console.models import AuditEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A row of the audit log."""

    at: Moment | None
    actor: str
    action: str
    resource: str
    look: Badge
    detail: Sequence[tuple[str, str]]
    url: str  # of the bulk operation that the event is about, "" if it is about none
    client: str
    request_id: str


def event_row(event: AuditEvent, *, now: datetime) -> EventRow:
    """Create the row of an event."""
    return EventRow(
        at=moment(event.at, now=now),
        actor=event.actor,
        action=event.action,
        resource=event.resource,
        look=AUDIT_LOOKS[event.result],
        detail=[(name, _text(value)) for name, value in event.detail.items()],
        url=reverse("pages:operation", args=(event.detail["bulk_operation"],)) if "bulk_operation" in event.detail else "",
        client=event.client_address,
        request_id=event.request_id,
    )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return "" if value is None else str(value)

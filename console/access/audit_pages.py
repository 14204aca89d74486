"""The Audit log section."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access import visible_operations
from console.access.presenters import EventRow, event_row
from console.access.queries import readable_events
from console.actors import Actor
from console.models import AuditEvent
from console.web.badges import AUDIT_BADGES
from console.web.lists import Column, Filter, Listing
from console.web.request_handling import actor_of, page, reply

EVENTS = Listing(
    noun=gettext_noop("event"),
    plural=gettext_noop("events"),
    columns=(
        Column(title=gettext_lazy("Time"), key="at", by=("at",), descends=True),
        Column(title=gettext_lazy("Actor"), key="actor", by=("actor",), css="only-wide"),
        Column(title=gettext_lazy("Action"), key="action", by=("action",)),
        Column(title=gettext_lazy("Resource"), key="resource", by=("resource",), css="only-wide"),
        Column(title=gettext_lazy("Result"), key="result", by=("result",)),
        Column(title=gettext_lazy("Details")),
    ),
    default="-at",
    search=("actor", "resource", "action"),
    search_label=gettext_lazy("Actor, action or resource"),
    filters=(
        Filter(name="action", label=gettext_lazy("Action"), every=gettext_lazy("All actions"), by="action"),
        Filter(
            name="result",
            label=gettext_lazy("Result"),
            every=gettext_lazy("All results"),
            options=[(badge.code, gettext_lazy(badge.label)) for badge in AUDIT_BADGES.values()],
            by="result",
        ),
    ),
    time="at",
    export={
        **{name: name for name in ("at", "actor", "action", "resource", "result")},
        "detail": lambda event: json.dumps(event.detail),
        "client_address": "client_address",
        "request_id": "request_id",
    },
)


@page("audit")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List audit events."""
    by, now = actor_of(request), timezone.now()
    readable = readable_events(by=by)
    listed = EVENTS.read(request)
    found = listed.select(readable)
    if listed.format:
        return listed.csv(f"audit-{now:%Y-%m-%d}", found)
    listed.options = {"action": [(name, name) for name in readable.actions()]}
    context = {"list": listed, "events": event_rows(listed.page(found), by=by, now=now)}
    return reply(request, "audit/list.html", context)


def event_rows(events: Iterable[AuditEvent], *, by: Actor, now: datetime) -> list[EventRow]:
    """Return the rows of events. One query if an event is about a bulk operation, which may have been deleted since."""
    shown = list(events)
    named = {event.detail["bulk_operation"] for event in shown if "bulk_operation" in event.detail}
    known = set(visible_operations(by).filter(pk__in=named).values_list("pk", flat=True)) if named else set()
    return [event_row(event, operations=known, now=now) for event in shown]

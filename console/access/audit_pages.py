"""The Audit log section."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access.presenters import event_row
from console.access.queries import readable_events
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
    now, readable = timezone.now(), readable_events(by=actor_of(request))
    listed = EVENTS.read(request)
    found = listed.select(readable)
    if listed.format:
        return listed.csv(f"audit-{now:%Y-%m-%d}", found)
    listed.options = {"action": [(name, name) for name in readable.actions()]}
    context = {"list": listed, "events": [event_row(event, now=now) for event in listed.page(found)]}
    return reply(request, "audit/list.html", context)

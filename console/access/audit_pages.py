"""The Audit log section: the list of events, and the same events as CSV."""

from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access.presenters import event_row
from console.access.queries import readable_events
from console.models.access import AuditEventQuerySet
from console.web.badges import AUDIT_LOOKS
from console.web.lists import page_from, range_fields, time_of
from console.web.request_handling import actor_of, page, reply


@page("audit")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List audit events, filtered by text, action, result and time."""
    now = timezone.now()
    readable = readable_events(by=actor_of(request))
    shown, pager = page_from(request, matching(request, readable))
    texts, (start, end) = _texts(request), _times(request)
    action = texts["action"]
    context = {
        "events": [event_row(event, now=now) for event in shown],
        "pager": pager,
        "query": texts["search"],
        "action": action,
        "actions": sorted({*readable.actions(), *([action] if action else [])}),
        "result": texts["result"],
        "results": list(AUDIT_LOOKS.values()),
        "filtered": any(texts.values()) or start is not None or end is not None,
        "filters": request.GET.urlencode(),
        **range_fields(start, end),
    }
    return reply(request, "audit/list.html", context)


def matching(request: HttpRequest, events: AuditEventQuerySet) -> AuditEventQuerySet:
    """Return the events that match the filters of the request."""
    start, end = _times(request)
    return events.matching(**_texts(request), start=start, end=end)


def _texts(request: HttpRequest) -> dict[str, str]:
    query, action, result = (request.GET.get(name, "").strip() for name in ("q", "action", "result"))
    return {"search": query, "action": action, "result": result if result in AUDIT_LOOKS else ""}


def _times(request: HttpRequest) -> tuple[datetime | None, datetime | None]:
    return time_of(request, "from"), time_of(request, "to")

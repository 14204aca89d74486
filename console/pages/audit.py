"""The Audit log section."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.pages.lists import page_from
from console.pages.request_handling import actor_of, page, reply
from console.presenters.audit import event_row
from console.presenters.reasons import AUDIT_LOOKS
from console.queries.audit import readable_events


@page("audit")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List audit events, filtered by text, action and result."""
    by, now = actor_of(request), timezone.now()
    query, action, result = (request.GET.get(name, "").strip() for name in ("q", "action", "result"))
    result = result if result in AUDIT_LOOKS else ""
    readable = readable_events(by=by)
    shown, pager = page_from(request, readable.matching(search=query, action=action, result=result))
    context = {
        "events": [event_row(event, now=now) for event in shown],
        "pager": pager,
        "query": query,
        "action": action,
        "actions": sorted({*readable.actions(), *([action] if action else [])}),
        "result": result,
        "results": list(AUDIT_LOOKS.values()),
        "filtered": bool(query or action or result),
    }
    return reply(request, "audit/list.html", context)

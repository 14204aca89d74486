"""The Topics section: mirror topics of all links, and the search over links and mirror topics."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.pages.lists import PAGE_SIZE, pager, start_of
from console.pages.request_handling import actor_of, page, reply
from console.presenters.links import link_row, link_url
from console.presenters.mirrors import mirror_row
from console.queries import links as link_queries
from console.queries import mirrorpages

MAX_RESULTS = 50


@page("topics")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the mirror topics of all links that the user may see."""
    by, now = actor_of(request), timezone.now()
    query = request.GET.get("q", "").strip()
    found = mirrorpages.mirror_page(by=by, search=query, start=start_of(request), size=PAGE_SIZE)
    context = {
        "found": [{"row": mirror_row(summary, now=now), "link": _link(summary.mirror.link)} for summary in found.rows],
        "pager": pager(request, start=found.start, shown=len(found.rows), total=found.total),
        "query": query,
    }
    return reply(request, "topics/list.html", context)


@page("")
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    """Search links and mirror topics by a part of the name."""
    by, now = actor_of(request), timezone.now()
    query = request.GET.get("q", "").strip()
    links = link_queries.list_links(by=by, search=query) if query else []
    found = mirrorpages.mirror_page(by=by, search=query, size=MAX_RESULTS if query else 0)
    context = {
        "query": query,
        "links": [link_row(summary, now=now) for summary in links[:MAX_RESULTS]],
        "found": [{"row": mirror_row(summary, now=now), "link": _link(summary.mirror.link)} for summary in found.rows],
        "cut": len(links) > MAX_RESULTS or found.total > MAX_RESULTS,
    }
    return reply(request, "search.html", context)


def _link(link: object) -> dict[str, str]:
    return {"name": link.name, "url": link_url(link), "destination": link.destination.name}  # type: ignore[attr-defined,arg-type]

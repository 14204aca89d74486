"""The History tab of a link: lag and throughput over time."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.pages.linkpages import link_context
from console.pages.request_handling import actor_of, page, reply
from console.pages.shell import Tab
from console.presenters.charts import charts_of
from console.presenters.links import link_url
from console.queries import links as link_queries
from console.queries.history import link_history

SPANS = {"1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(hours=24)}
_DEFAULT = "1h"


@page("links")
@require_GET
def history(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the charts of a link. Polled at the sampling interval."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    chosen = request.GET.get("span", _DEFAULT)
    chosen = chosen if chosen in SPANS else _DEFAULT
    points = link_history(link=link, span=SPANS[chosen], now=now)
    url = f"{link_url(link)}history/"
    context = {
        "charts": charts_of(points, span=SPANS[chosen], now=now) if points else [],
        "spans": [Tab(label=name, url=f"{url}?span={name}", current=name == chosen) for name in SPANS],
    }
    return reply(request, "links/history.html", link_context(link, by=by, now=now, tab="history") | context)

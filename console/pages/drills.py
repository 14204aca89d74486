"""The Drills tab of a link: starts a failover drill and shows the reports of all drills. Also the failover readiness."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from console.access import Permission, can
from console.actions.drills import start_drill
from console.errors import ConsoleError
from console.models import ClusterLink
from console.pages.linkpages import link_context
from console.pages.links import is_unchanged, seen_token
from console.pages.lists import page_from
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.presenters.drills import drill_row
from console.presenters.readiness import readiness_view
from console.queries import links as link_queries
from console.queries.readiness import link_readiness
from linkengine.domain.startspec import EARLIEST, LATEST

PER_PAGE = 10  # reports are long, and the page is polled every second
_STARTS = (LATEST, EARLIEST)


@page("links")
@require_http_methods(["GET", "POST"])
def drills(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the drills (polled like the overview); start one."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if request.method == "GET":
        return HttpResponse(status=204) if is_unchanged(request, link.sequence, now=now) else _show(request, link)
    start = request.POST.get("start", LATEST)
    try:
        start_drill(link=link, start_spec=start if start in _STARTS else LATEST, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show(request, link, problem=problem_of(error), status=status_of(error))
    return done(request, reverse("pages:link-drills", args=link.url_args), "Failover drill started.")


@page("links")
@require_GET
def readiness(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the failover readiness. The tabs Drills and Failover reports load it as a fragment."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    context = {"readiness": readiness_view(link_readiness(link=link, now=now))}
    return reply(request, "links/readiness.html", link_context(link, by=by, now=now, last="Failover readiness") | context)


def _show(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    shown, pager = page_from(request, link.drills.all(), size=PER_PAGE)
    context = {
        "drills": [drill_row(drill, now=now) for drill in shown],
        "pager": pager,
        "may_drill": can(by, Permission.OPERATE_MIRROR, link=link) and can(by, Permission.MANAGE_MIRROR, link=link),
        "seen": seen_token(link.sequence, now=now),
    }
    return reply(request, "links/drills.html", link_context(link, by=by, now=now, tab="drills") | context | more, status=status)

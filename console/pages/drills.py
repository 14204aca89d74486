"""The Drills tab of a link: starts and cancels failover drills and shows their reports. Also the failover readiness."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can
from console.actions.drills import cancel_drill, start_drill
from console.errors import ConsoleError, NotFoundError
from console.models import ClusterLink
from console.pages.linkpages import link_context
from console.pages.links import is_unchanged, seen_token
from console.pages.lists import page_from
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.presenters.drills import drill_row
from console.presenters.health import link_health_view
from console.presenters.readiness import readiness_view
from console.queries import links as link_queries
from console.queries.readiness import readiness_with_health
from linkengine.domain.linkrules import EARLIEST, LATEST

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
@require_POST
def cancel(request: HttpRequest, cluster_id: str, link_name: str, drill_id: int) -> HttpResponse:
    """Cancel a drill that is in progress."""
    by = actor_of(request)
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    drill = link.drills.select_related("link__destination__environment").filter(pk=drill_id).first()
    if drill is None:
        raise NotFoundError(f"Drill {drill_id} does not exist.", code="UNKNOWN_DRILL")
    try:
        cancel_drill(drill=drill, by=by, now=timezone.now())
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show(request, link, problem=problem_of(error), status=status_of(error))
    return done(request, reverse("pages:link-drills", args=link.url_args), f"Drill {drill_id} canceled. It is cleaned up now.")


@page("links")
@require_GET
def readiness(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the failover readiness. The other tabs of its group load it as a fragment."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    found, health = readiness_with_health(link=link, now=now)
    view = None if health is None else link_health_view(health, link)
    context = link_context(link, by=by, now=now, tab="readiness", last="Failover readiness", health=view)
    return reply(request, "links/readiness.html", context | {"readiness": readiness_view(found)})


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

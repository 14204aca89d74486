"""Move a mirror topic to a link from another copy of its source."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from console.actions.reparenting import reparent
from console.errors import ConsoleError
from console.pages.linkpages import crumbs
from console.pages.mirrorpages import mirror_context
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.queries import mirrors as mirror_queries


@page("links")
@require_POST
def move(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Move the mirror; show a page with the reason if it is not possible."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    try:
        moved = reparent(mirror=mirror, link_name=request.POST.get("link_name", ""), validate_only=False, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        context = mirror_context(mirror, by=by, now=now) | {"problem": problem_of(error), "crumbs": crumbs(mirror.link)}
        return reply(request, "mirrors/refused.html", context, status=status_of(error))
    message = f"Mirror topic '{mirror.name}' moved to cluster link '{moved.link.name}'. Resume it to continue copying."
    return done(request, moved.mirror.get_absolute_url(), message)

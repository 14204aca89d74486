"""The migration gate of a mirror: run the checks, or override the gate with a reason."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from console.actions.gates import override_gate, start_gate
from console.errors import ConsoleError
from console.models import MirrorTopic
from console.pages.linkpages import crumbs
from console.pages.mirrorpages import mirror_context
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.queries import mirrors as mirror_queries


@page("links")
@require_POST
def run(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Start the checks. The mirror's page shows their progress."""
    mirror = _mirror(request, cluster_id, link_name, mirror_name)
    return _do(request, mirror, lambda: start_gate(mirror=mirror, by=actor_of(request), now=timezone.now()))


@page("links")
@require_POST
def override(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Override the gate with a reason."""
    mirror, reason = _mirror(request, cluster_id, link_name, mirror_name), request.POST.get("reason", "")
    return _do(request, mirror, lambda: override_gate(mirror=mirror, reason=reason, by=actor_of(request), now=timezone.now()))


def _mirror(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> MirrorTopic:
    by = actor_of(request)
    return mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)


def _do(request: HttpRequest, mirror: MirrorTopic, action: Callable[[], object]) -> HttpResponse:
    try:
        action()
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        context = mirror_context(mirror, by=actor_of(request), now=timezone.now())
        problem = {"problem": problem_of(error), "crumbs": crumbs(mirror.link)}
        return reply(request, "mirrors/refused.html", context | problem, status=status_of(error))
    return done(request, f"{mirror.get_absolute_url()}#gate")

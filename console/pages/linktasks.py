"""The Tasks tab of a link: state and last run of each recurring task, and Run now."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from console.actions.linktasks import run_task
from console.mirrors import progress
from console.models import MirrorTopic
from console.pages.linkpages import headline, link_context
from console.pages.links import is_unchanged, seen_token
from console.pages.request_handling import actor_of, done, page, reply
from console.presenters.linktasks import task_row
from console.queries import links as link_queries
from console.queries.linktasks import list_tasks


@page("links")
@require_GET
def tasks(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the recurring tasks of a link. Polled like the overview."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if is_unchanged(request, link.sequence, now=now):
        return HttpResponse(status=204)
    current = progress.current(MirrorTopic.objects.filter(link=link), now=now)
    rows = [task_row(task, now=now) for task in list_tasks(link=link, current=current)]
    context = {"tasks": rows, "seen": seen_token(link.sequence, now=now)}
    health = headline(link, by=by, now=now, current=current)
    return reply(request, "links/tasks.html", link_context(link, by=by, now=now, tab="tasks", health=health) | context)


@page("links")
@require_POST
def run(request: HttpRequest, cluster_id: str, link_name: str, task_name: str) -> HttpResponse:
    """Request a run of a task."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    run_task(link=link, name=task_name, by=by, now=now)
    return done(request, reverse("pages:link-tasks", args=link.url_args), f"Run of {task_name} requested.")

"""The page of a mirror topic, and the form that adds one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, check_permission
from console.actions import mirrors as mirror_actions
from console.actions import verification
from console.errors import ConsoleError, NotFoundError
from console.models import ClusterLink
from console.pages.history import MIRROR_SPAN, graph_context, range_of, segments
from console.pages.linkpages import crumbs, link_head
from console.pages.links import is_unchanged, seen_token
from console.pages.lists import MOST_DIGITS
from console.pages.mirrorpages import choice_rows, choices_summary, mirror_context, mirror_head, mirror_url
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.restores import restores_of
from console.presenters import numbers
from console.presenters.charts import charts_of
from console.presenters.curl import curl
from console.presenters.links import link_url
from console.presenters.mirrors import mirror_path
from console.queries import links as link_queries
from console.queries import mirrors as mirror_queries
from console.queries import topics as topic_queries
from console.queries.history import mirror_history
from linkengine.domain.startspec import CONFIG as START_SPEC

MOST_REPLICAS = 32_767  # the replication factor is an int16 in the Kafka protocol


@page("links")
@require_GET
def detail(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Show a mirror topic. Polled every second; returns 204 if nothing has changed."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    if is_unchanged(request, mirror.link.sequence, now=now):
        return HttpResponse(status=204)
    context = mirror_context(mirror, by=by, now=now) | restores_of(request, mirror)
    context |= {
        "seen": seen_token(mirror.link.sequence, now=now),
        "crumbs": [*crumbs(mirror.link, last=mirror.name)],
        "snippet": curl("GET", f"{rest_address(request, mirror.link)}/{mirror.name}?include_state_transition_errors=true"),
    }
    if not (request.htmx and request.htmx.target == "live"):  # type: ignore[attr-defined]
        chosen = range_of(request, now=now, default=MIRROR_SPAN)
        points = mirror_history(mirror=mirror, span=chosen.span, now=now, end=chosen.end)
        context["charts"] = charts_of(points, span=chosen.span, now=chosen.end, past=not chosen.name) if points else []
        context |= {"spans": segments(mirror_url(mirror), chosen), **graph_context(mirror, chosen)}
    return reply(request, "mirrors/detail.html", context)


@page("links")
@require_POST
def verify(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> HttpResponse:
    """Start a verification run. The mirror's page shows its progress."""
    by, now = actor_of(request), timezone.now()
    mirror = mirror_queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    url = mirror_head(mirror, now=now).url
    try:
        verification.start_verify(mirror=mirror, by=by, now=now)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        context = mirror_context(mirror, by=by, now=now) | {"problem": problem_of(error), "crumbs": crumbs(mirror.link)}
        return reply(request, "mirrors/refused.html", context, status=status_of(error))
    return done(request, f"{url}#verify")


@page("links")
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the form, with a list of source topics if it is available; add the mirror topic."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    if not can(by, Permission.MANAGE_MIRROR, link=link) and not _has_own_topics(link, request):
        check_permission(by, Permission.MANAGE_MIRROR, link=link)
    if request.method == "GET":
        return _form(request, link)
    factor = request.POST.get("replication_factor", "").strip()
    if factor and not (factor.isdecimal() and len(factor) <= MOST_DIGITS and 1 <= int(factor) <= MOST_REPLICAS):
        wrong = f"Enter a whole number from 1 to {MOST_REPLICAS:,}, or leave the field empty."
        return _form(request, link, replication_wrong=wrong, status=422)
    try:
        mirror = mirror_actions.create_mirror(
            link=link,
            source_topic=request.POST.get("source_topic", "").strip(),
            replication_factor=int(factor) if factor else None,
            configs={START_SPEC: request.POST.get("start", "").strip()},
            by=by,
            now=now,
        )
    except ConsoleError as error:
        return _refused(request, link, error)
    return done(request, f"{link_url(link)}{mirror_path(mirror.name)}", f"Mirror topic {mirror.name} added.")


def _has_own_topics(link: ClusterLink, request: HttpRequest) -> bool:
    """Return True if the user has a role for topics of some names on this cluster. The action checks the name itself."""
    cluster = link.destination_id
    bindings = actor_of(request).bindings
    return any(binding.resource_type == "Topic" and binding.cluster_id == cluster for binding in bindings)


def _refused(request: HttpRequest, link: ClusterLink, error: ConsoleError) -> HttpResponse:
    if error.kind == "denied":
        raise error
    if error.field == START_SPEC:
        return _form(request, link, status=status_of(error), start_wrong=error.message)
    at_field = bool(error.field) or isinstance(error, NotFoundError)
    problem = {"wrong" if at_field else "problem": problem_of(error)}
    return _form(request, link, status=status_of(error), **problem)


def _form(request: HttpRequest, link: ClusterLink, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    source_topic = request.POST.get("source_topic", request.GET.get("topic", "")).strip()
    total = topic_queries.count_source_topics(link=link, by=by)
    too_many = total > topic_queries.LIMIT
    choices = [] if too_many else topic_queries.source_topics_for(link=link, by=by)
    context = {
        "link": link_head(link, now=now),
        "crumbs": crumbs(link, last="Add mirror topic"),
        "environment_name": link.destination.environment.name,
        "listable": bool(choices),
        "too_many": numbers.plural(total, "topic") if too_many else "",
        "choices": choice_rows(choices),
        "choices_summary": choices_summary(choices),
        "source_topic": source_topic,
        "replication_factor": request.POST.get("replication_factor", ""),
        "start": request.POST.get("start", ""),
        "default_start": mirror_actions.default_start(link),
        "snippet": curl("POST", rest_address(request, link), {"source_topic_name": source_topic or "<source topic>"}),
    }
    return reply(request, "mirrors/new.html", context | more, status=status)


def rest_address(request: HttpRequest, link: ClusterLink) -> str:
    """Return the REST URL of the link's mirrors."""
    return request.build_absolute_uri(f"/kafka/v3/clusters/{link.destination.cluster_id}/links/{link.name}/mirrors")

"""Create a cluster link: choose the direction, fill in the form, then validate, copy as curl or create."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from console.access import Permission, can, visible_clusters
from console.actions import links as link_actions
from console.actions.linkchecks import LinkValidation
from console.actors import Actor
from console.errors import ConsoleError
from console.links import pairs
from console.models import Cluster, ClusterLink
from console.pages.linkform import CreateLinkForm
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import Crumb
from console.presenters.curl import config_list, curl
from console.presenters.directions import DIRECTIONS, RECEIVE
from console.presenters.distances import distance_rows
from console.queries.clusters import list_environments

_PREFILLED = ("source", "destination", "name", "connection_mode")  # fields that the query string can prefill


@page("links")
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """Show the form; validate, show as curl, or create the link."""
    by = actor_of(request)
    clusters = list(visible_clusters(by).select_related("environment").order_by("environment__name", "name"))
    values = request.POST if request.method == "POST" else request.GET
    direction = DIRECTIONS.get(values.get("direction", ""), RECEIVE)
    if not clusters:
        return _none(request, by=by)
    if request.method == "GET":
        initial = {name: value for name in _PREFILLED if (value := values.get(name))}
        return _form(request, CreateLinkForm(direction=direction, clusters=clusters, initial=initial))
    form = CreateLinkForm(request.POST, direction=direction, clusters=clusters)
    if not form.is_valid():
        return _form(request, form, status=422)
    if request.POST.get("intent") == "curl":
        return _form(request, form, snippet=_snippet(request, form))
    return _perform(request, form, clusters=clusters, by=by)


def _none(request: HttpRequest, *, by: Actor) -> HttpResponse:
    """Show what to do first if the user may see no cluster."""
    environments = list_environments(by=by)
    may_register = any(can(by, Permission.MANAGE_CLUSTER, environment=environment) for environment in environments)
    return reply(request, "links/new_none.html", {"crumbs": _crumbs(), "may_register": may_register})


def _perform(request: HttpRequest, form: CreateLinkForm, *, clusters: list[Cluster], by: Actor) -> HttpResponse:
    values = form.cleaned_data
    try:
        link = link_actions.create_link(
            destination=next(cluster for cluster in clusters if cluster.cluster_id == values["destination"]),
            name=values["name"],
            source_cluster_id=form.source_id(),
            configs=form.configs(),
            validate_only=request.POST.get("intent") == "validate",
            by=by,
            now=timezone.now(),
        )
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _form(request, form, problem=problem, status=status_of(error))
    if isinstance(link, LinkValidation):
        return _form(request, form, validated=True, distances=distance_rows(link.distances or ()))
    return done(request, link.get_absolute_url(), f"Cluster link {link.name} created. {_next_step(form, link)}")


def _next_step(form: CreateLinkForm, link: ClusterLink) -> str:
    paired = pairs.other_side(link) is not None
    if not pairs.has_two_sides(link) and "auto_create" in form.switched_on():
        return "Mirror topics are created automatically within five minutes."
    if not paired:
        return form.direction.next_step
    return "The paired link already exists. " + (
        "Next step: add mirror topics." if form.direction.has_mirrors else "Next step: add mirror topics to the paired link."
    )


def _form(request: HttpRequest, form: CreateLinkForm, *, status: int = 200, **more: object) -> HttpResponse:
    context = {"form": form, "direction": form.direction, "directions": DIRECTIONS.values(), "crumbs": _crumbs()}
    return reply(request, "links/new.html", context | more, status=status)


def _crumbs() -> list[Crumb]:
    return [Crumb(label="Cluster links", url=reverse("pages:links")), Crumb(label="Create cluster link")]


def _snippet(request: HttpRequest, form: CreateLinkForm) -> str:
    values = form.cleaned_data
    path = reverse("kafka:links", args=(values["destination"],), query={"link_name": values["name"]})
    return curl(
        "POST",
        request.build_absolute_uri(path),
        {form.direction.remote_field: form.source_id(), "configs": config_list(form.configs())},
    )

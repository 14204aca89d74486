"""The Environments section: environments, clusters and their namespaces. ``topic_pages`` has the topics of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, check_permission
from console.actors import Actor
from console.clusters import actions as cluster_actions
from console.clusters import queries as cluster_queries
from console.clusters.presenters import cluster_health, cluster_row, environment_health, leader_prefix, namespace_row
from console.errors import ConsoleError, InvalidInputError
from console.links import checks as link_checks
from console.links import queries as link_queries
from console.links.form_presenters import checklist
from console.links.pages import LINKS
from console.links.presenters import LinkRow, link_row, worst_first
from console.models import Cluster, ClusterLink, Environment, Namespace
from console.web import numbers
from console.web.forms import ConnectionForm
from console.web.health_presenters import HealthView
from console.web.polling import is_unchanged, seen_token
from console.web.request_handling import Crumb, Tab, actor_of, done, fragment_of, page, problem_of, reply, status_of
from linkengine.domain.states import LinkMode

# --- environments, and the registration of clusters -------------------------------------------------------------------


TOPICS_SHOWN = 200


@page("environments")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Show the environments as cards, or all links in the Cluster links tab.

    Polled every two seconds; returns 204 if nothing has changed.
    """
    by, now = actor_of(request), timezone.now()
    environments, clusters = cluster_queries.list_environments(by=by), cluster_queries.list_clusters(by=by)
    loaded = link_queries.load_links(by=by)
    versions = [
        [(place.pk, place.name, place.organization.name) for place in environments],
        [cluster_queries.version_of(cluster) for cluster in clusters],
        *link_queries.versions_of(loaded, by=by),
    ]
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    links = [link_row(summary, now=now) for summary in link_queries.summarize(loaded, by=by)]
    tab = "links" if request.GET.get("tab") == "links" else "environments"
    context = {
        "tab": tab,
        "tabs": [
            Tab(label=gettext("Environments"), url=reverse("pages:environments"), current=tab == "environments"),
            Tab(
                label=gettext("Cluster links"),
                url=reverse("pages:environments", query={"tab": "links"}),
                current=tab == "links",
            ),
        ],
        "places": [_card(environment, clusters, links) for environment in environments],
        **_links(worst_first(links), versions, now=now),
        "clusters_known": bool(clusters),
        "may_create": any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
        "may_create_environment": by.may_do_all,
    }
    return reply(request, "environments/list.html", context)


@page("environments")
@require_GET
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the clusters and links of an environment. Polled every two seconds; returns 204 if nothing has changed."""
    by, now = actor_of(request), timezone.now()
    environment = cluster_queries.get_environment(slug=slug, by=by)
    clusters = cluster_queries.list_clusters(by=by, environment=environment)
    loaded = link_queries.load_links(by=by, environment=environment)
    versions = [
        environment.name,
        [cluster_queries.version_of(cluster) for cluster in clusters],
        *link_queries.versions_of(loaded, by=by),
    ]
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    summaries = link_queries.summarize(loaded, by=by)
    rows = worst_first([link_row(summary, now=now) for summary in summaries])
    context = {
        "environment": {"name": environment.name, "slug": environment.slug},
        "health": _environment_health(clusters, rows),
        "environment_name": environment.name,
        "clusters": [
            {"row": cluster_row(cluster, now=now), "health": cluster_health(cluster, summaries)} for cluster in clusters
        ],
        **_links(rows, versions, now=now),
        "may_register": can(by, Permission.MANAGE_CLUSTER, environment=environment),
        "may_create": any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
        "clusters_known": bool(clusters),
        "crumbs": [Crumb(label=gettext("Environments"), url=reverse("pages:environments")), Crumb(label=environment.name)],
    }
    return reply(request, "environments/environment.html", context)


class RegisterForm(ConnectionForm):
    """Name and connection of a cluster."""

    name = forms.CharField(
        label=gettext_lazy("Cluster name"), max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    field_order = ("name",)


@page("environments")
@sensitive_post_parameters("password", "key_pem", "key_password")
@require_http_methods(["GET", "POST"])
def register(request: HttpRequest, slug: str) -> HttpResponse:
    """Test the connection to a cluster, or register it."""
    by = actor_of(request)
    environment = cluster_queries.get_environment(slug=slug, by=by)
    check_permission(by, Permission.MANAGE_CLUSTER, environment=environment)
    form = RegisterForm(request.POST or None)
    if request.method == "GET":
        return _register_form(request, environment, form)
    if not form.is_valid():
        return _register_form(request, environment, form, status=422)
    try:
        if request.POST.get("intent") == "test":
            checks = link_checks.check_properties(form.properties(), by=by)
            return _register_form(request, environment, form, checklist=checklist(checks, now=timezone.now()))
        cluster = cluster_actions.register_cluster(
            environment=environment,
            name=form.cleaned_data["name"],
            properties=form.properties(),
            by=by,
            now=timezone.now(),
        )
    except ConsoleError as error:
        problem = {} if form.refuse(error) else problem_of(error)
        return _register_form(request, environment, form, problem=problem, status=status_of(error))
    message = gettext("Cluster %(cluster)s registered.") % {"cluster": cluster.name}
    return done(request, cluster.get_absolute_url(), message)


@page("environments")
@require_GET
def cluster(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Show a cluster with its links and its topics as of the last probe.

    Polled every two seconds; returns 204 if nothing has changed.
    """
    return _show_cluster(request, cluster_queries.get_cluster(cluster_id=cluster_id, by=actor_of(request)))


@page("environments")
@require_POST
def check(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Test the connection with the registered properties, and show the checklist on the page of the cluster."""
    by, now = actor_of(request), timezone.now()
    found = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    try:
        checks = link_checks.check_registered(cluster=found, by=by)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show_cluster(request, found, problem=problem_of(error), status=status_of(error))
    return _show_cluster(request, found, checklist=checklist(checks, now=now))


def _show_cluster(request: HttpRequest, found: Cluster, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    environment, may_see_all = found.environment, can(by, Permission.VIEW, cluster=found)
    loaded = link_queries.load_links(by=by, cluster_id=found.cluster_id)
    versions = [environment.name, cluster_queries.version_of(found), *link_queries.versions_of(loaded, by=by)]
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    summaries = link_queries.summarize(loaded, by=by)
    rows = worst_first([link_row(summary, now=now) for summary in summaries])
    context = {
        "cluster": cluster_row(found, now=now),
        "environment_name": environment.name,
        "health": cluster_health(found, summaries),
        **_links(rows, versions, now=now),
        "may_see_all": may_see_all,
        **(_topics(found) if may_see_all and fragment_of(request) != "live" else {}),  # polls leave the topics as they are
        "clusters_known": True,
        "may_create": can(by, Permission.MANAGE_LINK, cluster=found),
        "crumbs": [
            Crumb(label=gettext("Environments"), url=reverse("pages:environments")),
            Crumb(label=environment.name, url=environment.get_absolute_url()),
            Crumb(label=found.name),
        ],
    }
    return reply(request, "environments/cluster.html", context | more, status=status)


@page("environments")
@require_POST
def refresh(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Request a new probe of the cluster."""
    by = actor_of(request)
    found = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    cluster_actions.refresh(cluster=found, by=by)
    return done(request, found.get_absolute_url(), gettext("Refresh of the cluster requested."))


def _links(rows: Sequence[LinkRow], versions: Sequence[object], *, now: datetime) -> dict[str, object]:
    """Return the template context of a list of links and of its polls."""
    seen = seen_token(*versions, now=now, steady=all(row.health.steady for row in rows))
    return {"rows": rows, "headings": LINKS.columns, "seen": seen}


def _topics(cluster: Cluster) -> dict[str, object]:
    """Return the topics of the cluster as of the last probe, and the number of those that are not listed."""
    topics = cluster_queries.listed_topics(cluster)
    shown = [
        {"name": topic.name, "partitions": topic.partitions, "retention": numbers.retention(topic.retention_ms)}
        for topic in topics[:TOPICS_SHOWN]
    ]
    return {"topics": shown, "more_topics": topics.count() - TOPICS_SHOWN if len(shown) == TOPICS_SHOWN else 0}


def _card(environment: Environment, clusters: Sequence[Cluster], links: Sequence[LinkRow]) -> dict[str, object]:
    own_clusters = [cluster for cluster in clusters if cluster.environment_id == environment.pk]
    own_links = [row for row in links if row.environment == environment.pk]
    return {
        "name": environment.name,
        "organization": environment.organization.name,
        "url": environment.get_absolute_url(),
        "clusters": len(own_clusters),
        "links": len(own_links),
        "mirrors": sum(row.mirrors for row in own_links),
        "attention": sum(row.attention for row in own_links),
        "health": _environment_health(own_clusters, own_links),
    }


def _environment_health(clusters: Sequence[Cluster], links: Sequence[LinkRow]) -> HealthView | None:
    """Return the health of an environment; None if it has neither clusters nor links."""
    return environment_health(clusters, [(row.name, row.health) for row in links]) if clusters or links else None


def _register_form(
    request: HttpRequest, environment: Environment, form: RegisterForm, *, status: int = 200, **more: object
) -> HttpResponse:
    url = environment.get_absolute_url()
    context = {
        "form": form,
        "environment_name": environment.name,
        "cancel": url,
        "crumbs": [Crumb(label=environment.name, url=url), Crumb(label=gettext("Register cluster"))],
    }
    return reply(request, "environments/register.html", context | more, status=status)


def below_cluster(cluster: Cluster, *last: Crumb, now: datetime) -> dict[str, object]:
    """Return the template context of pages below that of a cluster. ``last`` are the breadcrumbs after the cluster."""
    environment = cluster.environment
    return {
        "cluster": cluster_row(cluster, now=now),
        "environment_name": environment.name,
        "crumbs": [
            Crumb(label=environment.name, url=environment.get_absolute_url()),
            Crumb(label=cluster.name, url=cluster.get_absolute_url()),
            *last,
        ],
    }


# --- namespaces -------------------------------------------------------------------------------------------------------


@page("environments")
@require_http_methods(["GET", "POST"])
def namespaces(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Show the namespaces; perform the submitted action and show them again."""
    by = actor_of(request)
    cluster = cluster_queries.get_whole_cluster(cluster_id=cluster_id, by=by)
    if request.method == "GET":
        return _show(request, cluster)
    try:
        message = _act(request, cluster, by=by)
    except ConsoleError as error:
        if error.kind in {"denied", "not_found"}:
            raise
        return _show(
            request, cluster, status=status_of(error), problem=problem_of(error), prefix=request.POST.get("prefix", "")
        )
    return done(request, reverse("pages:cluster-namespaces", args=(cluster.cluster_id,)), message)


def _act(request: HttpRequest, cluster: Cluster, *, by: Actor) -> str:
    """Perform the action of the submitted button; return the message for the user."""
    intent, now = request.POST.get("intent", ""), timezone.now()
    if intent == "create":
        prefix, reserved = request.POST.get("prefix", "").strip(), bool(request.POST.get("reserved"))
        namespace = cluster_actions.create_namespace(cluster=cluster, prefix=prefix, reserved=reserved, by=by, now=now)
        return gettext("Namespace %(namespace)s created.") % {"namespace": namespace}
    namespace = _namespace(request, cluster)
    if intent == "attach":
        link = link_queries.get_link(cluster_id=cluster.cluster_id, name=request.POST.get("link", ""), by=by)
        cluster_actions.attach(namespace=namespace, link=link, leader_prefix=leader_prefix(namespace, link), by=by, now=now)
        return gettext("Namespace %(namespace)s attached to link %(link)s.") % {"namespace": namespace, "link": link.name}
    if intent == "detach":
        cluster_actions.detach(namespace=namespace, by=by, now=now)
        return gettext("Namespace %(namespace)s detached from its link. It remains reserved.") % {"namespace": namespace}
    if intent == "delete":
        cluster_actions.delete_namespace(namespace=namespace, by=by, now=now)
        return gettext("Namespace %(namespace)s is being deleted. Its topics are not deleted.") % {"namespace": namespace}
    reserved = intent == "reserve"
    cluster_actions.reserve(namespace=namespace, reserved=reserved, by=by, now=now)
    message = (
        gettext("Namespace %(namespace)s reserved.") if reserved else gettext("Reservation of namespace %(namespace)s removed.")
    )
    return message % {"namespace": namespace}


def _namespace(request: HttpRequest, cluster: Cluster) -> Namespace:
    number = request.POST.get("namespace", "")
    if not number.isdecimal():
        raise InvalidInputError(gettext("The request names no namespace."), field="namespace")
    return cluster_queries.get_namespace(cluster=cluster, namespace_id=int(number[:18]))


def _show(request: HttpRequest, cluster: Cluster, *, status: int = 200, **more: object) -> HttpResponse:
    by = actor_of(request)
    links = list(ClusterLink.objects.filter(destination=cluster).exclude(mode=LinkMode.SOURCE))
    context = {
        "rows": [namespace_row(summary, links=links) for summary in cluster_queries.list_namespaces(cluster=cluster)],
        "may_manage": can(by, Permission.MANAGE_LINK, cluster=cluster) and can(by, Permission.MANAGE_ACLS, cluster=cluster),
        **below_cluster(cluster, Crumb(label=gettext("Namespaces")), now=timezone.now()),
    }
    return reply(request, "environments/namespaces.html", context | more, status=status)

"""The Environments section: environments, their clusters and links, and the registration of clusters."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, can, check_permission
from console.actions import clusters as cluster_actions
from console.actions import connectiontests
from console.errors import ConsoleError
from console.models import Cluster, Environment
from console.pages.forms import ConnectionForm
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import Crumb, Tab
from console.presenters import numbers
from console.presenters.clusters import cluster_row
from console.presenters.connectionchecks import checklist
from console.presenters.health import HealthView, cluster_health_view, severity
from console.presenters.links import LinkRow, link_row, worst_first
from console.queries import clusters as cluster_queries
from console.queries import links as link_queries
from console.queries.links import LinkSummary

TOPICS_SHOWN = 200


@page("environments")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """Show the environments as cards, or all links in the Cluster links tab."""
    by, now = actor_of(request), timezone.now()
    links = [link_row(summary, now=now) for summary in link_queries.list_links(by=by)]
    clusters = cluster_queries.list_clusters(by=by)
    tab = "links" if request.GET.get("tab") == "links" else "environments"
    context = {
        "tab": tab,
        "tabs": [
            Tab(label="Environments", url=reverse("pages:environments"), current=tab == "environments"),
            Tab(label="Cluster links", url=reverse("pages:environments", query={"tab": "links"}), current=tab == "links"),
        ],
        "places": [_card(environment, clusters, links) for environment in cluster_queries.list_environments(by=by)],
        "rows": worst_first(links),
        "clusters_known": bool(clusters),
        "may_create": any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
        "may_create_environment": request.user.is_staff and request.user.has_perm("console.add_environment"),
    }
    return reply(request, "environments/list.html", context)


@page("environments")
@require_GET
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the clusters and links of an environment."""
    by, now = actor_of(request), timezone.now()
    environment = cluster_queries.get_environment(slug=slug, by=by)
    clusters = cluster_queries.list_clusters(by=by, environment=environment)
    summaries = link_queries.list_links(by=by, environment=environment)
    context = {
        "environment": {"name": environment.name, "slug": environment.slug},
        "environment_name": environment.name,
        "clusters": [
            {"row": cluster_row(cluster, now=now), "health": _cluster_health(cluster, summaries)} for cluster in clusters
        ],
        "rows": worst_first([link_row(summary, now=now) for summary in summaries]),
        "may_register": can(by, Permission.MANAGE_CLUSTER, environment=environment),
        "may_create": any(can(by, Permission.MANAGE_LINK, cluster=cluster) for cluster in clusters),
        "clusters_known": bool(clusters),
        "crumbs": [Crumb(label="Environments", url=reverse("pages:environments")), Crumb(label=environment.name)],
    }
    return reply(request, "environments/detail.html", context)


class RegisterForm(ConnectionForm):
    """Name and connection of a cluster."""

    name = forms.CharField(label="Cluster name", max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
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
            checks = connectiontests.check_properties(form.properties(), by=by)
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
    return done(request, cluster.get_absolute_url(), f"Cluster {cluster.name} registered.")


@page("environments")
@require_GET
def cluster(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Show a cluster with its links and its topics as of the last probe."""
    found = cluster_queries.get_cluster(cluster_id=cluster_id, by=actor_of(request))
    return _show_cluster(request, found)


@page("environments")
@require_POST
def check(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """Test the connection with the registered properties, and show the checklist on the page of the cluster."""
    by, now = actor_of(request), timezone.now()
    found = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    try:
        checks = connectiontests.check_registered(cluster=found, by=by)
    except ConsoleError as error:
        if error.kind == "denied":
            raise
        return _show_cluster(request, found, problem=problem_of(error), status=status_of(error))
    return _show_cluster(request, found, checklist=checklist(checks, now=now))


def _show_cluster(request: HttpRequest, found: Cluster, *, status: int = 200, **more: object) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    environment, may_see_all = found.environment, can(by, Permission.VIEW, cluster=found)
    summaries = link_queries.list_links(by=by, cluster_id=found.cluster_id)
    context = {
        "cluster": cluster_row(found, now=now),
        "environment_name": environment.name,
        "health": _cluster_health(found, summaries),
        "rows": worst_first([link_row(summary, now=now) for summary in summaries]),
        "may_see_all": may_see_all,
        **(_topics(found) if may_see_all else {}),
        "clusters_known": True,
        "may_create": can(by, Permission.MANAGE_LINK, cluster=found),
        "crumbs": [
            Crumb(label="Environments", url=reverse("pages:environments")),
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
    cluster_actions.refresh(cluster=found, by=by, now=timezone.now())
    return done(request, found.get_absolute_url(), "Refresh of the cluster requested.")


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
        "worst": _worst_of(own_clusters, own_links),
    }


def _cluster_health(cluster: Cluster, summaries: Sequence[LinkSummary]) -> HealthView:
    """Return the health of a cluster: that of its last check, or of the worst link to it."""
    return cluster_health_view(
        [(summary.link.name, summary.health) for summary in summaries if summary.link.destination_id == cluster.pk],
        reachable=None if cluster.probed_at is None and not cluster.error_code else not cluster.error_code,
    )


def _worst_of(clusters: Sequence[Cluster], links: Sequence[LinkRow]) -> tuple[str, HealthView] | None:
    """Return the name and the health of the worst link or cluster of an environment; None if it has neither."""
    named = [(row.name, row.health) for row in links] + [(cluster.name, _cluster_health(cluster, ())) for cluster in clusters]
    return min(named, key=lambda pair: severity(pair[1]), default=None)


def _register_form(
    request: HttpRequest, environment: Environment, form: RegisterForm, *, status: int = 200, **more: object
) -> HttpResponse:
    url = environment.get_absolute_url()
    context = {
        "form": form,
        "environment_name": environment.name,
        "cancel": url,
        "crumbs": [Crumb(label=environment.name, url=url), Crumb(label="Register cluster")],
    }
    return reply(request, "environments/register.html", context | more, status=status)

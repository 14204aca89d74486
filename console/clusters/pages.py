"""The Environments and Topics sections, and topics and namespaces of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django import forms
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import (
    Permission,
    can,
    check_permission,
    cluster_names,
    role_needed,
    visible_mirrors,
)
from console.actors import Actor
from console.clusters import actions as cluster_actions
from console.clusters import live_queries
from console.clusters import queries as cluster_queries
from console.clusters.presenters import (
    cluster_health,
    cluster_row,
    environment_health,
    leader_prefix,
    listed_mirror,
    namespace_row,
    topic_config_rows,
    topic_group_list,
    topic_row,
)
from console.clusters.queries import cluster_topics, with_mirrors
from console.errors import ConsoleError, InvalidInputError, UnavailableError
from console.links import checks as link_checks
from console.links import queries as link_queries
from console.links.form_presenters import checklist
from console.links.health_queries import links_health
from console.links.pages import LINKS, MIRROR_EXPORT, MIRROR_STATE
from console.links.presenters import LinkRow, link_row, worst_first
from console.links.task_queries import failing_rows
from console.mirrors import progress
from console.mirrors import queries as mirror_queries
from console.mirrors.presenters import mirror_row
from console.mirrors.queries import MirrorSummary
from console.models import Cluster, ClusterLink, Environment, Namespace
from console.models.links import LinkMode
from console.web import numbers
from console.web.badges import row_url
from console.web.forms import ConnectionForm
from console.web.health_presenters import HealthView
from console.web.lists import EVERY, PAGE_SIZE, Column, Filter, Listing, pager, start_of
from console.web.numbers import moment
from console.web.polling import is_unchanged, seen_token
from console.web.request_handling import Crumb, Tab, actor_of, done, fragment_of, page, problem_of, reply, status_of
from linkengine.domain.health import HealthStatus

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


def _below(cluster: Cluster, *last: Crumb, now: datetime) -> dict[str, object]:
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
        **_below(cluster, Crumb(label=gettext("Namespaces")), now=timezone.now()),
    }
    return reply(request, "environments/namespaces.html", context | more, status=status)


# --- the Topics section -----------------------------------------------------------------------------------------------


MIRROR_TOPICS = Listing(  # ``mirror_page`` sorts and filters
    noun=gettext_noop("mirror topic"),
    plural=gettext_noop("mirror topics"),
    columns=(
        Column(title=gettext_lazy("Mirror topic"), key="name"),
        Column(title=gettext_lazy("Source topic"), css="only-wide"),
        Column(title=gettext_lazy("Cluster link")),
        Column(title=gettext_lazy("Health"), key="state"),
        Column(title=gettext_lazy("Max lag"), key="lag", css="number", descends=True),
        Column(title=gettext_lazy("Time lag"), key="age", css="number", descends=True),
    ),
    default="",  # those that need attention first
    search_label=gettext_lazy("Filter by topic name"),
    filters=(MIRROR_STATE,),
    export={
        "cluster_id": "mirror.link.destination.cluster_id",
        "link": "mirror.link.name",
        **MIRROR_EXPORT,
    },
)
TOPICS = Listing(
    noun=gettext_noop("topic"),
    plural=gettext_noop("topics"),
    columns=(
        Column(title=gettext_lazy("Topic"), key="name", by=("name",)),
        Column(title=gettext_lazy("Mirroring"), key="mirroring", by=("is_mirror",), descends=True),
        Column(title=gettext_lazy("Partitions"), key="partitions", by=("partitions",), css="number", descends=True),
        Column(title=gettext_lazy("Retention"), key="retention", by=("retention_ms",), descends=True, optional=True),
    ),
    default="name",
    search=("name",),
    search_label=gettext_lazy("Filter by topic name"),
    filters=(
        Filter(
            name="mirroring",
            label=gettext_lazy("Mirroring"),
            every=gettext_lazy("All topics"),
            options=[("mirror", gettext_lazy("Mirror topics")), ("other", gettext_lazy("Other topics"))],
            by=lambda value: Q(is_mirror=value == "mirror"),
        ),
    ),
    export={
        "topic": "topic.name",
        "partitions": "topic.partitions",
        "replication_factor": "topic.replication_factor",
        "retention_ms": "topic.retention_ms",
        "is_mirror": "topic.is_mirror",
        "source_cluster_id": lambda row: row.mirror_of and row.mirror_of["source"],
        "source_topic": lambda row: row.mirror_of and row.mirror_of["source_topic"],
        "source_for": lambda row: " ".join(f"{mirror['destination']}/{mirror['name']}" for mirror in row.source_for),
    },
)


@page("topics")
@require_GET
def topic_index(request: HttpRequest) -> HttpResponse:
    """List the mirror topics of all links that the user may see.

    Polled every two seconds; returns 204 if nothing has changed.
    """
    by, now = actor_of(request), timezone.now()
    versions = link_queries.versions_of_all(by=by)
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    listed = MIRROR_TOPICS.read(request)
    chosen: dict[str, Any] = {
        "by": by,
        "search": listed.query,
        "state": listed.values["state"],
        "order": listed.sort,
    }
    if listed.format:
        return listed.csv("mirror-topics", mirror_queries.mirror_page(**chosen, size=EVERY).rows)
    found = mirror_queries.mirror_page(**chosen, start=start_of(request), size=PAGE_SIZE)
    listed.pager = pager(request, start=found.start, shown=len(found.rows), total=found.total)
    statuses = _statuses(found.rows, by=by, now=now)
    context = {
        "list": listed,
        "found": [
            {"row": mirror_row(summary, now=now, health=statuses.get(summary.mirror.pk)), "link": _link(summary.mirror.link)}
            for summary in found.rows
        ],
        "seen": seen_token(*versions, now=now, steady=all(status.steady for status in statuses.values())),
    }
    return reply(request, "topics/list.html", context)


def _statuses(rows: Sequence[MirrorSummary], *, by: Actor, now: datetime) -> dict[int, HealthStatus]:
    """Return the health of mirrors of several links, by primary key. Two queries, three if a task fails."""
    links = list({row.mirror.link_id: row.mirror.link for row in rows}.values())
    chosen = visible_mirrors(by).filter(pk__in=[row.mirror.pk for row in rows])
    current = [progress.current_of(row.mirror, row.partitions) for row in rows]
    health = links_health(links, chosen, now=now, failing=failing_rows(links=links), shown=(), current=current)
    return {pk: mirror.status for of_link in health.values() for pk, mirror in of_link.mirrors.items()}


@page("environments")
@require_GET
def of_cluster(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """List the topics of a cluster as of the last check, with their mirror topics and sources."""
    by, now = actor_of(request), timezone.now()
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    listed = TOPICS.read(request)
    topics = listed.select(cluster_topics(cluster=cluster, by=by))
    if listed.format:
        return listed.csv(f"topics-{cluster.cluster_id}", with_mirrors(list(topics), cluster=cluster, by=by))
    names = cluster_names(by)
    context = {
        "list": listed,
        "rows": [topic_row(row, names) for row in with_mirrors(listed.page(topics), cluster=cluster, by=by)],
        **_below(cluster, Crumb(label=gettext("Topics")), now=now),
    }
    return reply(request, "topics/of_cluster.html", context)


@page("environments")
@require_GET
def topic_of_cluster(request: HttpRequest, cluster_id: str, topic_name: str) -> HttpResponse:
    """Show a topic of a cluster as of the last check. ``?load=1`` reads its configs and consumer groups through a worker.

    The states of its mirror topics are polled every two seconds; returns 204 if nothing has changed.
    """
    by, now = actor_of(request), timezone.now()
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    versions = link_queries.versions_of_all(by=by)
    if is_unchanged(request, *versions, now=now):
        return HttpResponse(status=204)
    row = cluster_queries.get_topic(cluster=cluster, name=topic_name, by=by)
    found, status = _load_topic(cluster, topic_name, by=by) if request.GET.get("load") else ({}, 200)
    topic = row.topic
    topics = Crumb(label=gettext("Topics"), url=reverse("pages:cluster-topics", args=(cluster.cluster_id,)))
    context = {
        "topic": topic_row(row, cluster_names(by)) | {"topic_id": topic.topic_id, "factor": topic.replication_factor},
        "mirrors": [listed_mirror(source) for source in row.source_for],
        "read_at": moment(now, now=now) if found else None,
        "role_for_groups": "" if can(by, Permission.VIEW, cluster=cluster) else role_needed(Permission.VIEW),
        **_below(cluster, topics, Crumb(label=topic.name), now=now),
        "seen": seen_token(*versions, now=now),
    }
    return reply(request, "topics/topic.html", context | found, status=status)


def _load_topic(cluster: Cluster, topic: str, *, by: Actor) -> tuple[dict[str, Any], int]:
    """Return configs and consumer groups of a topic, or why they cannot be read, and the status. Waits for a worker."""
    reads: dict[str, Callable[[], Any]] = {
        "configs": lambda: topic_config_rows(live_queries.query_topic(cluster, "topic_configs", topic=topic, by=by)),
        "groups": lambda: topic_group_list(live_queries.topic_groups(cluster=cluster, topic=topic, by=by)),
    }
    found: dict[str, Any] = {}
    status = 200
    for name, read in reads.items():
        try:
            found[name] = read()
        except UnavailableError as error:  # the other read would have to wait for the same
            return found | {"problem": problem_of(error)}, 503
        except ConsoleError as error:
            found[f"{name}_problem"], status = problem_of(error), status_of(error)
    return found, status


def _link(link: ClusterLink) -> dict[str, str]:
    cluster = link.destination
    return {
        "name": link.name,
        "cluster_id": cluster.cluster_id,
        "url": row_url("pages:link", *link.url_args),
        "destination": cluster.name,
    }

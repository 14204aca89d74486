"""The Topics section (all mirror topics), and the topics of a cluster as of its last check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access import Permission, can, cluster_names, role_needed, visible_mirrors
from console.actors import Actor
from console.clusters import live_queries
from console.clusters import queries as cluster_queries
from console.clusters.pages import below_cluster
from console.clusters.presenters import listed_mirror, topic_config_rows, topic_group_list, topic_row
from console.clusters.queries import cluster_topics, with_mirrors
from console.errors import ConsoleError, UnavailableError
from console.links import queries as link_queries
from console.links.health_queries import links_health
from console.links.pages import MIRROR_EXPORT, MIRROR_STATE
from console.links.task_queries import failing_rows
from console.mirrors import progress
from console.mirrors import queries as mirror_queries
from console.mirrors.presenters import mirror_row
from console.mirrors.queries import MirrorSummary
from console.models import Cluster, ClusterLink
from console.web.badges import row_url
from console.web.lists import EVERY, PAGE_SIZE, Column, Filter, Listing, pager, start_of
from console.web.numbers import moment
from console.web.polling import is_unchanged, seen_token
from console.web.request_handling import Crumb, actor_of, page, problem_of, reply, status_of
from linkengine.domain.health import HealthStatus

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
def index(request: HttpRequest) -> HttpResponse:
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
def list_of_cluster(request: HttpRequest, cluster_id: str) -> HttpResponse:
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
        **below_cluster(cluster, Crumb(label=gettext("Topics")), now=now),
    }
    return reply(request, "topics/of_cluster.html", context)


@page("environments")
@require_GET
def detail(request: HttpRequest, cluster_id: str, topic_name: str) -> HttpResponse:
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
        **below_cluster(cluster, topics, Crumb(label=topic.name), now=now),
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

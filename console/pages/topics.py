"""The Topics section: mirror topics of all links, topics of a cluster, and the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.access import cluster_names
from console.models import ClusterLink
from console.pages.lists import PAGE_SIZE, page_from, pager, start_of
from console.pages.request_handling import actor_of, page, reply
from console.pages.shell import Crumb
from console.presenters import numbers
from console.presenters.clusters import cluster_row
from console.presenters.links import endpoints_of
from console.presenters.mirrors import mirror_row
from console.presenters.states import link_look, mirror_look
from console.queries import clusters as cluster_queries
from console.queries import mirrorpages
from console.queries.clustertopics import TopicOfCluster, cluster_topics, with_mirrors
from console.queries.search import find

MAX_RESULTS = 50
SOURCE_FOR_SHOWN = 3  # mirror topics listed per source topic


@page("topics")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    """List the mirror topics of all links that the user may see."""
    by, now = actor_of(request), timezone.now()
    query = request.GET.get("q", "").strip()
    found = mirrorpages.mirror_page(by=by, search=query, start=start_of(request), size=PAGE_SIZE)
    context = {
        "found": [{"row": mirror_row(summary, now=now), "link": _link(summary.mirror.link)} for summary in found.rows],
        "pager": pager(request, start=found.start, shown=len(found.rows), total=found.total),
        "query": query,
    }
    return reply(request, "topics/list.html", context)


@page("environments")
@require_GET
def of_cluster(request: HttpRequest, cluster_id: str) -> HttpResponse:
    """List the topics of a cluster as of the last check, with their mirror topics and sources."""
    by, now, query = actor_of(request), timezone.now(), request.GET.get("q", "").strip()
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    shown, where = page_from(request, cluster_topics(cluster=cluster, by=by, search=query))
    names, environment = cluster_names(by), cluster.environment
    context = {
        "cluster": cluster_row(cluster, now=now),
        "environment_name": environment.name,
        "rows": [_topic_row(row, names) for row in with_mirrors(shown, cluster=cluster, by=by)],
        "pager": where,
        "query": query,
        "crumbs": [
            Crumb(label=environment.name, url=environment.get_absolute_url()),
            Crumb(label=cluster.name, url=cluster.get_absolute_url()),
            Crumb(label="Topics"),
        ],
    }
    return reply(request, "topics/of_cluster.html", context)


@page("")
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    """Search links, mirror topics, clusters, topics, consumer groups and users by a part of the name."""
    query = request.GET.get("q", "").strip()
    found = find(query, by=actor_of(request), limit=MAX_RESULTS)
    context = {
        "query": query,
        "found": found,
        "links": [_link_row(link) for link in found.links],
        "mirrors": [
            row | {"url": _mirror_url(row), "look": mirror_look(row["state"], row["stop_reason"])} for row in found.mirrors
        ],
        "source_topics": [
            row | {"url": reverse("pages:link-topic", args=(*_link_args(row), row["name"]))} for row in found.source_topics
        ],
        "topics": [
            row | {"url": reverse("pages:cluster-topics", args=(row["listed_on"],), query={"q": row["name"]})}
            for row in found.topics
        ],
        "groups": [
            row | {"url": reverse("pages:link-groups", args=_link_args(row), query={"q": row["name"]})} for row in found.groups
        ],
    }
    return reply(request, "search.html", context)


def _link_row(link: ClusterLink) -> dict[str, Any]:
    (source, _), (destination, _) = endpoints_of(link)
    look = link_look(link.state)
    return {"name": link.name, "url": link.get_absolute_url(), "source": source, "destination": destination, "look": look}


def _topic_row(row: TopicOfCluster, names: Mapping[str, str]) -> dict[str, Any]:
    topic, mirror = row.topic, row.mirror_of
    listed = [
        {"name": source["name"], "cluster": source["destination_name"], "url": _mirror_url(source)}
        for source in row.source_for[:SOURCE_FOR_SHOWN]
    ]
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "retention": numbers.retention(topic.retention_ms),
        "mirror_of": mirror
        and {
            "topic": mirror["source_topic"],
            "cluster": names.get(mirror["source"], mirror["source"]),
            "url": _mirror_url(mirror),
        },
        "is_unknown_mirror": topic.is_mirror and mirror is None,
        "source_for": listed,
        "more": len(row.source_for) - len(listed),
    }


def _mirror_url(row: Mapping[str, Any]) -> str:
    return reverse("pages:mirror", args=(*_link_args(row), row["name"]))


def _link_args(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the arguments of the URL patterns of a link's pages, from a row of a query."""
    return (row["destination"], row["link_name"])


def _link(link: ClusterLink) -> dict[str, str]:
    cluster = link.destination
    return {"name": link.name, "cluster_id": cluster.cluster_id, "url": link.get_absolute_url(), "destination": cluster.name}

"""Search by a part of a name: links, mirror topics, clusters, topics, consumer groups and users.

Rows are plain values, without lag and health, which would read the partitions of each mirror. Only links are objects, because
the name of their source depends on what the actor may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from django.db.models import F, Q, QuerySet

from console.access import visible_clusters, visible_mirrors, visible_topics, whole_links
from console.actors import Actor
from console.models import ClusterLink, SourceTopic, SyncedGroup
from console.queries.access import known_user_names
from console.queries.links import matching_links

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, by kind; at most ``limit`` rows each. Rows of links have link_name and the destination's cluster id."""

    links: Sequence[ClusterLink] = ()
    mirrors: Sequence[Row] = ()  # name, source_topic, state, stop_reason, destination_name, and those of a link
    clusters: Sequence[Row] = ()  # name, cluster_id, environment_name
    source_topics: Sequence[Row] = ()  # name, and those of a link
    topics: Sequence[Row] = ()  # name, cluster_name, listed_on: the cluster's id
    groups: Sequence[Row] = ()  # name, and those of a link
    users: Sequence[str] = ()
    is_cut: bool = False  # there is more of at least one kind

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self))


def find(text: str, *, by: Actor, limit: int) -> Found:
    """Return what the actor may see and whose name contains the text; mirrors also by their source topic. Seven queries."""
    if not text:
        return Found()
    links = matching_links(by=by, search=text).order_by("name", "pk")
    mirrors = visible_mirrors(by).filter(Q(name__icontains=text) | Q(source_topic__icontains=text)).order_by("name", "pk")
    clusters = visible_clusters(by).filter(name__icontains=text).order_by("name", "pk")
    topics = visible_topics(by).filter(name__icontains=text).order_by("name", "cluster__name", "pk")
    about = ("name", "source_topic", "state", "stop_reason")
    found: dict[str, Iterable[Any]] = {
        "links": links[: limit + 1],
        "mirrors": _of_links(mirrors, limit, *about, destination_name=F("link__destination__name")),
        "clusters": clusters.values("name", "cluster_id", environment_name=F("environment__name"))[: limit + 1],
        "source_topics": _of_links(_whole(SourceTopic.objects.filter(internal=False), text, by=by), limit, "name"),
        "topics": topics.values("name", cluster_name=F("cluster__name"), listed_on=F("cluster__cluster_id"))[: limit + 1],
        "groups": _of_links(_whole(SyncedGroup.objects.all(), text, by=by), limit, "name"),
        "users": [name for name in known_user_names(by=by) if text.lower() in name.lower()],
    }
    rows = {kind: list(of_kind) for kind, of_kind in found.items()}
    is_cut = any(len(of_kind) > limit for of_kind in rows.values())
    return Found(**{kind: of_kind[:limit] for kind, of_kind in rows.items()}, is_cut=is_cut)


def _whole(rows: QuerySet[Any], text: str, *, by: Actor) -> QuerySet[Any]:
    """Return matching rows of links of which the actor may see everything."""
    return rows.filter(link__in=whole_links(by), name__icontains=text).order_by("name", "link__name", "pk")


def _of_links(rows: QuerySet[Any], limit: int, *names: str, **others: F) -> QuerySet[Any, Row]:
    place = {"link_name": F("link__name"), "destination": F("link__destination__cluster_id")}
    return rows.values(*names, **place, **others)[: limit + 1]

"""Search by a part of a name for what links and mirror topics are made of: clusters, topics, consumer groups and users.

Rows are plain values: an object of a cluster or link would decrypt its credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet

from console.access import visible_clusters, visible_topics, whole_links
from console.actors import Actor
from console.models import SourceTopic, SyncedGroup
from console.queries.access import known_user_names

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, by kind; at most ``limit`` rows each. ``is_cut``: there is more."""

    clusters: Sequence[Row] = ()  # name, cluster_id, environment_name
    source_topics: Sequence[Row] = ()  # name, link_name, cluster_id of the link's destination
    topics: Sequence[Row] = ()  # name, cluster_name, its id
    groups: Sequence[Row] = ()  # name, link_name, cluster_id of the link's destination
    users: Sequence[str] = ()
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.clusters or self.source_topics or self.topics or self.groups or self.users)


def find(text: str, *, by: Actor, limit: int) -> Found:
    """Return what the actor may see and whose name contains the text. Six queries at most."""
    if not text:
        return Found()
    clusters = visible_clusters(by).filter(name__icontains=text).order_by("name")
    topics = visible_topics(by).filter(name__icontains=text).order_by("name", "cluster__name")
    found: dict[str, Sequence[Any]] = {
        "clusters": _rows(clusters, limit, "name", "cluster_id", environment_name=F("environment__name")),
        "source_topics": _of_links(SourceTopic.objects.filter(internal=False), text, by=by, limit=limit),
        "topics": _rows(topics, limit, "name", cluster_name=F("cluster__name"), listed_on=F("cluster__cluster_id")),
        "groups": _of_links(SyncedGroup.objects.all(), text, by=by, limit=limit),
        "users": [name for name in known_user_names(by=by) if text.lower() in name.lower()][: limit + 1],
    }
    is_cut = any(len(rows) > limit for rows in found.values())
    return Found(**{kind: rows[:limit] for kind, rows in found.items()}, is_cut=is_cut)


def _of_links(rows: QuerySet[Any], text: str, *, by: Actor, limit: int) -> list[Row]:
    """Return rows of links of which the actor may see everything."""
    matching = rows.filter(link__in=whole_links(by), name__icontains=text).order_by("name", "link__name")
    return _rows(matching, limit, "name", link_name=F("link__name"), destination=F("link__destination__cluster_id"))


def _rows(rows: QuerySet[Any], limit: int, *names: str, **others: F) -> list[Row]:
    return list(rows.values(*names, **others)[: limit + 1])

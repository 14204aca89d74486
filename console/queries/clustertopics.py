"""The topics of a registered cluster as of the last check: whether each is a mirror topic, and its own mirror topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, QuerySet

from console.access import visible_mirrors, visible_topics
from console.actors import Actor
from console.models import Cluster, SourceTopic

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOfCluster:
    """A topic with the mirror topics that the actor may see.

    Rows have name, source_topic, source (the cluster's id), link_name, destination (the cluster's id) and destination_name.
    """

    topic: SourceTopic
    mirror_of: Row | None  # the mirror topic that it is; None if it is not a mirror topic of a visible link
    source_for: Sequence[Row]  # mirror topics that copy from it


def cluster_topics(*, cluster: Cluster, by: Actor, search: str = "") -> QuerySet[SourceTopic]:
    """Return the topics of a cluster that the actor may see, by name."""
    topics = visible_topics(by).filter(cluster=cluster).order_by("name")
    return topics.filter(name__icontains=search) if search else topics


def with_mirrors(topics: Sequence[SourceTopic], *, cluster: Cluster, by: Actor) -> list[TopicOfCluster]:
    """Add the mirror topics to topics of a cluster. One query."""
    names = {topic.name for topic in topics}
    here = Q(link__destination=cluster, name__in=names)
    there = Q(link__source_cluster_id=cluster.cluster_id, source_topic__in=names)
    rows = visible_mirrors(by).unstopped().filter(here | there).order_by("name", "pk")
    mirror_of: dict[str, Row] = {}
    source_for: dict[str, list[Row]] = defaultdict(list)
    columns: Iterable[Any] = rows.values(
        "name",
        "source_topic",
        source=F("link__source_cluster_id"),
        link_name=F("link__name"),
        destination=F("link__destination__cluster_id"),
        destination_name=F("link__destination__name"),
    )
    for row in columns:
        if row["destination"] == cluster.cluster_id:
            mirror_of[row["name"]] = row
        if row["source"] == cluster.cluster_id:
            source_for[row["source_topic"]].append(row)
    return [
        TopicOfCluster(topic=topic, mirror_of=mirror_of.get(topic.name), source_for=source_for[topic.name]) for topic in topics
    ]

"""The topics of a registered cluster as of the last refresh, with the mirror topics on both of their sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet

from console.access import visible_mirrors, visible_topics
from console.actors import Actor
from console.models import Cluster, SourceTopic
from linkengine.domain.states import MirrorState

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOfCluster:
    """A topic; the mirrors are those that the actor may see, as name, link_name and destination (the cluster's id)."""

    topic: SourceTopic
    mirror_of: Row | None  # also source_topic and source (the cluster's id); None if it is not a mirror topic of a visible link
    source_for: Sequence[Row]  # mirror topics that copy from it; also destination_name


def cluster_topics(*, cluster: Cluster, by: Actor, search: str = "") -> QuerySet[SourceTopic]:
    """Return the topics of a cluster that the actor may see, by name."""
    topics = visible_topics(by).filter(cluster=cluster).order_by("name")
    return topics.filter(name__icontains=search) if search else topics


def with_mirrors(topics: Sequence[SourceTopic], *, cluster: Cluster, by: Actor) -> list[TopicOfCluster]:
    """Add the mirror topics to topics of a cluster. Two queries."""
    names = [topic.name for topic in topics]
    place = {"link_name": F("link__name"), "destination": F("link__destination__cluster_id")}
    mirrors = visible_mirrors(by).exclude(state=MirrorState.STOPPED).order_by("name", "pk")
    here = mirrors.filter(link__destination=cluster, name__in=names)
    there = mirrors.filter(link__source_cluster_id=cluster.cluster_id, source_topic__in=names)
    mirror_of = {row["name"]: row for row in here.values("name", "source_topic", source=F("link__source_cluster_id"), **place)}
    source_for: dict[str, list[Row]] = defaultdict(list)
    for row in there.values("name", "source_topic", destination_name=F("link__destination__name"), **place):
        source_for[row["source_topic"]].append(row)
    return [
        TopicOfCluster(topic=topic, mirror_of=mirror_of.get(topic.name), source_for=source_for[topic.name]) for topic in topics
    ]

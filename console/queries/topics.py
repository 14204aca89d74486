"""Source topics of a link as of the last refresh, for the form that adds a mirror topic."""

from __future__ import annotations

from dataclasses import dataclass

from console.access import Permission, can, link_words
from console.actors import Actor
from console.models import ClusterLink, MirrorTopic, SourceTopic
from console.queries.mirrorability import judge_source

LIMIT = 500  # maximum in the list; with more topics the user enters names or narrows the list


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicChoice:
    """A source topic that can be mirrored, or the reason why it cannot."""

    name: str
    partitions: int
    retention_ms: int | None
    available: bool
    reason: str = ""
    mirror_name: str = ""


def source_topics_for(*, link: ClusterLink, by: Actor, search: str = "", limit: int = LIMIT) -> list[SourceTopicChoice]:
    """Return source topics by name, those that can be mirrored first. Three queries. Empty unless ``is_listable``."""
    if not is_listable(link) or not can(by, Permission.VIEW, link=link):
        return []
    topics = link.source_topics.all()
    if search:
        topics = topics.filter(name__icontains=search)
    mirrored = dict(MirrorTopic.objects.filter(link__destination=link.destination_id).values_list("name", "link__name"))
    others = link_words(by, link.destination)
    mirrored = {name: "" if owner == link.name else others(owner) for name, owner in mirrored.items()}
    taken = set(SourceTopic.objects.filter(cluster=link.destination_id).values_list("name", flat=True))
    choices = [_choice(topic, link, mirrored=mirrored, taken=taken) for topic in topics[:limit]]
    return sorted(choices, key=lambda choice: (not choice.available, choice.name))


def matching_names(*, link: ClusterLink, by: Actor, search: str, standing: str, limit: int) -> list[str]:
    """Return the names of the source topics that can be mirrored and match the filter of the source topics list.

    Three queries, and eight more with a ``standing``.
    """
    names = [choice.name for choice in source_topics_for(link=link, by=by, search=search, limit=limit) if choice.available]
    if not standing:
        return names
    matching = {row.topic for row in judge_source(link=link, by=by, search=search) if row.standing == standing}
    return [name for name in names if name in matching]


def is_listable(link: ClusterLink) -> bool:
    """Return True if the source topics are known, so that a page can list them."""
    return link.topics_at is not None


def _choice(topic: SourceTopic, link: ClusterLink, *, mirrored: dict[str, str], taken: set[str]) -> SourceTopicChoice:
    """Create the choice of a topic. ``mirrored`` maps destination topics to the name of the other link, "" for this link."""
    name = link.prefix + topic.name
    reason = ""
    if topic.internal:
        reason = "Internal topic"
    elif name in mirrored:
        reason = f"'{name}' is a mirror topic of {mirrored[name]}" if mirrored[name] else "Already mirrored"
    elif name in taken:
        reason = f"The destination already has a topic '{name}'"
    return SourceTopicChoice(
        name=topic.name,
        partitions=topic.partitions,
        retention_ms=topic.retention_ms,
        available=not reason,
        reason=reason,
        mirror_name=name,
    )

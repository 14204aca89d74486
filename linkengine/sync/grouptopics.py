"""Check that committed offsets belong to the same topic that the mirror was created from, and to the same mirror.

A committed offset names its topic but not the topic id. If the source topic or the mirror was deleted and recreated, the same
offset is another record: syncing it would make a group read everything again, or skip records that it has not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import MirroredTopic
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.topics import find_mirror, missing_mirror, observe_sources


def unreplaced(source: ClusterAdmin, destination: ClusterAdmin, topics: Sequence[MirroredTopic]) -> set[str]:
    """Return the mirror topics whose ids on both sides are those noted at creation; a request per side and 500 topics.

    Call this after the offsets were read: Kafka never reuses a topic id, so offsets read before belong to the topic that still
    has the id.
    """
    source_ids = _ids(source, {topic.source_topic for topic in topics})
    destination_ids = _ids(destination, {topic.mirror_topic for topic in topics})
    return {
        topic.mirror_topic
        for topic in topics
        if _is_same(source_ids.get(topic.source_topic), topic.source_topic_id)
        and _is_same(destination_ids.get(topic.mirror_topic), topic.mirror_topic_id)
    }


def check_unreplaced(source: ClusterAdmin, destination: ClusterAdmin, topics: Iterable[MirroredTopic]) -> None:
    """Check each topic again; raise SOURCE_TOPIC_ID_CHANGED, SOURCE_TOPIC_MAY_BE_DELETED or MIRROR_TOPIC_MISSING."""
    for topic in topics:
        observed = observe_sources(source, {topic.source_topic: topic.source_topic_id})[topic.source_topic]
        if isinstance(observed, LinkEngineError):
            raise observed
        if find_mirror(destination, topic.mirror_topic, topic_id=topic.mirror_topic_id) is None:
            raise missing_mirror(topic.mirror_topic)


def _ids(admin: ClusterAdmin, names: Iterable[str]) -> dict[str, str]:
    return {topic.name: topic.topic_id for topic in admin.topics(names, with_configs=False)}


def _is_same(found: str | None, noted: str) -> bool:
    return found is not None and noted in {"", found}

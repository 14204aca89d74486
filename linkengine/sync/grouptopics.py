"""Which committed offsets belong to the very topics that a mirror was made of, and is.

A committed offset knows the name of its topic only. Where the source topic, or the mirror, was deleted and created again, the
same number means another record: carried over, it would lead a group back over all it has read, or past what it has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import MirroredTopic
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.topics import find_mirror, missing_mirror, observe_sources


def unreplaced(source: ClusterAdmin, destination: ClusterAdmin, topics: Sequence[MirroredTopic]) -> set[str]:
    """Answer the mirror topics that are on both sides what was noted when they were made; a request per side and 500 topics.

    Ask after the offsets were read: an id never comes back, so what was read before belongs to the topic that has it still.
    """
    there = _ids(source, {one.source_topic for one in topics})
    here = _ids(destination, {one.mirror_topic for one in topics})
    return {
        one.mirror_topic
        for one in topics
        if _is_same(there.get(one.source_topic), one.source_topic_id)
        and _is_same(here.get(one.mirror_topic), one.mirror_topic_id)
    }


def check_unreplaced(source: ClusterAdmin, destination: ClusterAdmin, topics: Iterable[MirroredTopic]) -> None:
    """Look closer; raise SOURCE_TOPIC_ID_CHANGED, SOURCE_TOPIC_MAY_BE_DELETED or MIRROR_TOPIC_MISSING if it is another."""
    for one in topics:
        seen = observe_sources(source, {one.source_topic: one.source_topic_id})[one.source_topic]
        if isinstance(seen, LinkEngineError):
            raise seen
        if find_mirror(destination, one.mirror_topic, topic_id=one.mirror_topic_id) is None:
            raise missing_mirror(one.mirror_topic)


def _ids(admin: ClusterAdmin, names: Iterable[str]) -> dict[str, str]:
    return {topic.name: topic.topic_id for topic in admin.topics(names, with_configs=False)}


def _is_same(found: str | None, noted: str) -> bool:
    return found is not None and noted in {"", found}

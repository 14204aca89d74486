"""Follow the source's topics: which are there, whether one is still the same topic, how many partitions it has.

A topic that seems to be gone or to have another id is looked at twice: right after a restart a broker may answer from old
metadata, and a mirror that is declared dead is not brought back by itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

import structlog

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.filters import NameFilter, chosen_topics
from linkengine.domain.naming import mirror_name
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin

SECOND_LOOK_AFTER_S = 2.0  # a broker that has just started catches up with the metadata log within this time

log = structlog.get_logger(__name__)


def discover_topics(source: ClusterAdmin, *, filters: Iterable[NameFilter], prefix: str, taken: Collection[str]) -> list[str]:
    """List the source topics that the filters choose and whose mirror name is not ``taken`` at the destination."""
    chosen = chosen_topics(filters, source.topic_names())
    return [name for name in chosen if mirror_name(name, prefix=prefix) not in taken]


def observe_sources(
    source: ClusterAdmin, wanted: Mapping[str, str], *, second_look_after_s: float = SECOND_LOOK_AFTER_S
) -> dict[str, TopicDescription | LinkEngineError]:
    """Describe source topics given as name to topic id; the error of each that is gone, was replaced or is hidden from us.

    Two requests per 500 topics. Those that do not look as expected are looked at again one by one, after one wait for all.
    """
    seen = {topic.name: topic for topic in source.topics(wanted, with_configs=False)}
    found: dict[str, TopicDescription | LinkEngineError] = {
        name: seen[name] for name, topic_id in wanted.items() if name in seen and seen[name].topic_id == topic_id
    }
    strange = [name for name in wanted if name not in found]
    if strange:
        log.info("source_topics_second_look", topics=strange[:10], number=len(strange))
        time.sleep(second_look_after_s)
    return found | {name: _second_look(source, name, topic_id=wanted[name]) for name in strange}


def observe_source(
    source: ClusterAdmin, topic: str, *, topic_id: str, second_look_after_s: float = SECOND_LOOK_AFTER_S
) -> TopicDescription:
    """Describe the source topic; raise SOURCE_TOPIC_MAY_BE_DELETED or SOURCE_TOPIC_ID_CHANGED once seen twice."""
    found = observe_sources(source, {topic: topic_id}, second_look_after_s=second_look_after_s)[topic]
    if isinstance(found, LinkEngineError):
        raise found
    return found


def _second_look(source: ClusterAdmin, topic: str, *, topic_id: str) -> TopicDescription | LinkEngineError:
    try:
        seen = source.find(topic)
    except LinkEngineError as error:
        return error
    if seen is None:
        return LinkEngineError(
            ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED,
            f"Source topic {topic!r} is not there any more, or the link's principal may no longer DESCRIBE it. Fail over to "
            "keep the mirrored records as an ordinary topic, or delete the mirror topic.",
        )
    if seen.topic_id != topic_id:
        return LinkEngineError(
            ErrorCode.SOURCE_TOPIC_ID_CHANGED,
            f"Source topic {topic!r} was deleted and created again (id {topic_id} became {seen.topic_id}), so its offsets have "
            "another meaning now. Fail over to keep the mirrored records, then create a new mirror topic.",
        )
    return seen


def follow_partitions(destination: ClusterAdmin, mirror_topic: str, *, partitions: int) -> int:
    """Grow the mirror to the source's number of partitions and answer it; raise SOURCE_PARTITIONS_DECREASED if it has more."""
    mirror = destination.find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    return grow_mirror(destination, mirror, partitions=partitions)


def grow_mirror(destination: ClusterAdmin, mirror: TopicDescription, *, partitions: int) -> int:
    """Grow a mirror that was just described; as ``follow_partitions``."""
    if mirror.partitions > partitions:
        raise LinkEngineError(
            ErrorCode.SOURCE_PARTITIONS_DECREASED,
            f"The source topic has {partitions} partitions, its mirror {mirror.name!r} has {mirror.partitions}. Kafka never "
            "removes partitions, so one of both was created again. Fail over, or delete the mirror topic and create it anew.",
        )
    if mirror.partitions < partitions:
        destination.add_partitions(mirror.name, total=partitions)
    return partitions


def observe_mirror(
    destination: ClusterAdmin,
    seen: TopicDescription | None,
    *,
    mirror_topic: str,
    topic_id: str,
    second_look_after_s: float = SECOND_LOOK_AFTER_S,
) -> TopicDescription:
    """Answer the topic of a mirror, ``seen`` a moment ago if at all; raise MIRROR_TOPIC_MISSING once it was missed twice.

    A topic with another id than ``topic_id``, where that is known, is somebody else's.
    """
    if seen is not None and topic_id in ("", seen.topic_id):
        return seen
    if seen is not None:
        time.sleep(second_look_after_s)
    found = destination.find(mirror_topic)
    if found is None or topic_id not in ("", found.topic_id):
        raise missing_mirror(mirror_topic, replaced=found is not None)
    return found


def missing_mirror(mirror_topic: str, *, replaced: bool = False) -> LinkEngineError:
    """Answer the error for a mirror topic that somebody deleted; ``replaced`` where another one of its name is there now."""
    other = " and created another one of its name, which is left alone" if replaced else ""
    return LinkEngineError(
        ErrorCode.MIRROR_TOPIC_MISSING,
        f"Mirror topic {mirror_topic!r} does not exist on the destination cluster; somebody deleted it{other}. Delete the "
        "mirror here and create it again.",
    )

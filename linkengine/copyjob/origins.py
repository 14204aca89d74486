"""Locates the leaders of source partitions and reads the bounds of their logs. Blocking; runs in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from linkengine.copyjob.history import Seen, find_rewound
from linkengine.copyjob.pieces import Origin
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.offsets import EARLIEST, EARLIEST_LOCAL, list_offsets, log_ends
from linkengine.kafka.topicviews import Leader, Survey, locate


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExtent:
    """Log start offset and log end offset of a source partition."""

    start: int
    end: int


def locate_sources(
    cluster: Cluster, assignments: Sequence[PartitionAssignment], *, seen: Mapping[str, Seen] = MappingProxyType({})
) -> dict[str, Origin | LinkEngineError]:
    """Return, by key, the leader to read each partition from, or the error that prevents reading.

    ``seen`` is the (epoch, end) that was read before, by key: a new leader has to have that still (``history``).
    """
    survey = cluster.survey({assignment.source_topic for assignment in assignments})
    results: dict[str, Origin | LinkEngineError] = {}
    for assignment in assignments:
        try:
            leader, topic_id = locate(survey.topics, assignment.source_topic, assignment.partition)
            _check_topic_id(assignment, survey)
        except LinkEngineError as error:
            results[assignment.key] = error
        else:
            by_id = any(topic_id)
            results[assignment.key] = Origin(leader, topic_id if by_id else assignment.source_topic.encode(), by_id)
    return results | find_rewound(cluster, assignments, found=results, seen=seen, everywhere=survey.everywhere)


def read_extent(cluster: Cluster, leader: Leader, *, topic: str, partition: int) -> SourceExtent:
    """Return the bounds of a log; raise BrokerError if the leader refuses, for example because it is no longer the leader.

    The log start is read twice and the lower value used: offsets before it count as lost, and a log start only grows, so a
    corrupted response loses nothing.
    """
    place = (topic, partition)
    answers = [list_offsets(cluster, leader.broker, [place], timestamp=EARLIEST)[place] for _ in range(2)]
    start_error, start = next((error for error, _ in answers if error), 0), min(offset for _, offset in answers)
    end_error, end = log_ends(cluster, leader.broker, {place: leader.epoch})[place]
    if start_error or end_error:
        raise BrokerError(start_error or end_error, f"Log start and log end of source {topic}-{partition} cannot be read")
    return SourceExtent(start=start, end=end)


def read_local_start(cluster: Cluster, leader: Leader, *, topic: str, partition: int) -> int:
    """Return the local log start offset: only from there on an empty Fetch response means that there are no records.

    Earlier records are in remote storage (KIP-405); while that is slow, a Fetch returns no records and no error.
    """
    error, start = list_offsets(cluster, leader.broker, [(topic, partition)], timestamp=EARLIEST_LOCAL)[topic, partition]
    if error:
        raise BrokerError(error, f"The local log start of source {topic}-{partition} cannot be read")
    return start


def _check_topic_id(assignment: PartitionAssignment, survey: Survey) -> None:
    """Raise an error if the topic was recreated: a permanent one only if all brokers respond and none has the former id."""
    found = survey.topics[assignment.source_topic].topic_id_text
    if assignment.source_topic_id and found and found != assignment.source_topic_id:
        if not survey.everywhere or assignment.source_topic_id in survey.topic_ids[assignment.source_topic]:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Source brokers disagree about topic {assignment.source_topic!r}: some know it under another id than before; "
                "others do not, or do not respond. Retrying automatically. If this persists, restart the broker that has lost "
                "contact with the others.",
            )
        raise LinkEngineError(
            ErrorCode.SOURCE_TOPIC_ID_CHANGED,
            f"Source topic {assignment.source_topic!r} was deleted and created again (former id {assignment.source_topic_id}, "
            f"new id {found}). Its offsets now belong to other records. Fail over to keep the mirror as it is, or delete the "
            "mirror topic and create it again to copy the new topic.",
        )

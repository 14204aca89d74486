"""Where source partitions are read, and what became of one whose offset is not there. Blocking; runs beside the loop."""

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
    """First offset and log end of a source partition, as its leader tells them."""

    start: int
    end: int


def locate_sources(
    cluster: Cluster, assignments: Sequence[PartitionAssignment], *, seen: Mapping[str, Seen] = MappingProxyType({})
) -> dict[str, Origin | LinkEngineError]:
    """Answer, by key, where to read, or why it cannot be told; ``seen`` is what was read before (``history.py``)."""
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
    """Return the extent; raise BrokerError where the leader refuses, for instance because it leads no more.

    The start is asked for twice and the lower one taken: what lies before it counts as lost, and a start only grows, so an
    answer that was changed on its way loses nothing.
    """
    place = (topic, partition)
    answers = [list_offsets(cluster, leader.broker, [place], timestamp=EARLIEST)[place] for _ in range(2)]
    start_error, start = next((error for error, _ in answers if error), 0), min(offset for _, offset in answers)
    end_error, end = log_ends(cluster, leader.broker, {place: leader.epoch})[place]
    if start_error or end_error:
        raise BrokerError(start_error or end_error, f"The extent of source {topic}-{partition} cannot be read")
    return SourceExtent(start=start, end=end)


def read_local_start(cluster: Cluster, leader: Leader, *, topic: str, partition: int) -> int:
    """Answer from where on the leader reads its own disk: there, and only there, an empty answer means an empty log.

    What lies before it comes from remote storage (KIP-405); while that is slow, a Fetch is answered with nothing and no error.
    """
    error, start = list_offsets(cluster, leader.broker, [(topic, partition)], timestamp=EARLIEST_LOCAL)[topic, partition]
    if error:
        raise BrokerError(error, f"The extent of source {topic}-{partition} cannot be read")
    return start


def _check_topic_id(assignment: PartitionAssignment, survey: Survey) -> None:
    """Raise where the topic is another one: for good only where all brokers answer and none of them knows the former."""
    found = survey.topics[assignment.source_topic].topic_id_text
    if assignment.source_topic_id and found and found != assignment.source_topic_id:
        if not survey.everywhere or assignment.source_topic_id in survey.topic_ids[assignment.source_topic]:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Brokers of the source know {assignment.source_topic!r} under another id than it had, and others answer "
                "differently, or not at all. Retrying. If this stays, restart the broker that has lost touch with the others.",
            )
        raise LinkEngineError(
            ErrorCode.SOURCE_TOPIC_ID_CHANGED,
            f"Source topic {assignment.source_topic!r} was deleted and created again (its id was {assignment.source_topic_id}, "
            f"now it is {found}). Its offsets mean other records now. Fail over to keep the mirror as it is, or delete the "
            "mirror topic and create it again to copy the new topic.",
        )

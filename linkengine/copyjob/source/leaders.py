"""Locates the leaders of source partitions: checks that they have what was read before, and notices unseen replacements.

The functions block; ``LeaderWatch`` runs them in the background, so that the lag is never shown too small.

A broker that is cut off from its controllers continues to serve its records, with log ends that no longer move. Its mirrors
look in sync while producers write to its successor. The other brokers no longer list it as alive. So a small request reads
each broker's list every few seconds; the leaders of topics are read only if a broker that is read from is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment, TopicPartition
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import EARLIEST_LOCAL, epoch_ends, list_offsets, log_ends, log_starts
from linkengine.kafka.protocol import BrokerError, KafkaCode
from linkengine.kafka.topicviews import Leader, Survey, TopicMetadata, locate

EVERY_S = 5.0
Read = Mapping[PartitionState, SourceOrigin]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExtent:
    """Log start offset and log end offset of a source partition."""

    start: int
    end: int


def locate_sources(
    cluster: Cluster, assignments: Sequence[PartitionAssignment], *, seen: Mapping[str, ReadUpTo] = MappingProxyType({})
) -> dict[str, SourceOrigin | LinkEngineError]:
    """Return, by key, the leader to read each partition from, or the error that prevents reading.

    ``seen`` is the (epoch, end) that was read before, by key: a new leader has to have that still (``find_truncated``).
    """
    survey = cluster.survey({assignment.source_topic for assignment in assignments})
    results: dict[str, SourceOrigin | LinkEngineError] = {}
    for assignment in assignments:
        try:
            leader, topic_id = locate(survey.topics, assignment.source_topic, assignment.partition)
            _check_topic_id(assignment, survey)
        except LinkEngineError as error:
            results[assignment.key] = error
        else:
            by_id = any(topic_id)
            results[assignment.key] = SourceOrigin(leader, topic_id if by_id else assignment.source_topic.encode(), by_id)
    return results | find_truncated(cluster, assignments, found=results, seen=seen, is_final=survey.is_final)


def read_extent(cluster: Cluster, leader: Leader, *, topic: str, partition: int) -> SourceExtent:
    """Return the bounds of a log; raise BrokerError if the leader refuses, for example because it is no longer the leader."""
    place = (topic, partition)
    start_error, start = log_starts(cluster, leader.broker, [place])[place]
    end_error, end = log_ends(cluster, leader.broker, {place: leader.epoch})[place]
    if start_error or end_error:
        raise BrokerError(start_error or end_error, f"Log start and log end of source {topic}-{partition} cannot be read")
    return SourceExtent(start=start, end=end)


def read_starts(cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the log start offset of source partitions, given the ids of their leaders, without those that a leader refuses.

    Raises LinkEngineError if a broker does not respond.
    """
    found: dict[TopicPartition, tuple[int, int]] = {}
    for broker in set(leaders.values()):
        found |= log_starts(cluster, broker, [place for place, leader in leaders.items() if leader == broker])
    return {place: start for place, (error, start) in found.items() if not error}


def read_local_start(cluster: Cluster, leader: Leader, *, topic: str, partition: int) -> int:
    """Return the local log start offset: only from there on an empty Fetch response means that there are no records.

    Earlier records are in remote storage (KIP-405); while that is slow, a Fetch returns no records and no error.
    """
    error, start = list_offsets(cluster, leader.broker, [(topic, partition)], timestamp=EARLIEST_LOCAL)[topic, partition]
    if error:
        raise BrokerError(error, f"The local log start of source {topic}-{partition} cannot be read")
    return start


def _check_topic_id(assignment: PartitionAssignment, survey: Survey) -> None:
    """Raise an error if the topic was recreated: a permanent error only if all brokers respond and none has the former id."""
    found = survey.topics[assignment.source_topic].topic_id_text
    if assignment.source_topic_id and found and found != assignment.source_topic_id:
        if not survey.is_final or assignment.source_topic_id in survey.topic_ids[assignment.source_topic]:
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


class LeaderWatch:
    """A periodic check of which brokers the other source brokers list as alive."""

    def __init__(self, services: Services, cluster: Cluster, *, succeeded: Callable[[PartitionState], None]) -> None:
        self._services, self._cluster, self._succeeded = services, cluster, succeeded
        self._due_at: float | None = None  # None: not begun, when the brokers were queried to locate the leaders

    def tick(self, now: float, groups: Mapping[tuple[int, int], Collection[PartitionState]]) -> None:
        """Start a check if it is time; a group is (broker, turn), as for ``SourceWatch``."""
        if self._due_at is None:
            self._due_at = self._services.first_due(now, every_s=EVERY_S)
        if now < self._due_at:
            return
        self._due_at = inf  # until this check has finished
        read = {
            partition: partition.origin
            for partitions in groups.values()
            for partition in partitions
            if partition.origin is not None
        }
        self._services.background.submit(
            lambda: _successions(self._cluster, read),
            done=lambda views: self._on_views(read, views),
            failed=lambda _: self._on_views(read, {}),
        )

    def _on_views(self, read: Read, views: Mapping[str, TopicMetadata]) -> None:
        self._due_at = self._services.clock.monotonic() + EVERY_S
        for partition, origin in read.items():
            if partition.origin is origin and _has_successor(partition, origin, views):
                self._succeeded(partition)


def _successions(cluster: Cluster, read: Read) -> Mapping[str, TopicMetadata]:
    """Return the newest view of topics that are read from brokers which another broker no longer lists as alive."""
    unlisted_brokers = cluster.survey().unlisted_brokers if read else set()
    topics = {
        partition.assignment.source_topic for partition, origin in read.items() if origin.leader.broker in unlisted_brokers
    }
    return cluster.newest_topics(topics) if topics else {}


def _has_successor(partition: PartitionState, origin: SourceOrigin, views: Mapping[str, TopicMetadata]) -> bool:
    view = views.get(partition.assignment.source_topic)
    leader = view.partitions.get(partition.assignment.partition) if view is not None else None
    return leader is not None and leader.epoch > origin.leader.epoch


# --- leader epochs -------------------------------------------------------------------------------------------------------
# Checks that a new leader still has what was read from its predecessors (KIP-101, KIP-320).
#
# An unclean election may drop acknowledged records; new records take their offsets, and soon the log is as long as before. Each
# leader returns where the records of an epoch end (``OffsetForLeaderEpoch``):
#
# | leader | returns for the epoch last read | conclusion |
# |---|---|---|
# | newer epoch | an end at or after the position read | it has everything that was read |
# | newer epoch | an end before the position read | truncated: other records follow there (UNEXPECTED_TRUNCATION) |
# | older epoch | (not used) | it is cut off from the other brokers, or the cluster was restored from an older snapshot |
#
# Clean elections keep everything that consumers may read, so there is no false alarm. Epochs only grow. A leader of an older
# epoch that is cut off from the other brokers is soon replaced. A cluster that was restored from a snapshot may have written
# other records since; then every broker names that leader, and keeps doing so (``OlderEpochError.final``).
#
# How far a partition was read is therefore kept as a pair (leader epoch, end offset), ``values.ReadPosition``. It outlives
# leaders, attempts and owners: it is passed on with the lease and in reports.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadUpTo:
    """Everything below ``end`` was read under leader ``epoch`` of the source or an earlier epoch."""

    epoch: int
    end: int


class OlderEpochError(LinkEngineError):
    """The leader has an older epoch than was read under; ``is_final``: no broker returned a newer epoch."""

    def __init__(self, where: str, *, epoch: int, seen: ReadUpTo, is_final: bool) -> None:
        self.is_final = is_final
        self._finding = f"Source {where} is led in epoch {epoch}; up to offset {seen.end} it was read in epoch {seen.epoch}. "
        cause = "Its leader is cut off from the other brokers, or the cluster was restored from an older snapshot. "
        super().__init__(ErrorCode.TIMEOUT_ERROR, f"{self._finding}{cause}Nothing is read from it. Retrying.")

    def final(self) -> LinkEngineError:
        """Return the permanent error to report if this error persists."""
        return TruncationError(
            f"{self._finding}Every broker names this leader: the cluster was restored from an older snapshot, for instance "
            "of its volumes, and may hold other records at these offsets. Fail over to keep the mirror's records, or create "
            "the mirror again.",
        )


@dataclass(frozen=True, slots=True)
class _Question:
    assignment: PartitionAssignment
    current_epoch: int
    seen: ReadUpTo


def find_truncated(
    cluster: Cluster,
    assignments: Sequence[PartitionAssignment],
    *,
    found: Mapping[str, SourceOrigin | LinkEngineError],
    seen: Mapping[str, ReadUpTo],
    is_final: bool = False,
) -> dict[str, LinkEngineError]:
    """Check the leaders whose epoch differs from that last read; return the errors found, by partition key.

    Sends a request per broker that leads such partitions. If several mirrors copy the same partition, each has its own
    past and gets a request of its own. ``is_final``: every broker has returned the leaders.
    """
    questions: dict[tuple[int, int], dict[TopicPartition, _Question]] = {}
    requests: Counter[TopicPartition] = Counter()
    for assignment in assignments:
        origin, read_position = found[assignment.key], seen.get(assignment.key)
        if isinstance(origin, SourceOrigin) and read_position is not None and origin.leader.epoch != read_position.epoch >= 0:
            place = (assignment.source_topic, assignment.partition)
            group = questions.setdefault((origin.leader.broker, requests[place]), {})
            requests[place] += 1
            group[place] = _Question(assignment, origin.leader.epoch, read_position)
    results: dict[str, LinkEngineError] = {}
    for (broker, _), group in questions.items():
        results |= _judged(cluster, broker, group, is_final=is_final)
    return results


def _judged(
    cluster: Cluster, broker: int, group: Mapping[TopicPartition, _Question], *, is_final: bool
) -> dict[str, LinkEngineError]:
    try:
        ends = epoch_ends(
            cluster, broker, {place: (question.current_epoch, question.seen.epoch) for place, question in group.items()}
        )
    except LinkEngineError as error:
        return {question.assignment.key: error for question in group.values()}
    results: dict[str, LinkEngineError] = {}
    for place, question in group.items():
        code, epoch, end = ends.get(place, (int(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION), -1, -1))
        if code:
            results[question.assignment.key] = BrokerError(
                code, f"The leader epochs of source {place[0]}-{place[1]} cannot be read"
            )
        elif question.current_epoch < question.seen.epoch:
            where = f"{place[0]}-{place[1]}"
            results[question.assignment.key] = OlderEpochError(
                where, epoch=question.current_epoch, seen=question.seen, is_final=is_final
            )
        elif epoch >= 0 and end < question.seen.end:
            results[question.assignment.key] = _rewound(question, end)
    return results


def _rewound(question: _Question, end: int) -> LinkEngineError:
    name = f"{question.assignment.source_topic}-{question.assignment.partition}"
    return TruncationError(
        f"Source {name} has a leader that kept its predecessors' records up to offset {end} only; they were read up to offset "
        f"{question.seen.end}. An unclean leader election dropped acknowledged records; others may have their offsets. "
        "Fail over to keep the mirror's records, or create the mirror again.",
        kept=end,
    )

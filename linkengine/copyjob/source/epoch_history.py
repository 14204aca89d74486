"""Checks that a new leader of a source partition still has what was read from its predecessors (KIP-101, KIP-320). Blocking.

An unclean election may drop acknowledged records; new records take their offsets, and soon the log is as long as before. Each
leader returns where the records of an epoch end (``OffsetForLeaderEpoch``):

| leader | returns for the epoch last read | conclusion |
|---|---|---|
| newer epoch | an end at or after the position read | it has everything that was read |
| newer epoch | an end before the position read | truncated: other records follow there (UNEXPECTED_TRUNCATION) |
| older epoch | (not used) | it is cut off from the other brokers, or the cluster was restored from an older snapshot |

Clean elections keep everything that consumers may read, so there is no false alarm. Epochs only grow. A leader of an older
epoch that is cut off from the other brokers is soon replaced. A cluster that was restored from a snapshot may have written
other records since; then every broker names that leader, and keeps doing so (``OlderEpochError.final``).

How far a partition was read is therefore kept as a pair (leader epoch, end offset), ``values.ReadPosition``. It outlives
leaders, attempts and owners: it is passed on with the lease and in reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import TopicPartition, epoch_ends
from linkengine.kafka.protocol import BrokerError, KafkaCode


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

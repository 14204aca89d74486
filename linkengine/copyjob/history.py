"""Whether a new leader of the source still has what was read from its predecessors (KIP-101, KIP-320). Blocking.

An unclean election may drop acknowledged records; new ones take their offsets, and soon the log is as long as before. Each
leader knows where the records of every epoch end: where those of the epochs that were read end before our position, others
follow there. Clean elections keep all that consumers may read, so there is no false alarm.

Epochs only grow. A leader of an older one than was read under is cut off from the others and knows no better, or the whole
cluster was set back, to a snapshot of its volumes, and may have written other records since. The first passes. The second
is told by every broker there is, and goes on being told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkengine.copyjob.pieces import Origin
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, KafkaCode
from linkengine.kafka.offsets import TopicPartition, epoch_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All below ``end`` was read under leader ``epoch`` of the source or an earlier one."""

    epoch: int
    end: int


class SteppedBackError(LinkEngineError):
    """A leader of an older epoch than was read under; ``everywhere``: no broker knows of a newer one."""

    def __init__(self, where: str, *, epoch: int, seen: Seen, everywhere: bool) -> None:
        self.everywhere = everywhere
        self._told = f"Source {where} is led in epoch {epoch}; up to offset {seen.end} it was read in epoch {seen.epoch}. "
        advice = "Its leader is cut off from the other brokers, or the cluster was set back. Nothing is read; looking again."
        super().__init__(ErrorCode.TIMEOUT_ERROR, self._told + advice)

    def final(self) -> LinkEngineError:
        """Answer what it is when it lasts."""
        return TruncationError(
            f"{self._told}Every broker says so: the cluster was set back, for instance to a snapshot of its volumes, and other "
            "records may stand at these offsets. Fail over to keep the mirror's records, or create the mirror again.",
        )


@dataclass(frozen=True, slots=True)
class _Question:
    assignment: PartitionAssignment
    current_epoch: int
    seen: Seen


def find_rewound(
    cluster: Cluster,
    assignments: Sequence[PartitionAssignment],
    *,
    found: Mapping[str, Origin | LinkEngineError],
    seen: Mapping[str, Seen],
    everywhere: bool = False,
) -> dict[str, LinkEngineError]:
    """Answer, by key, what is wrong with leaders of other epochs; one request per broker that leads any.

    Where several mirrors copy one partition each has its own past, and a request of its own. ``everywhere``: every broker
    was asked who leads.
    """
    asked: dict[tuple[int, int], dict[TopicPartition, _Question]] = {}
    turns: Counter[TopicPartition] = Counter()
    for one in assignments:
        origin, known = found[one.key], seen.get(one.key)
        if isinstance(origin, Origin) and known is not None and origin.leader.epoch != known.epoch >= 0:
            place = (one.source_topic, one.partition)
            group = asked.setdefault((origin.leader.broker, turns[place]), {})
            turns[place] += 1
            group[place] = _Question(one, origin.leader.epoch, known)
    results: dict[str, LinkEngineError] = {}
    for (broker, _), group in asked.items():
        results |= _judged(cluster, broker, group, everywhere=everywhere)
    return results


def _judged(
    cluster: Cluster, broker: int, group: Mapping[TopicPartition, _Question], *, everywhere: bool
) -> dict[str, LinkEngineError]:
    try:
        ends = epoch_ends(cluster, broker, {place: (one.current_epoch, one.seen.epoch) for place, one in group.items()})
    except LinkEngineError as error:
        return {one.assignment.key: error for one in group.values()}
    results: dict[str, LinkEngineError] = {}
    for place, one in group.items():
        code, epoch, end = ends.get(place, (int(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION), -1, -1))
        if code:
            results[one.assignment.key] = BrokerError(code, f"The history of source {place[0]}-{place[1]} cannot be read")
        elif one.current_epoch < one.seen.epoch:
            where = f"{place[0]}-{place[1]}"
            results[one.assignment.key] = SteppedBackError(where, epoch=one.current_epoch, seen=one.seen, everywhere=everywhere)
        elif epoch >= 0 and end < one.seen.end:
            results[one.assignment.key] = _rewound(one, end)
    return results


def _rewound(one: _Question, end: int) -> LinkEngineError:
    name = f"{one.assignment.source_topic}-{one.assignment.partition}"
    return TruncationError(
        f"Source {name} has a leader that kept its predecessors' records up to offset {end} only; up to {one.seen.end} was "
        "read from them. An unclean leader election has dropped acknowledged records; others may stand at their offsets. "
        "Fail over to keep the mirror's records, or create the mirror again.",
        kept=end,
    )

"""Periodic maintenance of mirror partitions: trims their start after the source's retention and checks idle mirrors for writes.

* Unless the mirror has a retention of its own, records before the source's log start are deleted (DeleteRecords). That cannot
  be undone, and Kafka's protocol has no checksum over the log start in a Fetch response. So it is read again from the
  source, in requests of their own, and the lowest value counts.
* The log end of an idle mirror must not move. If it does, the partition resumes, which determines which producer wrote.

Both are requests of background threads, at most one of each kind per broker every ``EVERY_S``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.partition_state import PartitionState
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import delete_records, log_ends
from linkengine.kafka.protocol import KafkaCode

_log = structlog.get_logger(__name__)

EVERY_S = 3.0  # a foreign write to an idle mirror is to be found within 5 s, including the resume that identifies it


@dataclass(frozen=True, slots=True)
class Trim:
    """A mirror partition that has records from before its source's log start, as a Fetch response shows it."""

    partition: PartitionState
    source: TopicPartition
    leader: int  # id of the source broker that was read from
    before: int  # offset

    @property
    def start(self) -> int:
        """The mirror's log start offset."""
        return self.partition.counters.mirror_start or 0


class Maintenance:
    """Maintains the partitions of each destination broker; calls ``on_moved_end`` if an idle mirror's log end has moved.

    ``read_starts`` blocks and returns the log starts of source partitions, given the ids of their leaders.
    """

    def __init__(
        self,
        services: Services,
        cluster: Cluster,
        *,
        read_starts: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]],
        on_moved_end: Callable[[PartitionState], None],
    ) -> None:
        self._services, self._cluster = services, cluster
        self._read_starts, self._on_moved_end = read_starts, on_moved_end
        self._due: dict[int, float] = {}
        self._trimming: set[int] = set()  # brokers
        self._undeletable: set[PartitionState] = set()  # cleanup.policy=compact: brokers refuse DeleteRecords

    def tick(self, now: float, brokers: Mapping[int, Collection[PartitionState]]) -> None:
        """Start the requests that are due."""
        for broker, partitions in brokers.items():
            if partitions and self._due.setdefault(broker, self._services.first_due(now, every_s=EVERY_S)) <= now:
                self._due[broker] = now + EVERY_S
                self._follow_starts(broker, partitions)
                self._check_ends(broker, partitions)

    def forget(self, partition: PartitionState) -> None:
        """Stop maintaining a partition."""
        self._undeletable.discard(partition)

    def _follow_starts(self, broker: int, partitions: Collection[PartitionState]) -> None:
        if broker in self._trimming:  # a silent source gets no second request at a time
            return
        trims = {
            _place(partition): Trim(partition, _source_place(partition), partition.origin.leader.broker, before)
            for partition in partitions
            if partition.origin is not None and (before := self._new_start(partition)) is not None
        }
        if trims:
            self._trimming.add(broker)
            self._services.background.submit(
                lambda: self._trim(broker, trims),
                done=lambda results: self._followed(broker, trims, results),
                failed=lambda error: self._not_followed(broker, error),
            )

    def _trim(self, broker: int, trims: Mapping[TopicPartition, Trim]) -> dict[TopicPartition, tuple[int, int]]:
        starts = self._read_starts({trim.source: trim.leader for trim in trims.values()})
        befores = {place: min(trim.before, starts.get(trim.source, 0)) for place, trim in trims.items()}
        wanted = {place: before for place, before in befores.items() if before > trims[place].start}
        results = delete_records(self._cluster, broker, wanted) if wanted else {}
        # offsets below the reported start count as gone, and differences found there as settled
        return {place: (error, min(start, wanted[place])) for place, (error, start) in results.items()}

    def _new_start(self, partition: PartitionState) -> int | None:
        counters = partition.counters
        if (
            not partition.assignment.follows_start
            or partition in self._undeletable
            or counters.source_start is None
            or counters.mirror_end is None
        ):
            return None
        before = min(counters.source_start, counters.mirror_end)
        return before if before > (counters.mirror_start or 0) else None

    def _followed(
        self, broker: int, trims: Mapping[TopicPartition, Trim], results: dict[TopicPartition, tuple[int, int]]
    ) -> None:
        self._trimming.discard(broker)
        for place, (error, start) in results.items():
            partition = trims[place].partition
            if not error:
                partition.counters.mirror_start = start
            elif error == KafkaCode.POLICY_VIOLATION:
                self._undeletable.add(partition)

    def _not_followed(self, broker: int, error: LinkEngineError) -> None:
        self._trimming.discard(broker)
        _ignored(error)

    def _check_ends(self, broker: int, partitions: Collection[PartitionState]) -> None:
        idle = [partition for partition in partitions if partition.idle and partition.log_end is not None]
        if not idle:
            return
        places = {_place(partition): (partition, partition.attempt, partition.sent_end) for partition in idle}
        epochs = {_place(partition): partition.log_end.leader.epoch for partition in idle if partition.log_end}
        self._services.background.submit(
            lambda: log_ends(self._cluster, broker, epochs), done=lambda ends: self._checked(places, ends), failed=_ignored
        )

    def _checked(
        self,
        places: dict[TopicPartition, tuple[PartitionState, int, int | None]],
        ends: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        for place, (error, end) in ends.items():
            partition, attempt, sent_end = places[place]
            unchanged = partition.idle and partition.attempt == attempt and partition.sent_end == sent_end
            if unchanged and (error or end != sent_end):
                _log.warning("mirror.end_moved", partition=partition.key, expected=sent_end, found=end, error=error)
                self._on_moved_end(partition)


def _place(partition: PartitionState) -> TopicPartition:
    return partition.assignment.mirror_topic, partition.assignment.partition


def _source_place(partition: PartitionState) -> TopicPartition:
    return partition.assignment.source_topic, partition.assignment.partition


def _ignored(error: LinkEngineError) -> None:
    """Log only: retried in a few seconds, and an unreachable broker is detected by the data path."""
    _log.debug("maintenance.failed", reason=error.message)

"""The source side of a link: locates partition leaders, assigns partitions to broker connections, and handles their errors.

=================================  =============================================================================================
event                              reaction
=================================  =============================================================================================
error code of a partition          record it, retry after a backoff, or fail if it is permanent (``SourceTroubles``)
no leader, connection lost         the same, and locate the leader again
leader moved, topic gone, disk     the same, and locate the leader again
another leader epoch than before   check with its leader that it still has what was read in the former epoch (``leaders``)
OFFSET_OUT_OF_RANGE                read log start and log end: deleted by retention (LOST), truncated, or not shown yet
no records below the source's end  read the local log start (KIP-405): COMPACTED after two equal observations, else retry
tail check pending                 compare the mirror's last records with the source first (``TailChecker``)
=================================  =============================================================================================

Leaders and bounds are read in the background. They count only if the partition still reads from the same leader in the same
attempt when they arrive.

An error of a source is retried, shown or permanent. That depends on its code and on how long it lasts, not on the request that
failed:

* Codes in ``_PERMANENT``, and a source whose leader epochs went backwards on all brokers, fail the mirror when confirmed.
* A moved leader is normal during an election, so it is shown only after ``STANDSTILL_S`` without a successful Fetch.
* Everything else is shown immediately. All errors are retried, slower if an operator has to act first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import count
from math import inf
from typing import TypeVar

from linkengine.batches.steps import Fill
from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.buffers import Buffer
from linkengine.copyjob.errors import Confirmation
from linkengine.copyjob.pacing import Clock
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.resume.tail_check import TailChecker, TailCheckEvents, beyond_source
from linkengine.copyjob.source.data_loss import LossRecorder, SourceWatch, WatchEvents
from linkengine.copyjob.source.fetch_planner import FetchEvents
from linkengine.copyjob.source.fetcher import BrokerFetcher
from linkengine.copyjob.source.leaders import (
    LeaderWatch,
    OlderEpochError,
    ReadUpTo,
    SourceExtent,
    locate_sources,
    read_extent,
    read_local_start,
    read_starts,
)
from linkengine.copyjob.values import SourceOrigin, Stage, Trouble
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import NEEDS_OPERATOR, ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase, TopicPartition
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import GapReason
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import LEADER_MOVED, TOPIC_GONE, BrokerError, KafkaCode

EMPTY_AGAIN_S = 2.0  # between the two observations that have to agree that the end of a log holds no records
TOGETHER_S = 0.25  # retries that are due this soon join the first: each needs the metadata of whole topics
STARVED_S = 0.5  # a response that has waited longer for a receive buffer means that the destination is slow
_READ_ELSEWHERE = LEADER_MOVED | TOPIC_GONE | {KafkaCode.KAFKA_STORAGE_ERROR}  # a failed disk: another broker leads soon
_T = TypeVar("_T")
BROKEN_RETRY_S = 5.0  # wrong credentials or missing permissions: an operator has to act first
EXAMINE_RETRY_S = 1.0
STANDSTILL_S = 10.0  # a leader election and the metadata update after it are finished by then
_PERMANENT = frozenset(
    {ErrorCode.SOURCE_TOPIC_ID_CHANGED, ErrorCode.UNSUPPORTED_MESSAGE_FORMAT, ErrorCode.UNEXPECTED_TRUNCATION}
)


class SourceSide:
    """Reads partitions from their leaders; calls ``planned`` for every fetched range that was planned.

    ``failed`` ends a partition permanently; ``lose`` stores a lost offset range and may raise CoordinationUnavailableError.
    """

    def __init__(
        self,
        services: Services,
        address: ClusterAddress,
        *,
        planned: Callable[[PartitionState], None],
        failed: Callable[[PartitionState, LinkEngineError], None],
        lose: Callable[[tuple[str, OffsetRange]], None],
    ) -> None:
        self._services = services
        self._cluster = Cluster(address)
        self._failed = failed
        self._events = FetchEvents(planned=planned, refused=self._refused, emptied=self._emptied, lost=self._broker_lost)
        self._brokers: dict[tuple[int, int], BrokerFetcher] = {}  # by broker id and connection number
        self._connection_numbers: dict[PartitionState, int] = {}
        self._used_numbers: dict[tuple[str, int], set[int]] = defaultdict(set)  # by source topic and partition
        self._unlocated: dict[PartitionState, None] = {}
        tail_checks = TailCheckEvents(proven=self.wake, short=self._examine, refused=self._refused, failed=failed)
        self._tail_checker = TailChecker(services, self._cluster, tail_checks)
        self._watch = SourceWatch(services, self._cluster, WatchEvents(seen=self._observed, refused=self._refused))
        self._leaders = LeaderWatch(services, self._cluster, succeeded=self._relocate)
        self._loss_recorder = LossRecorder(services, keep=lose, persisted=self._fill, counts=self._still_counts)
        self._troubles = SourceTroubles(services.clock)
        self._empty = Confirmation(observations=2, seconds=EMPTY_AGAIN_S)
        self._truncated = Confirmation(observations=3, seconds=5.0)  # a high watermark may step back after a broker's restart

    def add(self, partition: PartitionState) -> None:
        """Locate a partition's leader, before the lease is granted.

        A fetch session reads a partition at one position. A second mirror of the same source topic (of a failover drill)
        therefore uses connection number 1 to the broker; on a shared connection each would overwrite the other's position.
        """
        self._unlocated[partition] = None
        if partition not in self._connection_numbers:
            used = self._used_numbers[partition.assignment.source_topic, partition.assignment.partition]
            self._connection_numbers[partition] = next(number for number in count() if number not in used)
            used.add(self._connection_numbers[partition])

    def inherited(self, partition: PartitionState) -> None:
        """Locate the leader again if the lease brought a newer (epoch, end) than the leader was checked against."""
        if partition.origin is not None and not partition.read_position.covers(partition.origin):
            self._relocate(partition)

    def forget(self, partition: PartitionState) -> None:
        """Stop reading a partition."""
        self._unlocated.pop(partition, None)
        self._tail_checker.forget(partition)
        broker = self._broker_of(partition)
        if broker is not None:
            broker.forget(partition)
        number = self._connection_numbers.pop(partition, None)
        if number is not None:
            self._used_numbers[partition.assignment.source_topic, partition.assignment.partition].discard(number)

    def wake(self, partition: PartitionState) -> None:
        """Check again what a partition needs from its source: a tail check, or the next records."""
        self._tail_checker.want(partition)
        broker = self._broker_of(partition)
        if broker is not None:
            broker.note_change(partition)

    def pump(self, now: float) -> None:
        """Send the Fetch requests that may be sent now."""
        for broker in self._brokers.values():
            broker.pump(now)

    def due(self) -> float:
        """Return when the next request may be sent (monotonic seconds); infinite while only responses are awaited."""
        soonest = inf
        for broker in self._brokers.values():
            at = broker.due()
            if at is not None and at < soonest:
                soonest = at
        return soonest

    def note_unchanged(self, partition: PartitionState) -> None:
        """Update an idle partition's time of the last source observation: its broker reported no change since."""
        broker = self._broker_of(partition)
        if broker is not None:
            broker.note_unchanged(partition)

    def tick(self, now: float) -> None:
        """Locate partitions whose retry is due, start tail checks and observations, close connections that timed out."""
        if any(partition.source_retry_at <= now for partition in self._unlocated):
            self._locate([partition for partition in self._unlocated if partition.source_retry_at <= now + TOGETHER_S])
        self._tail_checker.tick(now)
        members = {place: broker.members for place, broker in self._brokers.items()}
        self._watch.tick(now, members)
        self._leaders.tick(now, members)
        for broker in self._brokers.values():
            broker.check(now)

    def read_starts(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Read the log starts of source partitions from their leaders (broker ids); blocks, see ``leaders.read_starts``."""
        return read_starts(self._cluster, leaders)

    def starved(self, now: float) -> bool:
        """Return True if a response has waited for a receive buffer for more than ``STARVED_S``."""
        return any(broker.starved_for(now) > STARVED_S for broker in self._brokers.values())

    def close(self) -> None:
        """Close all connections."""
        for broker in self._brokers.values():
            broker.close()
        self._cluster.close()

    def _locate(self, due: list[PartitionState]) -> None:
        for partition in due:
            del self._unlocated[partition]
        assignments, pasts = (
            [partition.assignment for partition in due],
            {partition: partition.read_position.seen for partition in due},
        )
        seen = {
            partition.key: ReadUpTo(epoch=read_position[0], end=read_position[1])
            for partition, read_position in pasts.items()
            if read_position is not None
        }
        self._services.background.submit(
            lambda: locate_sources(self._cluster, assignments, seen=seen),
            done=lambda results: self._located(pasts, results),
            failed=lambda error: self._not_located(due, error),
        )

    def _located(
        self, pasts: Mapping[PartitionState, tuple[int, int] | None], results: dict[str, SourceOrigin | LinkEngineError]
    ) -> None:
        for partition, read_position in pasts.items():
            result = results[partition.key]
            if isinstance(result, LinkEngineError):
                self._not_located([partition], result)
            elif partition.stage is Stage.ENDED:
                continue
            elif partition.read_position.seen != read_position and not partition.read_position.covers(result):
                self._unlocated[partition] = None  # the leader was checked against an older (epoch, end)
            else:
                self._troubles.located(partition)
                self._join(partition, result)

    def _join(self, partition: PartitionState, origin: SourceOrigin) -> None:
        partition.origin = origin
        place = (origin.leader.broker, self._connection_numbers[partition])
        if place not in self._brokers:
            self._brokers[place] = BrokerFetcher(self._services, self._cluster, origin.leader.broker, events=self._events)
        self._brokers[place].adopt(partition)

    def _broker_of(self, partition: PartitionState) -> BrokerFetcher | None:
        if partition.origin is None:
            return None
        return self._brokers.get((partition.origin.leader.broker, self._connection_numbers.get(partition, 0)))

    def _not_located(self, partitions: list[PartitionState], error: LinkEngineError) -> None:
        for partition in partitions:
            self._trouble(partition, error)
            if partition.failure is None and partition.stage is not Stage.ENDED:
                self._unlocated[partition] = None

    def _observed(self, partition: PartitionState, start: int, end: int, high_watermark: int) -> None:
        """Record the bounds of a source that is not read at the moment (``SourceWatch``)."""
        now_ms = self._services.clock.now_ms()
        partition.counters.observed_source(start=start, end=end, high_watermark=high_watermark, now_ms=now_ms)
        partition.source_trouble = None
        if not partition.may_fetch(self._services.clock.monotonic()):  # no Fetch will show whether it can be read
            self._troubles.seen(partition)

    def _refused(self, partition: PartitionState, error: LinkEngineError) -> None:
        code = error.kafka_code if isinstance(error, BrokerError) else 0
        if code == KafkaCode.OFFSET_OUT_OF_RANGE:
            self._examine(partition)
            return
        self._trouble(partition, error)
        if code in _READ_ELSEWHERE:
            self._relocate(partition)

    def _relocate(self, partition: PartitionState) -> None:
        if partition.origin is not None and partition.failure is None and partition.stage is not Stage.ENDED:
            broker = self._broker_of(partition)
            if broker is not None:
                broker.forget(partition)
            partition.leave_origin()
            self._unlocated[partition] = None

    def _broker_lost(self, partitions: list[PartitionState], error: LinkEngineError) -> None:
        for partition in partitions:
            self._trouble(partition, error)
            self._relocate(partition)

    def _trouble(self, partition: PartitionState, error: LinkEngineError) -> None:
        """Record why a partition cannot be read and when to retry, or fail it if the error is permanent."""
        final = self._troubles.final(partition, error)
        if final is None:
            self._troubles.note(partition, error)
        else:
            self._failed(partition, final)

    def _examine(self, partition: PartitionState) -> None:
        """Read the bounds of a source that does not have the wanted offset: deleted by retention, or truncated."""
        self._query_leader(partition, read_extent, then=lambda extent: self._examined(partition, extent))

    def _query_leader(self, partition: PartitionState, read: Callable[..., _T], *, then: Callable[[_T], None]) -> None:
        """Run ``read`` in the background on the current leader; ignore the result if another leader is read by then."""
        assert partition.origin is not None
        origin, attempt, topic = partition.origin, partition.attempt, partition.assignment
        partition.examining = True  # until the result is there; nothing is fetched until then
        self._services.background.submit(
            lambda: read(self._cluster, origin.leader, topic=topic.source_topic, partition=topic.partition),
            done=lambda result: then(result) if self._still_counts(partition, attempt, origin) else None,
            failed=lambda error: self._refused(partition, error) if self._still_counts(partition, attempt, origin) else None,
        )

    def _still_counts(self, partition: PartitionState, attempt: int, origin: SourceOrigin | None) -> bool:
        """End an examination; return whether the same leader is still read. Another leader may have fewer records."""
        if partition.attempt != attempt:
            return False
        partition.examining = False
        self.wake(partition)
        return partition.origin is origin

    def _examined(self, partition: PartitionState, extent: SourceExtent) -> None:
        if partition.position is None:
            return
        now = self._services.clock.monotonic()
        if partition.position < extent.start:
            self._loss_recorder.record(partition, OffsetRange(partition.position, extent.start))
        elif partition.position > extent.end and self._truncated.confirmed(partition.key, now):
            self._failed(partition, beyond_source(partition, extent.end))
        else:
            if partition.position <= extent.end:
                self._truncated.clear(partition.key)
            self._troubles.hidden(partition, start=extent.start, end=extent.end)

    def _emptied(self, partition: PartitionState, end: int) -> None:
        """Check an empty response up to ``end``: records are gone only if the leader read its local log (KIP-405)."""
        self._query_leader(partition, read_local_start, then=lambda start: self._fill_empty_end(partition, start, end))

    def _fill_empty_end(self, partition: PartitionState, local_start: int, end: int) -> None:
        if partition.position is None:
            return
        now = self._services.clock.monotonic()
        if partition.position < local_start:  # remote storage is slow; the records exist
            partition.source_retry_at = now + EXAMINE_RETRY_S
        elif self._empty.confirmed(partition.key, now, of=(partition.origin, partition.position, end)):
            self._fill(partition, end, GapReason.COMPACTED)
        else:  # markers cannot be removed again, so a second observation has to confirm
            partition.source_retry_at = now + EMPTY_AGAIN_S

    def _fill(self, partition: PartitionState, end: int, reason: GapReason) -> None:
        assert partition.position is not None
        buffer = Buffer()
        buffer.users = 1
        partition.planned([Fill(partition.position, end, reason)], buffer)
        self._events.planned(partition)


class SourceTroubles:
    """Judges source errors, single or lasting, and records retry times and errors in the partitions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone = Confirmation(observations=2, seconds=0.0)  # unknown topic: a starting broker's metadata may be outdated
        self._set_back = Confirmation(observations=3, seconds=10.0)  # metadata of all brokers may be outdated for a few seconds
        self._final = Confirmation(observations=2, seconds=0.0)  # a single response may have been corrupted
        self._standstill = Confirmation(observations=4, seconds=STANDSTILL_S)  # errors that leader elections cause

    def located(self, partition: PartitionState) -> None:
        """Note that a leader was found that still has what was read."""
        self._gone.clear(partition.key)
        self._set_back.clear(partition.key)

    def seen(self, partition: PartitionState) -> None:
        """Note that the bounds of a source were read that is not fetched from at the moment."""
        self._standstill.clear(partition.key)

    def final(self, partition: PartitionState, error: LinkEngineError) -> LinkEngineError | None:
        """Return the error that ends copying permanently; None if it is to be retried, also to confirm it."""
        if isinstance(error, OlderEpochError) and error.is_final:
            return error.final() if self._set_back.confirmed(partition.key, self._clock.monotonic()) else None
        if error.code not in _PERMANENT:
            return None
        return error if self._final.confirmed(partition.key, self._clock.monotonic(), of=error.message) else None

    def note(self, partition: PartitionState, error: LinkEngineError) -> None:
        """Set the time of the next retry, and record the error unless it may be a normal leader election."""
        now = self._clock.monotonic()
        code, message, lasting = error.code, error.message, self._lasts(partition, now)
        broken = code in NEEDS_OPERATOR
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR and self._gone.confirmed(partition.key, now):
            code = ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED
            topic = partition.assignment.source_topic
            message = f"Source topic {topic!r} does not exist. It may have been deleted. Retrying automatically."
        moved = isinstance(error, BrokerError) and error.kafka_code in LEADER_MOVED
        partition.source_retry_at = now + (BROKEN_RETRY_S if broken else partition.source_backoff.next_pause())
        if lasting or not moved:
            phase = PartitionPhase.LINK_BROKEN if broken else PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message + (_ADVICE if moved else ""), self._clock.now_ms())

    def hidden(self, partition: PartitionState, *, start: int, end: int) -> None:
        """Schedule a retry of an offset that lies within the source's bounds but is not returned; record it if it lasts."""
        now = self._clock.monotonic()
        lasting = self._lasts(partition, now)
        partition.source_retry_at = now + max(EXAMINE_RETRY_S, partition.source_backoff.next_pause())
        if lasting:
            message = f"{_returns_nothing(partition)}, though its log has the offsets {start} to {end}.{_ADVICE}"
            code, phase = ErrorCode.TIMEOUT_ERROR, PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message, self._clock.now_ms())

    def _lasts(self, partition: PartitionState, now: float) -> bool:
        """Return whether nothing was read for ``STANDSTILL_S``; a successful Fetch starts the count again."""
        if partition.source_backoff.rested:
            self._standstill.clear(partition.key)
        return self._standstill.confirmed(partition.key, now)


_ADVICE = (
    " This has lasted for more than 10 s, and nothing is copied. Retrying automatically. If it persists, check the log of the "
    "partition's leader and elect another leader, or restart that broker."
)


def _returns_nothing(partition: PartitionState) -> str:
    where = f"{partition.assignment.source_topic}-{partition.assignment.partition}"
    return f"The leader of source {where} returns nothing from offset {partition.position} on"

"""All destination brokers of a link: reads the mirrors' log ends, assigns partitions to their leaders, and classifies errors.

Every attempt to write a partition begins with reading its log end (``resume.log_end``), which is the only checkpoint. How an
error is treated:

| error | consequence |
|---|---|
| leader moved, sequence or epoch refused | read the log end again after a short pause, nothing is shown |
| batch or request too large | the same with smaller batches (``shrink_batches``), as long as they can shrink |
| ILLEGAL_STATE or MIRROR_WAS_STOPPED (``FencedError``) | the partition is fenced: its lease is left to expire |
| mirror topic missing or created again, in three readings over 5 s | the partition fails with MIRROR_TOPIC_MISSING |
| FOREIGN_WRITE or MARKER_OVERRUN, in two readings | the partition fails |
| a lost marker may still be written (``StillWaitingError``) | shown, and the log end is read again in 0.5 s |
| any other | shown as DESTINATION_UNREACHABLE, retried with a growing pause |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.destination.maintenance import Maintenance
from linkengine.copyjob.destination.producer import BrokerProducer, ProducerEvents
from linkengine.copyjob.errors import Confirmation, SingleTooLargeError, another_topic
from linkengine.copyjob.partition_state import PartitionState, log_end_query
from linkengine.copyjob.producer_state import FencedError
from linkengine.copyjob.resume.log_end import StillWaitingError, read_log_ends
from linkengine.copyjob.values import Chunk, LogEnd, Stage, Trouble
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase, TopicPartition
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import LEADER_MOVED, TOO_LARGE, BrokerError, KafkaCode

WAIT_RETRY_S = 0.5  # while an unacknowledged marker may still be written
# retries due within this time are read together with the first: each reading needs the metadata of whole topics
TOGETHER_S = 0.25
_PERMANENT = frozenset({ErrorCode.FOREIGN_WRITE, ErrorCode.MARKER_OVERRUN})  # when confirmed by a second reading
# errors that only require reading the log end again: a late duplicate, a moved leader, a newer owner
_RESUME_AT_ONCE = LEADER_MOVED | {
    KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaCode.DUPLICATE_SEQUENCE_NUMBER,
    KafkaCode.INVALID_PRODUCER_EPOCH,
    KafkaCode.TRANSACTION_COORDINATOR_FENCED,
}


class DestinationSide:
    """Writes partitions to the brokers that lead them; callbacks report continued, failed and fenced partitions."""

    def __init__(  # noqa: PLR0913 - callbacks by name
        self,
        services: Services,
        address: ClusterAddress,
        *,
        may_write: Callable[[PartitionState], bool],
        announce_markers: Callable[[list[PartitionState]], None],
        advanced: Callable[[PartitionState], None],
        failed: Callable[[PartitionState, LinkEngineError], None],
        fenced: Callable[[PartitionState, LinkEngineError], None],
        resumed: Callable[[PartitionState], None],
        read_starts: Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int]],
    ) -> None:
        """Store the callbacks; ``read_starts`` is that of the source side."""
        self._services = services
        self._cluster = Cluster(address)
        self._failed, self._fenced, self._on_resumed = failed, fenced, resumed
        self._events = ProducerEvents(
            may_write=may_write,
            announce_markers=announce_markers,
            advanced=advanced,
            interrupted=self._interrupted,
            failed=failed,
            lost=self._broker_lost,
        )
        self._brokers: dict[int, BrokerProducer] = {}
        self._resuming: dict[PartitionState, None] = {}
        self._read_now = False  # partitions that need not wait were added: their tails are read together in the next ``pump``
        self._missing = Confirmation(observations=3, seconds=5.0)
        self._broken = Confirmation(observations=2, seconds=0.0)
        self._maintenance = Maintenance(services, self._cluster, read_starts=read_starts, on_moved_end=self.recheck)

    def resume(self, partition: PartitionState) -> None:
        """Read a mirror's log end, then continue writing there."""
        self._resuming[partition] = None
        self._read_now = True

    def forget(self, partition: PartitionState) -> None:
        """Stop writing a partition."""
        self._resuming.pop(partition, None)
        partition.overtaken = None
        self._missing.clear(partition.key)
        self._broken.clear(partition.key)
        self._maintenance.forget(partition)
        for broker in self._brokers.values():
            broker.forget(partition)

    def wake(self, partition: PartitionState) -> None:
        """Note that a partition may have something to send."""
        broker = self._leader_of(partition)
        if broker is not None:
            broker.wake(partition)

    def pump(self, now: float) -> None:
        """Send what can be sent, as much as possible in each request."""
        if self._read_now:
            self._read_now = False
            self._read_due(now)
        for broker in self._brokers.values():
            broker.pump(now)

    def tick(self, now: float) -> None:
        """Resume partitions whose pause is over, give up silent brokers, check idle mirrors."""
        self._read_due(now)
        for broker in self._brokers.values():
            broker.check(now)
        self._maintenance.tick(now, {number: broker.members for number, broker in self._brokers.items()})

    def release_buffers(self, partition: PartitionState, chunks: list[Chunk]) -> None:
        """Release the buffers of chunks that will not be sent."""
        broker = self._leader_of(partition)
        if broker is not None:
            broker.release_buffers(chunks)
            return
        for chunk in chunks:
            chunk.buffer.release()

    def own_unsent(self) -> None:
        """Copy what sockets have not taken yet, so that receive buffers become free."""
        for broker in self._brokers.values():
            broker.own_unsent()

    def recheck(self, partition: PartitionState) -> None:
        """Resume an idle mirror whose log end has moved, although nothing was written by its owner."""
        self._interrupt(partition, retry_at=0.0)

    def close(self) -> None:
        """Close all connections."""
        for broker in self._brokers.values():
            broker.close()
        self._cluster.close()

    def _read_due(self, now: float) -> None:
        # partitions without a pause, such as those whose lease was just granted, do not wait for the others
        self._read([partition for partition in self._resuming if not partition.mirror_retry_at])
        if any(0 < partition.mirror_retry_at <= now for partition in self._resuming):
            self._read([partition for partition in self._resuming if partition.mirror_retry_at <= now + TOGETHER_S])

    def _read(self, due: list[PartitionState]) -> None:
        if not due:
            return
        for partition in due:
            del self._resuming[partition]
        queries = [log_end_query(partition) for partition in due]
        requested = [(partition, partition.attempt) for partition in due]
        self._services.background.submit(
            lambda: read_log_ends(self._cluster, queries),
            done=lambda results: self._log_ends_read(requested, results),
            failed=lambda error: self._log_ends_read(requested, {partition.key: error for partition, _ in requested}),
        )

    def _log_ends_read(self, requested: list[tuple[PartitionState, int]], results: dict[str, LogEnd | LinkEngineError]) -> None:
        for partition, attempt in requested:
            if partition.attempt != attempt or partition.stage is not Stage.RESUMING:
                continue
            result = results[partition.key]
            if isinstance(result, LinkEngineError):
                self._not_resumed(partition, result)
            else:
                self._resume_from(partition, result)

    def _resume_from(self, partition: PartitionState, log_end: LogEnd) -> None:
        if partition.log_end is not None and _is_another(partition.log_end.topic_id, log_end.topic_id):
            self._not_resumed(partition, another_topic(partition.assignment))
            return
        try:
            _check_open(log_end)
            partition.resumed(log_end, now_ms=self._services.clock.now_ms())
        except FencedError as error:
            partition.release_trouble = (
                Trouble(PartitionPhase.RELEASED, error.code, error.message) if error.was_stopped else None
            )
            self._fenced(partition, error)
            return
        partition.overtaken = None
        self._missing.clear(partition.key)
        self._broken.clear(partition.key)
        for broker in self._brokers.values():
            broker.forget(partition)
        self._broker(log_end.leader.broker).adopt(partition)
        self._on_resumed(partition)

    def _not_resumed(self, partition: PartitionState, error: LinkEngineError) -> None:
        now = self._services.clock.monotonic()
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR and self._missing.confirmed(partition.key, now):
            self._failed(partition, _missing(partition))
            return
        if error.code in _PERMANENT and self._broken.confirmed(partition.key, now, of=error.code):
            self._failed(partition, error)
            return
        waiting = isinstance(error, StillWaitingError)
        partition.mirror_retry_at = now + (WAIT_RETRY_S if waiting else partition.mirror_backoff.next_pause())
        partition.mirror_trouble = Trouble(PartitionPhase.DESTINATION_UNREACHABLE, error.code, error.message)
        self._resuming[partition] = None

    def _interrupted(self, partition: PartitionState, error: LinkEngineError) -> None:
        pause = partition.mirror_backoff.next_pause()
        code = error.kafka_code if isinstance(error, BrokerError) else KafkaCode.NONE
        mergeable = code in TOO_LARGE and not isinstance(error, SingleTooLargeError)
        if not (code in _RESUME_AT_ONCE or (mergeable and partition.shrink_batches())):
            partition.mirror_trouble = Trouble(PartitionPhase.DESTINATION_UNREACHABLE, error.code, error.message)
        self._interrupt(partition, retry_at=self._services.clock.monotonic() + pause)

    def _interrupt(self, partition: PartitionState, *, retry_at: float) -> None:
        self.release_buffers(partition, partition.interrupt(retry_at=retry_at))
        if partition.stage is Stage.RESUMING:
            self._resuming[partition] = None

    def _broker_lost(self, partitions: list[PartitionState], error: LinkEngineError) -> None:
        for partition in partitions:
            if partition.stage is not Stage.RESUMING:  # a log end that is being read does not depend on this connection
                self._interrupted(partition, error)

    def _broker(self, number: int) -> BrokerProducer:
        broker = self._brokers.get(number)
        if broker is None:
            broker = self._brokers[number] = BrokerProducer(self._services, self._cluster, number, events=self._events)
        return broker

    def _leader_of(self, partition: PartitionState) -> BrokerProducer | None:
        return None if partition.log_end is None else self._brokers.get(partition.log_end.leader.broker)


def _is_another(before: bytes, found: bytes) -> bool:
    """Return whether the topic has another id; a cluster that is upgraded assigns ids to topics in use."""
    return any(before) and any(found) and before != found


def _check_open(log_end: LogEnd) -> None:
    """Raise FencedError if a mirror ends with the fence of its stop; at an offset that is a gap it looks like a filler.

    Epochs do not show it: a transaction coordinator raises them above the fence's for any client, and a leader may have
    forgotten them.
    """
    if log_end.tail is not None and log_end.tail.ends_with_fence:
        raise FencedError(was_stopped=True)


def _missing(partition: PartitionState) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MIRROR_TOPIC_MISSING,
        f"Mirror topic {partition.assignment.mirror_topic!r} was deleted, or deleted and created again, at the destination. "
        "Delete the mirror and create it again.",
    )

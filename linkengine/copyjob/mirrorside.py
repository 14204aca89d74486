"""All destination brokers of a link: reads where mirrors end, deals partitions out to leaders, and judges what they refuse."""

from __future__ import annotations

from collections.abc import Callable

from linkengine.copyjob.asking import tail_query
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.foreign import another_topic
from linkengine.copyjob.outlet import MirrorBroker
from linkengine.copyjob.outletevents import OutletEvents
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Chunk, Stage, Trouble
from linkengine.copyjob.refusals import SingleTooLargeError
from linkengine.copyjob.suspicion import Suspicion
from linkengine.copyjob.tails import StillWaitingError, Tail, read_tails
from linkengine.copyjob.upkeep import Upkeep
from linkengine.copyjob.writer import FencedError
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import LEADER_MOVED, TOO_LARGE, BrokerError, KafkaCode

WAIT_RETRY_S = 0.5  # while a lost marker may still come
TOGETHER_S = 0.25  # retries that are due so soon go along with the first: each look costs the metadata of whole topics
_PERMANENT = frozenset({ErrorCode.FOREIGN_WRITE, ErrorCode.MARKER_OVERRUN})  # if two readings say so
# answers that only mean "read the end again": a late duplicate, a moved leader, a newer owner
_RESUME_AT_ONCE = LEADER_MOVED | {
    KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaCode.DUPLICATE_SEQUENCE_NUMBER,
    KafkaCode.INVALID_PRODUCER_EPOCH,
    KafkaCode.TRANSACTION_COORDINATOR_FENCED,
}


class MirrorSide:
    """Writes partitions; the loop is told when one can go on, and when it cannot."""

    def __init__(
        self,
        services: Services,
        address: ClusterAddress,
        *,
        may_write: Callable[[MirrorPartition], bool],
        arm: Callable[[list[MirrorPartition]], None],
        advanced: Callable[[MirrorPartition], None],
        failed: Callable[[MirrorPartition, LinkEngineError], None],
        fenced: Callable[[MirrorPartition, LinkEngineError], None],
        resumed: Callable[[MirrorPartition], None],
    ) -> None:
        self._services = services
        self._cluster = Cluster(address)
        self._failed, self._fenced, self._on_resumed = failed, fenced, resumed
        self._events = OutletEvents(
            may_write=may_write,
            arm=arm,
            advanced=advanced,
            interrupted=self._interrupted,
            failed=failed,
            lost=self._broker_lost,
        )
        self._brokers: dict[int, MirrorBroker] = {}
        self._resuming: dict[MirrorPartition, None] = {}
        self._fresh = False  # some of them can be resumed at once: all together, at the end of the turn
        self._missing = Suspicion(observations=3, seconds=5.0)
        self._broken = Suspicion(observations=2, seconds=0.0)
        self._upkeep = Upkeep(services, self._cluster, suspicious=self.recheck)

    def resume(self, one: MirrorPartition) -> None:
        """Read the mirror's end, then go on from there."""
        self._resuming[one] = None
        self._fresh = True

    def forget(self, one: MirrorPartition) -> None:
        """Write a partition no more."""
        self._resuming.pop(one, None)
        one.overtaken = None
        self._missing.clear(one.key)
        self._broken.clear(one.key)
        self._upkeep.forget(one)
        for broker in self._brokers.values():
            broker.forget(one)

    def wake(self, one: MirrorPartition) -> None:
        """A partition may have something to send."""
        broker = self._broker_of(one)
        if broker is not None:
            broker.wake(one)

    def pump(self, now: float) -> None:
        """Send what can be sent, as much as possible in each request."""
        if self._fresh:
            self._fresh = False
            self._read_due(now)
        for broker in self._brokers.values():
            broker.pump(now)

    def tick(self, now: float) -> None:
        """Resume what is due, give up silent brokers, look after idle mirrors."""
        self._read_due(now)
        for broker in self._brokers.values():
            broker.check(now)
        self._upkeep.tick(now, {number: broker.members for number, broker in self._brokers.items()})

    def let_go(self, one: MirrorPartition, chunks: list[Chunk]) -> None:
        """Free the buffers of chunks that will not be sent."""
        broker = self._broker_of(one)
        if broker is not None:
            broker.let_go(chunks)
            return
        for chunk in chunks:
            chunk.buffer.release()

    def own_unsent(self) -> None:
        """Copy what sockets have not taken, so that receive buffers are free again."""
        for broker in self._brokers.values():
            broker.own_unsent()

    def recheck(self, one: MirrorPartition) -> None:
        """The log end of an idle mirror is not where we left it: read it properly."""
        self._interrupt(one, retry_at=0.0)

    def close(self) -> None:
        """Close all connections."""
        for broker in self._brokers.values():
            broker.close()
        self._cluster.close()

    def _read_due(self, now: float) -> None:
        self._read(
            [one for one in self._resuming if not one.mirror_retry_at]
        )  # who was just granted does not wait for the others
        if any(0 < one.mirror_retry_at <= now for one in self._resuming):
            self._read([one for one in self._resuming if one.mirror_retry_at <= now + TOGETHER_S])

    def _read(self, due: list[MirrorPartition]) -> None:
        if not due:
            return
        for one in due:
            del self._resuming[one]
        queries = [tail_query(one) for one in due]
        asked = [(one, one.attempt) for one in due]
        self._services.background.submit(
            lambda: read_tails(self._cluster, queries),
            done=lambda results: self._tails_read(asked, results),
            failed=lambda error: self._tails_read(asked, {one.key: error for one, _ in asked}),
        )

    def _tails_read(self, asked: list[tuple[MirrorPartition, int]], results: dict[str, Tail | LinkEngineError]) -> None:
        for one, attempt in asked:
            if one.attempt != attempt or one.stage is not Stage.RESUMING:
                continue
            result = results[one.key]
            if isinstance(result, LinkEngineError):
                self._not_resumed(one, result)
            else:
                self._resume_from(one, result)

    def _resume_from(self, one: MirrorPartition, tail: Tail) -> None:
        if one.tail is not None and _is_another(one.tail.topic_id, tail.topic_id):
            self._not_resumed(one, another_topic(one.assignment))
            return
        try:
            _check_open(tail)
            one.resumed(tail, now_ms=self._services.clock.now_ms())
        except FencedError as error:
            one.parting = Trouble(PartitionPhase.RELEASED, error.code, error.message) if error.closes else None
            self._fenced(one, error)
            return
        one.overtaken = None
        self._missing.clear(one.key)
        self._broken.clear(one.key)
        for broker in self._brokers.values():
            broker.forget(one)
        self._broker(tail.leader.broker).adopt(one)
        self._on_resumed(one)

    def _not_resumed(self, one: MirrorPartition, error: LinkEngineError) -> None:
        now = self._services.clock.monotonic()
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR and self._missing.confirmed(one.key, now):
            self._failed(one, _missing(one))
            return
        if error.code in _PERMANENT and self._broken.confirmed(one.key, now, of=error.code):
            self._failed(one, error)
            return
        waiting = isinstance(error, StillWaitingError)
        one.mirror_retry_at = now + (WAIT_RETRY_S if waiting else one.mirror_backoff.next_pause())
        one.mirror_trouble = Trouble(PartitionPhase.DESTINATION_UNREACHABLE, error.code, error.message)
        self._resuming[one] = None

    def _interrupted(self, one: MirrorPartition, error: LinkEngineError) -> None:
        pause = one.mirror_backoff.next_pause()
        code = error.kafka_code if isinstance(error, BrokerError) else KafkaCode.NONE
        mergeable = code in TOO_LARGE and not isinstance(error, SingleTooLargeError)
        if not (code in _RESUME_AT_ONCE or (mergeable and one.shrink_batches())):
            one.mirror_trouble = Trouble(PartitionPhase.DESTINATION_UNREACHABLE, error.code, error.message)
        self._interrupt(one, retry_at=self._services.clock.monotonic() + pause)

    def _interrupt(self, one: MirrorPartition, *, retry_at: float) -> None:
        self.let_go(one, one.interrupt(retry_at=retry_at))
        if one.stage is Stage.RESUMING:
            self._resuming[one] = None

    def _broker_lost(self, partitions: list[MirrorPartition], error: LinkEngineError) -> None:
        for one in partitions:
            if one.stage is not Stage.RESUMING:  # what is being read elsewhere does not depend on this connection
                self._interrupted(one, error)

    def _broker(self, number: int) -> MirrorBroker:
        broker = self._brokers.get(number)
        if broker is None:
            broker = self._brokers[number] = MirrorBroker(self._services, self._cluster, number, events=self._events)
        return broker

    def _broker_of(self, one: MirrorPartition) -> MirrorBroker | None:
        return None if one.tail is None else self._brokers.get(one.tail.leader.broker)


def _is_another(before: bytes, now: bytes) -> bool:
    """A cluster that is upgraded gives topics their ids while they are used."""
    return any(before) and any(now) and before != now


def _check_open(tail: Tail) -> None:
    """Raise FencedError where a mirror ends with the fence of its stop. At an offset that is to be filled it looks like a fill.

    Epochs do not tell: a transaction coordinator goes above the fence's for whoever asks, and a leader may have forgotten them.
    """
    if tail.stretch is not None and tail.stretch.closed:
        raise FencedError(closes=True)


def _missing(one: MirrorPartition) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MIRROR_TOPIC_MISSING,
        f"Mirror topic {one.assignment.mirror_topic!r} is not there any more, or not the same one; somebody deleted it. "
        "Delete the mirror and create it again.",
    )

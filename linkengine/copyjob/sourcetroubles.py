"""Decides what happens to a partition whose source cannot be read: retry, show the error, or fail permanently.

An error is judged by its code and by how long it lasts, not by which request it came from:

* Codes in ``_PERMANENT``, and a source whose leader epochs went backwards on all brokers, fail the mirror when confirmed.
* A moved leader is normal during an election, so it is shown only after ``STANDSTILL_S`` without a successful Fetch.
* Everything else is shown immediately. All errors are retried, slower if an operator has to act first.
"""

from __future__ import annotations

from linkengine.copyjob.history import SteppedBackError
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Trouble
from linkengine.copyjob.ports import Clock
from linkengine.copyjob.suspicion import Suspicion
from linkengine.domain.errors import SOMEBODY_HAS_TO_ACT, ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.codes import LEADER_MOVED, BrokerError

BROKEN_RETRY_S = 5.0  # wrong credentials or missing permissions: an operator has to act first
EXAMINE_RETRY_S = 1.0
STANDSTILL_S = 10.0  # a leader election and the metadata update after it are finished by then
_PERMANENT = frozenset(
    {ErrorCode.SOURCE_TOPIC_ID_CHANGED, ErrorCode.UNSUPPORTED_MESSAGE_FORMAT, ErrorCode.UNEXPECTED_TRUNCATION}
)


class SourceTroubles:
    """Judges source errors, single or lasting, and records retry times and errors in the partitions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone = Suspicion(observations=2, seconds=0.0)  # unknown topic: a starting broker's metadata may be outdated
        self._set_back = Suspicion(observations=3, seconds=10.0)  # metadata of all brokers may be outdated for a few seconds
        self._final = Suspicion(observations=2, seconds=0.0)  # a single response may have been corrupted
        self._standstill = Suspicion(observations=4, seconds=STANDSTILL_S)  # errors that leader elections cause

    def located(self, partition: MirrorPartition) -> None:
        """Note that a leader was found that still has what was read."""
        self._gone.clear(partition.key)
        self._set_back.clear(partition.key)

    def seen(self, partition: MirrorPartition) -> None:
        """Note that the bounds of a source were read that is not fetched from at the moment."""
        self._standstill.clear(partition.key)

    def final(self, partition: MirrorPartition, error: LinkEngineError) -> LinkEngineError | None:
        """Return the error that ends copying permanently; None if it is to be retried, also to confirm it."""
        if isinstance(error, SteppedBackError) and error.everywhere:
            return error.final() if self._set_back.confirmed(partition.key, self._clock.monotonic()) else None
        if error.code not in _PERMANENT:
            return None
        return error if self._final.confirmed(partition.key, self._clock.monotonic(), of=error.message) else None

    def note(self, partition: MirrorPartition, error: LinkEngineError) -> None:
        """Set the time of the next retry, and record the error unless it may be a normal leader election."""
        now = self._clock.monotonic()
        code, message, lasting = error.code, error.message, self._lasts(partition, now)
        broken = code in SOMEBODY_HAS_TO_ACT
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR and self._gone.confirmed(partition.key, now):
            code = ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED
            topic = partition.assignment.source_topic
            message = f"Source topic {topic!r} does not exist. It may have been deleted. Retrying automatically."
        moved = isinstance(error, BrokerError) and error.kafka_code in LEADER_MOVED
        partition.source_retry_at = now + (BROKEN_RETRY_S if broken else partition.source_backoff.next_pause())
        if lasting or not moved:
            phase = PartitionPhase.LINK_BROKEN if broken else PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message + (_ADVICE if moved else ""), self._clock.now_ms())

    def hidden(self, partition: MirrorPartition, *, start: int, end: int) -> None:
        """Schedule a retry of an offset that lies within the source's bounds but is not returned; record it if it lasts."""
        now = self._clock.monotonic()
        lasting = self._lasts(partition, now)
        partition.source_retry_at = now + max(EXAMINE_RETRY_S, partition.source_backoff.next_pause())
        if lasting:
            message = f"{_returns_nothing(partition)}, though its log has the offsets {start} to {end}.{_ADVICE}"
            code, phase = ErrorCode.TIMEOUT_ERROR, PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message, self._clock.now_ms())

    def _lasts(self, partition: MirrorPartition, now: float) -> bool:
        """Return whether nothing was read for ``STANDSTILL_S``; a successful Fetch starts the count again."""
        if partition.source_backoff.rested:
            self._standstill.clear(partition.key)
        return self._standstill.confirmed(partition.key, now)


_ADVICE = (
    " This has lasted for more than 10 s, and nothing is copied. Retrying automatically. If it persists, check the log of the "
    "partition's leader and elect another leader, or restart that broker."
)


def _returns_nothing(partition: MirrorPartition) -> str:
    where = f"{partition.assignment.source_topic}-{partition.assignment.partition}"
    return f"The leader of source {where} returns nothing from offset {partition.position} on"

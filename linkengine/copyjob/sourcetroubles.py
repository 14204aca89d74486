"""What becomes of a partition that cannot be read: tried again, told of, or given up. Must not know how it is read."""

from __future__ import annotations

from linkengine.copyjob.history import SteppedBackError
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Trouble
from linkengine.copyjob.ports import Clock
from linkengine.copyjob.suspicion import Suspicion
from linkengine.domain.errors import SOMEBODY_HAS_TO_ACT, ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.codes import LEADER_MOVED, BrokerError

BROKEN_RETRY_S = 5.0  # wrong credentials or missing rights: somebody has to act first
EXAMINE_RETRY_S = 1.0
STANDSTILL_S = 10.0  # an election, and a look at the metadata behind it, are over by then
_PERMANENT = frozenset(
    {ErrorCode.SOURCE_TOPIC_ID_CHANGED, ErrorCode.UNSUPPORTED_MESSAGE_FORMAT, ErrorCode.UNEXPECTED_TRUNCATION}
)


class SourceTroubles:
    """Judges what sources refuse, by itself or because it lasts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone = Suspicion(observations=2, seconds=0.0)  # unknown topic: metadata of a starting broker may be late
        self._set_back = Suspicion(observations=3, seconds=10.0)  # metadata may be late everywhere, for a moment
        self._final = Suspicion(observations=2, seconds=0.0)  # a single answer may have been changed on its way
        self._standstill = Suspicion(observations=4, seconds=STANDSTILL_S)  # refused in ways that elections bring

    def located(self, partition: MirrorPartition) -> None:
        """A leader was found that has what was read."""
        self._gone.clear(partition.key)
        self._set_back.clear(partition.key)

    def seen(self, partition: MirrorPartition) -> None:
        """A source that nobody reads at the moment has told where it ends."""
        self._standstill.clear(partition.key)

    def final(self, partition: MirrorPartition, error: LinkEngineError) -> LinkEngineError | None:
        """Return the error that ends copying permanently; None where it is retried, as is what was seen only once."""
        if isinstance(error, SteppedBackError) and error.everywhere:
            return error.final() if self._set_back.confirmed(partition.key, self._clock.monotonic()) else None
        if error.code not in _PERMANENT:
            return None
        return error if self._final.confirmed(partition.key, self._clock.monotonic(), of=error.message) else None

    def note(self, partition: MirrorPartition, error: LinkEngineError) -> None:
        """Set when to try again; tell why, unless that is no news yet."""
        now = self._clock.monotonic()
        code, message, lasting = error.code, error.message, self._lasts(partition, now)
        broken = code in SOMEBODY_HAS_TO_ACT
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR and self._gone.confirmed(partition.key, now):
            code = ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED
            message = (
                f"Source topic {partition.assignment.source_topic!r} is not there. It may have been deleted. Still trying."
            )
        moved = isinstance(error, BrokerError) and error.kafka_code in LEADER_MOVED
        partition.source_retry_at = now + (BROKEN_RETRY_S if broken else partition.source_backoff.next_pause())
        if lasting or not moved:
            phase = PartitionPhase.LINK_BROKEN if broken else PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message + (_ADVICE if moved else ""), self._clock.now_ms())

    def hidden(self, partition: MirrorPartition, *, start: int, end: int) -> None:
        """The source has the wanted offset, as it says itself, and does not show it: no news unless it lasts."""
        now = self._clock.monotonic()
        lasting = self._lasts(partition, now)
        partition.source_retry_at = now + max(EXAMINE_RETRY_S, partition.source_backoff.next_pause())
        if lasting:
            message = f"{_shows_nothing(partition)}, though its log has the offsets {start} to {end}.{_ADVICE}"
            code, phase = ErrorCode.TIMEOUT_ERROR, PartitionPhase.SOURCE_UNREACHABLE
            partition.source_trouble = Trouble(phase, code, message, self._clock.now_ms())

    def _lasts(self, partition: MirrorPartition, now: float) -> bool:
        """Whether nothing could be read for a while; a Fetch that was served begins the count anew."""
        if partition.source_backoff.rested:
            self._standstill.clear(partition.key)
        return self._standstill.confirmed(partition.key, now)


_ADVICE = (
    " It has been so for more than ten seconds; nothing is copied meanwhile. Tried again by itself. If it stays, look at the "
    "log of the partition's leader and let another replica lead, or restart that broker."
)


def _shows_nothing(partition: MirrorPartition) -> str:
    return f"The leader of source {partition.assignment.source_topic}-{partition.assignment.partition} shows nothing from {partition.position} on"

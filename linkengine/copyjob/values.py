"""Values of the copy job: the parts of a ``PartitionState``, and readings of a mirror's log. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from linkengine.batches.steps import Append, Step
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.copyjob.producer_state import Unacknowledged
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionAssignment, PartitionPhase
from linkengine.domain.producers import ProducerState, TransactionalProducer
from linkengine.kafka.topicviews import Leader

Content = tuple[int | None, bytes]  # timestamp, None if the broker set it; and a hash of the rest, as records may be large


class Stage(StrEnum):
    """The stage of a partition in a copy worker (see ``partition_state``)."""

    WAITING = "WAITING"  # for the lease
    RESUMING = "RESUMING"  # the mirror's log end has to be read
    COPYING = "COPYING"
    STOPPING = "STOPPING"  # nothing new is sent; requests in flight are still waited for
    ENDED = "ENDED"  # lease released, or failed


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why one side of a partition does not make progress; shown until it does."""

    phase: PartitionPhase
    code: ErrorCode
    message: str
    at_ms: int | None = None  # Unix time of the failed attempt; None if attempts are not counted
    source_kept: int | None = None  # offset up to which the source still has the copied records


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """The leader to read a source partition from."""

    leader: Leader
    topic: bytes  # as Fetch names it: topic id, or name
    by_id: bool = True


class Chunk:
    """The planned steps of a Fetch response of a partition, and the buffer that holds their batches."""

    __slots__ = ("buffer", "steps")

    def __init__(self, steps: Sequence[Step], buffer: Buffer) -> None:
        self.steps = deque(steps)
        self.buffer = buffer

    def detach(self, pool: BufferPool) -> None:
        """Copy the batches out of the receive buffer, if memory allows, so that the buffer is free while this chunk waits."""
        data = self.buffer.data
        in_buffer = [step for step in self.steps if isinstance(step, Append) and step.payload.obj is data]
        loose = pool.loose(sum(len(step.payload) for step in in_buffer)) if in_buffer else None
        if loose is not None:
            self.steps = deque(_copied(step, data) for step in self.steps)
            self.buffer.release()
            self.buffer = loose


class Overtaken(NamedTuple):
    """Offsets at which the mirror seems to have other records than this owner sent: a foreign write, or a damaged response."""

    start: int  # first offset that was sent
    own_end: int  # the response was damaged if the log ends here or before, or if a data batch of the copy begins here
    end: int  # end of the range to check


@dataclass(slots=True)
class FillInFlight:
    """Markers that were sent and are not verified in the log yet."""

    start: int
    count: int
    epoch: int
    reason: str
    late_until: float = 0.0  # monotonic seconds until which they may still be written; 0: responded, or cannot be late

    @property
    def end(self) -> int:
        """The offset after the last marker."""
        return self.start + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The records and markers of a mirror partition from ``start`` to its log ``end``."""

    start: int
    end: int
    records: Mapping[int, Content]  # by offset
    markers: frozenset[int]  # offsets of markers of the copy's own producer id
    foreign: int | None = None  # offset of the first batch that another producer wrote
    foreign_markers: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()  # offsets of aborted records; the copy never writes any
    ends_with_fence: bool = False  # fences of stops are COMMIT markers, gap fills ABORT markers

    def only_markers_from(self, offset: int) -> bool:
        """Return whether every offset from ``offset`` on holds a marker of the copy's own producer."""
        return all(at in self.markers for at in range(offset, self.end))


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMarker:
    """A WriteTxnMarkers request whose response was lost: its broker may still write it, until ``until``, while it is leader.

    Under any leader epoch: the request names none, so a broker that is elected again still writes it.
    """

    broker: int
    until: float  # monotonic seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndQuery:
    """A partition to read, with the known facts about its log end."""

    assignment: PartitionAssignment
    clean: bool  # no request of any writer can be in flight
    once: bool = False  # a single reading is enough: the caller checks the batches that are appended later
    lost_marker: LostMarker | None = None
    transactions: TransactionalProducer | None = None  # the producer of this hold, if none of its transactions is ongoing
    expected_end: int | None = None  # offset after everything that this owner or its clean predecessor sent; None: unknown
    previous_end: int | None = None  # where the previous owner ended, also if the source has had another leader since
    unacknowledged: Unacknowledged | None = None  # unacknowledged sends of this owner
    check_tail: bool = False  # a tail check is needed wherever the log ends
    overtaken: Overtaken | None = None  # offsets of a possible foreign write, to be read


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Log end and producer state of a mirror partition; two readings agree, in the epochs only if the query allows that."""

    leader: Leader
    topic_id: bytes
    start: int
    end: int
    producer: ProducerState
    producer_id: int
    transactions: TransactionalProducer | None = None
    tail: LogTail | None = None  # the last records, if a tail check is needed


class ReadPosition:
    """``seen`` = (epoch, end): all offsets before ``end`` were read under leader epoch ``epoch`` or earlier; None: unknown."""

    __slots__ = ("proven", "seen")

    def __init__(self, seen: tuple[int, int] | None) -> None:
        self.seen = seen
        self.proven = False  # this attempt has read from the current leader: the mirror's records are of its epoch or earlier

    def inherit(self, seen: tuple[int, int] | None) -> None:
        """Use the values that the previous owner released with the lease; they are newer than any report."""
        self.seen = seen or self.seen
        self.proven = False

    def covers(self, origin: SourceOrigin) -> bool:
        """Return whether this leader needs no check: all that was read was read under its own epoch, or nothing is known."""
        return self.seen is None or self.seen[0] in (-1, origin.leader.epoch)

    def epoch_of(self, origin: SourceOrigin | None) -> int | None:
        """Return the current leader's epoch if this attempt has read from it, else None."""
        return origin.leader.epoch if origin is not None and self.proven else None

    def leave(self, origin: SourceOrigin | None, *, end: int) -> None:
        """Record that the current leader was read up to ``end``, before another leader or attempt follows."""
        if origin is not None and self.proven:
            self.seen = (origin.leader.epoch, end)
        self.proven = False

    def end_attempt(self, origin: SourceOrigin | None, *, end: int | None) -> None:
        """End the attempt; only offsets that were sent, up to ``end``, count as read; the rest was dropped."""
        if end is not None:
            self.leave(origin, end=end)
            self.seen = (self.seen[0], min(self.seen[1], end)) if self.seen is not None else None
        self.proven = False

    def handed_over(self, origin: SourceOrigin | None, *, end: int | None) -> tuple[int, int] | None:
        """Return (epoch, end) for the next owner of a mirror that ends at ``end`` with nothing in flight; None if unknown."""
        epoch = self.epoch_of(origin)
        if epoch is None and self.seen is not None:
            epoch = self.seen[0]
        return None if epoch is None or end is None else (epoch, end)


def points_into(steps: Iterable[Step], buffer: Buffer) -> bool:
    """Return whether any batch lies in the buffer; merged batches have memory of their own."""
    return any(isinstance(step, Append) and step.payload.obj is buffer.data for step in steps)


def payload_bytes(steps: Iterable[Step]) -> int:
    """Return the bytes that the steps append."""
    return sum(len(step.payload) for step in steps if isinstance(step, Append))


def _copied(step: Step, data: object) -> Step:
    if isinstance(step, Append) and step.payload.obj is data:
        return replace(step, payload=memoryview(bytearray(step.payload)))
    return step

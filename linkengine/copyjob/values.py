"""The values that the state of a ``PartitionState`` consists of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from linkengine.batches.steps import Append, Step
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.topicviews import Leader


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
    """The offsets where, by a response, the mirror has other records than this owner sent. The response may be corrupted."""

    start: int  # first offset of what was sent
    own_end: int  # the response is wrong if the log ends by here, or a data batch of the copy begins here
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

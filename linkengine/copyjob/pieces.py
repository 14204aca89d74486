"""The values that a partition's state is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from linkengine.batches.steps import Append, Step
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka.topicviews import Leader


class Stage(StrEnum):
    """Where a partition is in its life with one worker."""

    WAITING = "WAITING"  # for the lease
    RESUMING = "RESUMING"  # the mirror's end is not known (any more)
    COPYING = "COPYING"
    STOPPING = "STOPPING"  # nothing new is sent; answers are awaited
    ENDED = "ENDED"  # lease given back, or failed


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why one side does not get on; shown until it does."""

    phase: PartitionPhase
    code: ErrorCode
    message: str
    at_ms: int | None = None  # when the try failed that tells of it; None where nobody counts them
    source_kept: int | None = None  # the source is what was copied up to here only


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to read the source partition."""

    leader: Leader
    topic: bytes  # as Fetch names it
    by_id: bool = True


class Chunk:
    """The planned steps of one fetched stretch, and the buffer their payloads lie in."""

    __slots__ = ("buffer", "steps")

    def __init__(self, steps: list[Step], buffer: Buffer) -> None:
        self.steps = deque(steps)
        self.buffer = buffer

    def detach(self, pool: BufferPool) -> None:
        """Copy the payloads out of the receive buffer, so that others can use it while this chunk waits; if memory allows."""
        data = self.buffer.data
        ours = [step for step in self.steps if isinstance(step, Append) and step.payload.obj is data]
        stand_in = pool.loose(sum(len(step.payload) for step in ours)) if ours else None
        if stand_in is not None:
            self.steps = deque(_copied(step, data) for step in self.steps)
            self.buffer.release()
            self.buffer = stand_in


class Overtaken(NamedTuple):
    """What a response claims: something else stands in the mirror where this owner wrote. The response may be wrong."""

    start: int  # of what was sent
    own_end: int  # from here on nothing of this fill, or this append, was expected to stand elsewhere
    end: int  # of what is to be looked at


@dataclass(slots=True)
class FillInFlight:
    """Markers that were sent and are not verified yet."""

    start: int
    count: int
    epoch: int
    reason: str
    late_until: float = 0.0  # monotonic seconds; until then they may still be written. 0: answered, or no marker can be late

    @property
    def end(self) -> int:
        """The offset after them."""
        return self.start + self.count


def points_into(steps: Iterable[Step], buffer: Buffer) -> bool:
    """Tell whether any payload lies in the buffer; merged ones have memory of their own."""
    return any(isinstance(step, Append) and step.payload.obj is buffer.data for step in steps)


def payload_bytes(steps: Iterable[Step]) -> int:
    """Answer how much the steps are going to append."""
    return sum(len(step.payload) for step in steps if isinstance(step, Append))


def _copied(step: Step, data: object) -> Step:
    if isinstance(step, Append) and step.payload.obj is data:
        return replace(step, payload=memoryview(bytearray(step.payload)))
    return step

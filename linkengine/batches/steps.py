"""What a plan consists of. Values only: must not know how a step is found nor how it is written."""

from __future__ import annotations

from dataclasses import dataclass

from linkengine.domain.states import GapReason


@dataclass(slots=True)
class Append:
    """Offsets that hold records: one batch of magic 2, ready for ``patch_for_append``.

    A value like the others, though not frozen: it is made once per batch, and that is three times as fast so.
    """

    base_offset: int
    count: int  # offsets covered
    payload: memoryview  # one whole batch; a slice of the fetched buffer unless it had to be re-encoded
    records: int  # equal to count: a broker takes dense batches only
    max_timestamp: int

    @property
    def start(self) -> int:
        return self.base_offset

    @property
    def end(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class Fill:
    """Offsets ``[start, end)`` that hold no record anybody may see, and why."""

    start: int
    end: int
    reason: GapReason


Step = Append | Fill

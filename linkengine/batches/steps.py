"""The steps of a plan. Values only; ``planning`` creates them, ``copyjob.destination`` carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from linkengine.domain.states import GapReason


@dataclass(slots=True)
class Append:
    """Offsets with records: a batch of magic 2, ready for ``patch_for_append``.

    A value, but not frozen: creation, once per batch, is three times as fast this way.
    """

    base_offset: int
    count: int  # offsets covered
    payload: memoryview  # a whole batch; a slice of the fetched buffer unless it was re-encoded
    records: int  # equal to count: a broker accepts only dense batches
    max_timestamp: int

    @property
    def start(self) -> int:
        return self.base_offset

    @property
    def end(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class Fill:
    """Offsets ``[start, end)`` without a visible record, and the reason."""

    start: int
    end: int
    reason: GapReason


Step = Append | Fill

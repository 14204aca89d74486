"""Appends whose acknowledgement was lost: decides whether they explain where the mirror ends now. Arithmetic only, no I/O.

Each record of this owner takes an offset and a sequence number. If the leader counts as many new sequence numbers as
there are new offsets, all new records are this owner's. Otherwise another producer may have appended while the connection
was lost. Sending the batches again would then put them behind its records, at offsets that belong to later records of the
source.

Example: offsets 100 to 109 were sent from sequence 40 on, and the responses were lost. Now the mirror ends at 107.

| last sequence | new offsets explained | conclusion |
|---|---|---|
| 46 | 40..46 = 7, as 100..106 | all of them are this owner's; it resumes at 107 |
| 43 | 40..43 = 4, but 7 offsets are new | another producer may have written; the tail is checked from 100 on |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkengine.batches.patch import SEQUENCES
from linkengine.batches.steps import Append
from linkengine.copyjob.producer_state import OwnProducerState
from linkengine.domain.producers import ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Unacknowledged:
    """The first unacknowledged offset and the sequence number sent with it; None: sequences cannot be counted."""

    offset: int
    sequence: int | None
    producer_id: int  # the producer id it was sent with

    def confirmed_end(self, end: int, *, sent_end: int | None, producer: ProducerState) -> int | None:
        """Return up to which offset a mirror that ends at ``end`` is certainly written by this owner."""
        if end <= self.offset:
            return sent_end
        if self.sequence is None:
            return self.offset
        written = (producer.last_sequence + 1 - self.sequence) % SEQUENCES
        return sent_end if self.offset + written == end else self.offset


def unacknowledged_of(
    in_flight: Sequence[Append], *, fill_start: int | None, producer: OwnProducerState, counts: bool
) -> Unacknowledged | None:
    """Return what is unacknowledged when an attempt ends, None if everything was acknowledged.

    ``fill_start``: the first offset of markers that were sent and not verified. Not ``counts``: a transaction coordinator may
    raise the epoch or assign another producer id before the log end is read, so that sequences cannot be counted.
    """
    offset = in_flight[0].base_offset if in_flight else fill_start
    if offset is None:
        return None
    sequence = (producer.next_sequence - sum(step.count for step in in_flight)) % SEQUENCES
    return Unacknowledged(offset=offset, sequence=sequence if counts else None, producer_id=producer.producer_id)


class LateAppends:
    """Unacknowledged appends that the leader may still write late, as long as their sequence is the expected one.

    Counted in sequences, not in offsets: a marker takes an offset and does not advance the sequence.
    """

    __slots__ = ("_epoch", "_sequence")

    def __init__(self) -> None:
        self._epoch, self._sequence = -1, 0  # epoch and sequence that follow the last such append; epoch -1: there is none

    def __bool__(self) -> bool:
        return self._epoch >= 0

    def add(self, in_flight: Sequence[Append], *, producer: OwnProducerState) -> None:
        """Add the unacknowledged appends of an attempt that ends. They are the last that were sent."""
        if in_flight and not (self._epoch == producer.epoch and _is_behind(producer.next_sequence, self._sequence)):
            self._epoch, self._sequence = producer.epoch, producer.next_sequence

    def acknowledged(self, in_flight: Sequence[Append], *, producer: OwnProducerState) -> None:
        """Forget the appends if the leader has written what was sent before ``in_flight``.

        From then on the leader refuses lower sequences and lower epochs.
        """
        reached = (producer.next_sequence - sum(step.count for step in in_flight)) % SEQUENCES
        if producer.epoch > self._epoch or (producer.epoch == self._epoch and not _is_behind(reached, self._sequence)):
            self.clear()

    def clear(self) -> None:
        """Forget the appends: a higher epoch fences them."""
        self._epoch = -1


def _is_behind(sequence: int, reference: int) -> bool:
    return (sequence - reference) % SEQUENCES > SEQUENCES // 2  # sequences wrap around to 0

"""What an owner sent and never heard of: whether its own requests explain where the mirror ends now. Arithmetic only, no I/O.

Each record of ours takes one offset and one sequence number. Where the leader counts as many new sequences as there are new
offsets, all of them are ours. Else somebody may have come first while the connection was away: what is sent again would fit
behind a stranger's records, and the source's own would be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkengine.batches.patch import SEQUENCES
from linkengine.batches.steps import Append
from linkengine.copyjob.pieces import FillInFlight
from linkengine.copyjob.writer import Writer
from linkengine.kafka.producers import ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """The first offset whose answer was lost, and the sequence that belongs there; None: it cannot be counted."""

    offset: int
    sequence: int | None
    producer_id: int  # that it was sent with

    def vouched_end(self, end: int, *, sent_end: int | None, producer: ProducerState) -> int | None:
        """Answer up to where a mirror that ends at ``end`` is surely the owner's."""
        if end <= self.offset:
            return sent_end
        if self.sequence is None:
            return self.offset
        arrived = (producer.last_sequence + 1 - self.sequence) % SEQUENCES
        return sent_end if self.offset + arrived == end else self.offset


def doubt_of(unanswered: Sequence[Append], fill: FillInFlight | None, *, writer: Writer, counts: bool) -> Doubt | None:
    """Answer what is in doubt when an attempt ends, None where all was answered.

    Not ``counts``: a transaction coordinator may begin a new epoch, or give another producer id, before the end is read.
    """
    if not unanswered and fill is None:
        return None
    offset = unanswered[0].base_offset if unanswered else fill.start if fill else 0
    sequence = (writer.next_sequence - sum(step.count for step in unanswered)) % SEQUENCES
    return Doubt(offset=offset, sequence=sequence if counts else None, producer_id=writer.producer_id)


class LooseAppends:
    """Data that was sent without an answer and may be written late, as long as the sequence it carries is the next one.

    Counted in sequences, not in offsets: a marker takes an offset and leaves the sequence free.
    """

    __slots__ = ("_epoch", "_sequence")

    def __init__(self) -> None:
        self._epoch, self._sequence = -1, 0  # of what follows the last of it; -1: there is none

    def __bool__(self) -> bool:
        return self._epoch >= 0

    def add(self, unanswered: Sequence[Append], *, writer: Writer) -> None:
        """An attempt ends with these, which are the last that the writer has sent."""
        if unanswered and not (self._epoch == writer.epoch and _is_behind(writer.next_sequence, self._sequence)):
            self._epoch, self._sequence = writer.epoch, writer.next_sequence

    def acknowledged(self, unanswered: Sequence[Append], *, writer: Writer) -> None:
        """All that the writer has sent but these was written: what has a sequence, or an epoch, before that is refused now."""
        reached = (writer.next_sequence - sum(step.count for step in unanswered)) % SEQUENCES
        if writer.epoch > self._epoch or (writer.epoch == self._epoch and not _is_behind(reached, self._sequence)):
            self.clear()

    def clear(self) -> None:
        """A higher epoch has shut it out."""
        self._epoch = -1


def _is_behind(sequence: int, other: int) -> bool:
    return (sequence - other) % SEQUENCES > SEQUENCES // 2  # they begin anew at 0

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
from linkengine.kafka.producers import ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """The first offset whose answer was lost, and the sequence that belongs there."""

    offset: int
    sequence: int

    def vouched_end(self, end: int, *, sent_end: int | None, producer: ProducerState) -> int | None:
        """Answer up to where a mirror that ends at ``end`` is surely the owner's."""
        if end <= self.offset:
            return sent_end
        arrived = (producer.last_sequence + 1 - self.sequence) % SEQUENCES
        return sent_end if self.offset + arrived == end else self.offset


def doubt_of(unanswered: Sequence[Append], fill: FillInFlight | None, *, next_sequence: int) -> Doubt | None:
    """Answer what is in doubt when an attempt ends, None where all was answered."""
    if unanswered:
        sent = sum(step.count for step in unanswered)
        return Doubt(offset=unanswered[0].base_offset, sequence=(next_sequence - sent) % SEQUENCES)
    return None if fill is None else Doubt(offset=fill.start, sequence=next_sequence)

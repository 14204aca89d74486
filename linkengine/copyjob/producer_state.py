"""Producer state of a mirror partition: producer epoch, next sequence, coordinator epoch. Arithmetic only, no I/O.

The destination's leader keeps, per partition and producer id, the last producer epoch, the last sequence and the last
coordinator epoch of a marker. Effects of a request (measured on brokers 3.9 and 4.3):

=======================================  ===================================================================================
request                                  effect
=======================================  ===================================================================================
data, current epoch, next sequence       appended. Any other sequence is refused, or returns the offset of the
                                         earlier batch: so an append is a compare-and-append, and a second writer of the
                                         same batch appends nothing
data, higher epoch                       accepted only with sequence 0
data, no producer state at the leader    accepted with any epoch and any sequence
marker, current epoch                    appended; the sequences continue
marker, current epoch + 1                appended; every writer of the old epoch is fenced, data continues with sequence 0
=======================================  ===================================================================================

Rules for owners:

* Epochs have 16 bits, so an owner raises the epoch only if the hand-over was *not* clean, with its first marker. While it
  writes only data, the old epoch and the next sequence protect the mirror.
* The coordinator epoch is twice the owner's lease generation. If the leader has a higher number, a newer owner has written.
  An odd number is the fence of a stop (``is_fence``): no owner writes this mirror again.
* Where a transaction coordinator writes the markers (``bind``), its producer id and epoch are used, and the coordinator fences
  earlier owners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkengine.batches.patch import SEQUENCES, next_sequence
from linkengine.batches.steps import Append
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.producers import ProducerState
from linkengine.domain.workers import FIRST_GENERATION

LAST_EPOCH = (1 << 15) - 1
# Number of epochs that a fence skips, so that it stays above an owner that raises its epoch concurrently. Such an owner uses an
# epoch per marker whose response was lost: about three in a minute.
SKIPPED_EPOCHS = 8


def coordinator_epoch_for(generation: int, *, fence: bool = False) -> int:
    """Return the coordinator epoch of a marker: even while a mirror is written, odd for the fence of its stop."""
    return 2 * generation + fence


def generation_of(coordinator_epoch: int) -> int:
    """Return the generation of the owner that wrote the last marker; -1 if there was no marker."""
    return coordinator_epoch // 2


def is_fence(coordinator_epoch: int) -> bool:
    """Return whether the marker was the fence of a stop: the mirror was stopped, whatever assignments and leases say."""
    return coordinator_epoch >= 0 and coordinator_epoch % 2 == 1


def raised(epoch: int) -> int:
    """Return the epoch that fences writers with ``epoch``. A writer that finds no state at the leader (-1) uses epoch 0."""
    return max(epoch, 0) + 1


def epochs_above(state: ProducerState, *, generation: int, fence: bool, tries: int = 0) -> tuple[int, int]:
    """Return the epochs (producer, coordinator) of a marker that fences all writers that ``state`` shows, and their requests.

    Their requests may still be in flight. The producer epoch is above those of an owner that raises its epoch at the same time,
    and above those of this caller's earlier ``tries``: their responses were lost, so their markers may still be written.
    """
    highest = max(generation, generation_of(state.coordinator_epoch) + 1)
    epoch = raised(state.epoch) + SKIPPED_EPOCHS + tries
    return min(epoch, LAST_EPOCH), coordinator_epoch_for(highest, fence=fence)


class FencedError(LinkEngineError):
    """This owner may not write: a newer owner has raised the epoch, or the mirror was stopped (``was_stopped``)."""

    def __init__(self, *, was_stopped: bool = False) -> None:
        self.was_stopped = was_stopped
        if was_stopped:
            super().__init__(
                ErrorCode.MIRROR_WAS_STOPPED,
                "The topic was promoted or failed over before, as its log shows; perhaps the console's database was restored "
                "from a backup since. Applications may use the topic, so nothing more is written to it. Fail over to keep it "
                "as it is. Delete it and create the mirror again only if no application needs it.",
            )
        else:
            super().__init__(
                ErrorCode.ILLEGAL_STATE,
                "A newer owner of this mirror partition, or a failover, has taken over. No action is needed.",
            )


class OwnProducerState:
    """Producer state of a mirror partition during a hold (from a granted lease until it is released or lost)."""

    __slots__ = (
        "_bound_epoch",
        "_highest_tried_epoch",
        "_must_raise",
        "epoch",
        "generation",
        "memory_lost",
        "next_sequence",
        "producer_id",
        "unclean",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.next_sequence = 0
        self.generation = -1  # -1: no lease
        self.memory_lost = False  # Redis has lost the lease state of an owner that had sent markers
        self.unclean = False  # the previous owner may not have noticed yet that its lease has expired
        self._must_raise = False
        self._highest_tried_epoch = -1  # the highest epoch of this hold's markers, written or not
        self._bound_epoch: int | None = None

    def bind(self, producer_id: int, epoch: int) -> None:
        """Use a transaction coordinator's producer id and epoch, since it writes the markers; to be called before ``adopt``."""
        self.producer_id = producer_id
        self._bound_epoch = epoch

    @property
    def adopted(self) -> bool:
        """Whether this hold has read the leader's state at least once."""
        return self.generation >= 0

    @property
    def must_raise(self) -> bool:
        """Whether the next marker raises the epoch."""
        return self._must_raise

    def end_hold(self) -> None:
        """End the hold."""
        self.generation, self.memory_lost = -1, False

    def adopt(self, state: ProducerState, *, generation: int, clean: bool, empty: bool = False) -> None:
        """Start a hold with the leader's state of the producer; ``empty``: the log has no records.

        Redis has lost the lease's state (``memory_lost``) if the leader has a marker of this generation or a later one, or, in
        the first generation, any state of this producer in a log with records. The previous owner is unknown then, so the hold
        counts as unclean. The first hold of a mirror whose head was seeded counts as unclean, too, since its leader has the
        producer's state; this costs one epoch. Raises FencedError if the mirror was stopped.
        """
        has_state = generation <= FIRST_GENERATION and state.epoch >= 0
        if self._bound_epoch is not None:  # the transaction coordinator fences, with epochs of its own
            self.generation = generation
        else:
            self._adopt_generation(state, generation=generation, has_state=has_state and not empty)
        self.unclean = not clean or self.memory_lost or has_state
        self._must_raise, self._highest_tried_epoch = self.unclean and self._bound_epoch is None, -1
        self._load(state)

    def readopt(self, state: ProducerState) -> None:
        """Continue within the same hold; raise FencedError if a newer owner or a stop has written a marker."""
        if self._is_fenced(state):  # a transaction coordinator's epoch does not show whether an owner or a stop raised it
            raise FencedError(was_stopped=self._bound_epoch is None and is_fence(state.coordinator_epoch))
        if self.epoch < state.epoch == self._highest_tried_epoch:
            self._must_raise = False
        self._load(state)

    def _adopt_generation(self, state: ProducerState, *, generation: int, has_state: bool) -> None:
        if is_fence(state.coordinator_epoch):
            raise FencedError(was_stopped=True)
        known = generation_of(state.coordinator_epoch)
        if has_state:
            known = max(known, FIRST_GENERATION)
        self.generation, self.memory_lost = max(generation, known + 1), known >= generation

    def _is_fenced(self, state: ProducerState) -> bool:
        if self._bound_epoch is not None:
            return state.epoch > max(self._bound_epoch, self.epoch)
        known = state.coordinator_epoch
        return (
            is_fence(known)
            or generation_of(known) > self.generation
            or state.epoch > max(self.epoch, self._highest_tried_epoch, 0)
        )

    def raise_next(self) -> None:
        """Make the next marker raise the epoch, so that requests still in flight are refused after it."""
        self._must_raise = True

    def append(self, count: int) -> tuple[int, int]:
        """Return (epoch, base sequence) for the next data batch of ``count`` records, and count it as sent."""
        base = self.next_sequence
        self.epoch = max(self.epoch, 0)
        self.next_sequence = next_sequence(base, count)
        return self.epoch, base

    def marker_epoch(self) -> int:
        """Return the epoch for the next marker; if this hold has to raise it, above every epoch that it has tried.

        Raises ILLEGAL_STATE if no epoch is left.
        """
        if self._bound_epoch is not None:
            return self._bound_epoch
        if not self._must_raise:
            return max(self.epoch, 0)
        highest = max(self.epoch, self._highest_tried_epoch)
        if highest >= LAST_EPOCH:
            raise LinkEngineError(
                ErrorCode.ILLEGAL_STATE,
                "All 32,767 producer epochs of this mirror partition are used up by crashed owners. Fail over and create the "
                "mirror again under a new name, which gives it a new producer id.",
            )
        self._highest_tried_epoch = raised(highest)
        return self._highest_tried_epoch

    def marker_written(self, epoch: int) -> None:
        """Continue after a marker with ``epoch`` that was verified in the log; a raised epoch restarts the sequences at 0."""
        if epoch > self.epoch:
            self.next_sequence = 0
        self.epoch = epoch
        self._must_raise = False

    def _load(self, state: ProducerState) -> None:
        self.epoch = state.epoch
        self.next_sequence = next_sequence(state.last_sequence, 1) if state.last_sequence >= 0 else 0


# --- unacknowledged appends ----------------------------------------------------------------------------------------------
# Appends whose acknowledgement was lost: whether they explain where the mirror ends now.
#
# Each record of this owner takes an offset and a sequence number. If the leader counts as many new sequence numbers as
# there are new offsets, all new records are this owner's. Otherwise another producer may have appended while the connection
# was lost. Sending the batches again would then put them behind its records, at offsets that belong to later records of the
# source.
#
# Example: offsets 100 to 109 were sent from sequence 40 on, and the responses were lost. Now the mirror ends at 107.
#
# | last sequence | new offsets explained | conclusion |
# |---|---|---|
# | 46 | 40..46 = 7, as 100..106 | all of them are this owner's; it resumes at 107 |
# | 43 | 40..43 = 4, but 7 offsets are new | another producer may have written; the tail is checked from 100 on |


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

"""Whose hand writes a mirror partition: producer epoch, next sequence, coordinator epoch. Arithmetic only, no I/O.

Rules (measured on brokers 3.9 and 4.3):

* Data with the current epoch and the next sequence is a compare-and-append: a second writer gets an error or the old offset.
* A marker with the current epoch leaves the sequences running. A marker with epoch + 1 shuts out every writer of the old
  epoch; data goes on with sequence 0.
* A leader that knows of no epoch takes any, with any sequence; one that knows takes a higher epoch with sequence 0.
* Epochs are 16 bits, so only an owner that was *not* handed the partition cleanly raises it, with its first marker. As long
  as it writes data only, the old epoch and the next sequence protect it.
* The coordinator epoch tells the owner's generation. A leader that knows of a higher one has been fenced by somebody newer.
  An odd one is the fence of a stop (``domain/leases.py``): nobody writes this mirror any more, not even a new owner.
"""

from __future__ import annotations

from linkengine.batches.patch import next_sequence
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import FIRST_GENERATION, coordinator_epoch_for, generation_of, is_closed
from linkengine.kafka.producers import ProducerState

LAST_EPOCH = (1 << 15) - 1
ABOVE_OWNERS = (
    8  # epochs that a fence leaves to an owner that raises at the same time: one per lost marker, so three in a minute
)


def raised(epoch: int) -> int:
    """Answer the epoch that shuts out whoever writes with ``epoch``. Who finds none at the leader (-1) writes with 0."""
    return max(epoch, 0) + 1


def epochs_above(state: ProducerState, *, generation: int, closes: bool, tries: int = 0) -> tuple[int, int]:
    """Answer producer epoch and coordinator epoch of a marker that shuts out everybody up to ``state``, and what is under way.

    Above an owner that raises its epoch in this moment, and above our own ``tries`` before: their answers were lost, so they
    may still be written.
    """
    highest = max(generation, generation_of(state.coordinator_epoch) + 1)
    epoch = raised(state.epoch) + ABOVE_OWNERS + tries
    return min(epoch, LAST_EPOCH), coordinator_epoch_for(highest, closes=closes)


class FencedError(LinkEngineError):
    """A newer owner has raised the epoch, or the fence of a stop ``closes`` the mirror: this one may not write any more."""

    def __init__(self, *, closes: bool = False) -> None:
        self.closes = closes
        if closes:
            super().__init__(
                ErrorCode.MIRROR_WAS_STOPPED,
                "The topic was promoted or failed over before, as its log shows; perhaps the console's database was put back "
                "to a backup since. Applications may use it, so nothing more is written to it. Fail over to keep it as it is. "
                "Delete it and begin again only if nobody needs it.",
            )
        else:
            super().__init__(
                ErrorCode.ILLEGAL_STATE, "A newer owner of this mirror partition, or a failover, has taken over. Nothing to do."
            )


class Writer:
    """The producer of one mirror partition during one hold of its lease."""

    __slots__ = (
        "_bound_epoch",
        "_must_raise",
        "_tried",
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
        self.generation = -1  # -1: no hold
        self.memory_lost = False  # the lease has forgotten an owner that had sent markers
        self.unclean = False  # whoever wrote before may believe in its lease still
        self._must_raise = False
        self._tried = -1  # the highest epoch of this hold's markers, whatever became of them
        self._bound_epoch: int | None = None

    def bind(self, producer_id: int, epoch: int) -> None:
        """Markers are written by a transaction coordinator, with its producer id and epoch; call it before adopting."""
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

    def drop(self) -> None:
        """Forget the hold."""
        self.generation, self.memory_lost = -1, False

    def adopt(self, state: ProducerState, *, generation: int, clean: bool, empty: bool = False) -> None:
        """Begin a hold with what the leader remembers; ``empty``: of a log without a record.

        A leader that knows of our generation or a later one, or of data before the first generation, means that the
        lease's memory was lost: the predecessor is unknown, so the hold counts as unclean. (So does the first hold of a
        mirror whose head was seeded, which costs one epoch; its log is empty.) Raises FencedError where the mirror was stopped.
        """
        written = generation <= FIRST_GENERATION and state.epoch >= 0
        if self._bound_epoch is not None:  # a transaction coordinator fences, and counts epochs of its own
            self.generation = generation
        else:
            self._adopt_generation(state, generation=generation, written=written and not empty)
        self.unclean = not clean or self.memory_lost or written
        self._must_raise, self._tried = self.unclean and self._bound_epoch is None, -1
        self._take(state)

    def readopt(self, state: ProducerState) -> None:
        """Go on within the same hold; raise FencedError where somebody newer has written a marker."""
        if self._is_fenced(state):  # by whom is not told where a transaction coordinator fences
            raise FencedError(closes=self._bound_epoch is None and is_closed(state.coordinator_epoch))
        if self.epoch < state.epoch == self._tried:
            self._must_raise = False
        self._take(state)

    def _adopt_generation(self, state: ProducerState, *, generation: int, written: bool) -> None:
        if is_closed(state.coordinator_epoch):
            raise FencedError(closes=True)
        known = generation_of(state.coordinator_epoch)
        if written:
            known = max(known, FIRST_GENERATION)
        self.generation, self.memory_lost = max(generation, known + 1), known >= generation

    def _is_fenced(self, state: ProducerState) -> bool:
        if self._bound_epoch is not None:
            return state.epoch > max(self._bound_epoch, self.epoch)
        known = state.coordinator_epoch
        return is_closed(known) or generation_of(known) > self.generation or state.epoch > max(self.epoch, self._tried, 0)

    def raise_next(self) -> None:
        """Let the next marker raise the epoch: one sent before may still be on its way, and shall be refused then."""
        self._must_raise = True

    def append(self, count: int) -> tuple[int, int]:
        """Answer (epoch, base sequence) for the next data batch and count it as sent."""
        base = self.next_sequence
        self.epoch = max(self.epoch, 0)
        self.next_sequence = next_sequence(base, count)
        return self.epoch, base

    def marker_epoch(self) -> int:
        """Answer the epoch for the next marker; raises it where this hold has to, above any marker that may still come."""
        if self._bound_epoch is not None:
            return self._bound_epoch
        if not self._must_raise:
            return max(self.epoch, 0)
        highest = max(self.epoch, self._tried)
        if highest >= LAST_EPOCH:
            raise LinkEngineError(
                ErrorCode.ILLEGAL_STATE,
                "All 32,767 producer epochs of this mirror partition are used up by owners that died. Fail over and start the "
                "mirror again under a new name; its producer id is new then.",
            )
        self._tried = raised(highest)
        return self._tried

    def marked(self, epoch: int) -> None:
        """A marker with ``epoch`` has been verified in the log."""
        if epoch > self.epoch:
            self.next_sequence = 0
        self.epoch = epoch
        self._must_raise = False

    def _take(self, state: ProducerState) -> None:
        self.epoch = state.epoch
        self.next_sequence = next_sequence(state.last_sequence, 1) if state.last_sequence >= 0 else 0

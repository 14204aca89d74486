"""Receive buffers that are used again and again: a page the kernel has mapped once costs nothing the next time.

A buffer is free when the answer in it has been read, planned and every slice of it sent. All brokers of a link share one pool,
so that its memory is bounded whatever their number, and the links of a worker share the worker's memory evenly (``share``), so
that a link whose destination takes nothing holds none of the others' buffers. Must not know what is in the buffers.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress

BUDGET = 40 << 20  # of one worker; a single answer may be larger (messages up to 100 MB), it is then its link's only one
LOOSE_BUDGET = 32 << 20  # of merged batches, and of copies made because a slow destination holds the buffers
BESIDE_AHEAD, LOOSE_BESIDE_AHEAD = 12 << 20, 8 << 20  # what they shrink to while the memory for reading ahead is in use
LEAST_BUDGET = 3 << 20  # of one link, however many there are: one answer that is written while another one is read
AHEAD_BUDGET = 56 << 20  # of one worker, for answers that were read ahead and wait for their turn
AHEAD_RESERVE = 8 << 20  # beyond it, for answers that are planned next: without them nothing would become free
AHEAD_UNIT = 880 << 10
MOST_SHARES = 16  # of the memory for reading ahead; each is large enough for some pieces
SMALLEST = 1 << 20
HUGE_PAGE = 2 << 20  # of the kernel; larger buffers are multiples of it


class Buffer:
    """One receive buffer and how many chunks still point into it."""

    __slots__ = ("data", "on_free", "users")

    def __init__(self, size: int = 0, *, on_free: Callable[[], None] | None = None) -> None:
        self.data = _memory(size) if size else bytearray()
        self.users = 0
        self.on_free = on_free

    def view(self, size: int) -> memoryview:
        """Answer the first ``size`` bytes."""
        return memoryview(self.data)[:size]

    def release(self) -> None:
        """One chunk less points here."""
        self.users -= 1
        if self.users == 0 and self.on_free is not None:
            self.on_free()


class BufferPool:
    """The buffers of one link: a few are enough unless a destination is slow, ``budget`` bounds their bytes."""

    def __init__(self, *, budget: int = BUDGET, smallest: int = SMALLEST) -> None:
        self._budget, self._smallest = budget, smallest
        self._loose_budget = LOOSE_BUDGET
        self._buffers: list[Buffer] = []
        self._loose = 0
        self._expected = 0  # bytes of a giant that waits until no buffer is in use

    def share(self, links: int, *, beside_ahead: bool = False) -> None:
        """Be one of so many; what is in use beyond the share is not taken again. ``beside_ahead``: a source is read ahead."""
        budget, loose = (BESIDE_AHEAD, LOOSE_BESIDE_AHEAD) if beside_ahead else (BUDGET, LOOSE_BUDGET)
        self._budget = max(LEAST_BUDGET, budget // max(1, links))
        self._loose_budget = max(LEAST_BUDGET, loose // max(1, links))
        self._make_room(0)

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(len(one.data) for one in self._buffers)

    def take(self, size: int) -> Buffer | None:
        """Answer a buffer for ``size`` bytes, counted as used once; None while those in use leave no room for it.

        A giant has the next turn once it was refused: others, however small, would always be there before it.
        """
        if size < self._expected:
            return None
        if size <= self._budget:  # a giant's buffer is not kept for ordinary answers
            self._buffers = [one for one in self._buffers if one.users or len(one.data) <= self._budget]
        fitting = [one for one in self._buffers if one.users == 0 and len(one.data) >= size]
        found = min(fitting, key=lambda one: len(one.data), default=None)
        if found is None:
            wanted = self._rounded(size) if size <= self._budget else size
            self._make_room(wanted)
            if self._buffers and self.size + wanted > self._budget:
                self._expected = size if size > self._budget else 0
                return None
            found = Buffer(wanted)
            self._buffers.append(found)
        found.users, self._expected = 1, 0
        return found

    def expect_none(self) -> None:
        """Let others go on: whoever waited for a giant may have lost its connection, and asks again if not."""
        self._expected = 0

    def loose(self, size: int) -> Buffer | None:
        """Answer a stand-in, used once, for ``size`` bytes of memory of their own; None where there is too much already."""
        if self._loose + size > self._loose_budget:
            return None
        self._loose += size
        stand_in = Buffer(on_free=lambda: self._tied(size))
        stand_in.users = 1
        return stand_in

    def _tied(self, size: int) -> None:
        self._loose -= size

    def _rounded(self, size: int) -> int:
        return self._smallest if size <= self._smallest else -(-size // HUGE_PAGE) * HUGE_PAGE

    def _make_room(self, wanted: int) -> None:
        """Let go of free buffers, smallest first, until there is room for another size."""
        for one in sorted(self._buffers, key=lambda one: len(one.data)):
            if self.size + wanted <= self._budget:
                return
            if one.users == 0:
                self._buffers.remove(one)


def in_units(size: int) -> int:
    """Return how much memory an answer of this size takes."""
    return -(-size // AHEAD_UNIT) * AHEAD_UNIT


class AheadMemory:
    """The receive buffers for reading ahead, of one worker. The source brokers that are read ahead have equal shares.

    The sum never exceeds ``AHEAD_BUDGET + AHEAD_RESERVE``, also while shares become smaller: a share that uses more than its
    size gets nothing until it is below it (``AheadShare.exceeded``).
    """

    def __init__(
        self, *, budget: int = AHEAD_BUDGET, reserve: int = AHEAD_RESERVE, changed: Callable[[], None] = lambda: None
    ) -> None:
        """``changed`` is called when the memory begins to be used, and when it is not used any more."""
        self._budget, self._reserve, self._changed = budget, reserve, changed
        self._free: list[Buffer] = []  # each of ``AHEAD_UNIT`` bytes
        self._shares: list[AheadShare] = []
        self.used = 0

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return self.used + len(self._free) * AHEAD_UNIT

    @property
    def in_use(self) -> bool:
        """Whether any source broker is read ahead."""
        return bool(self._shares)

    def open(self) -> AheadShare | None:
        """Return a new share; None while there are as many as the memory is enough for."""
        if len(self._shares) >= MOST_SHARES:
            return None
        share = AheadShare(self)
        self._shares.append(share)
        if len(self._shares) == 1:
            self._changed()
        return share

    def close(self, share: AheadShare) -> None:
        """Divide the memory by one share less. Buffers in use stay valid."""
        self._shares.remove(share)
        if not self._shares:
            self._free.clear()
            self._changed()

    def limit(self, *, head: bool) -> int:
        """Return the size of one share, for ``head`` with the reserve."""
        return (self._budget + (self._reserve if head else 0)) // max(1, len(self._shares))

    def take(self, size: int, share: AheadShare, *, head: bool) -> Buffer | None:
        """Return a buffer, counted as used once; None while the share or the sum leaves no room for it."""
        wanted = in_units(size)
        most = self._budget + (self._reserve if head else 0)
        if share.used and share.used + wanted > self.limit(head=head):
            return None
        if self.used and self.used + wanted > most:
            return None
        if wanted == AHEAD_UNIT and self._free:
            buffer = self._free.pop()
        else:
            while self._free and self.size + wanted > self._budget + self._reserve:
                self._free.pop()
            buffer = Buffer(wanted)
        buffer.users, buffer.on_free = 1, lambda: self._returned(buffer, share)
        self.used += wanted
        share.used += wanted
        return buffer

    def _returned(self, buffer: Buffer, share: AheadShare) -> None:
        buffer.on_free = None
        self.used -= len(buffer.data)
        share.used -= len(buffer.data)
        if len(buffer.data) == AHEAD_UNIT and self._shares:
            self._free.append(buffer)


class AheadShare:
    """The part of the memory for reading ahead that one source broker may use."""

    __slots__ = ("_memory", "used")

    def __init__(self, memory: AheadMemory) -> None:
        self._memory = memory
        self.used = 0

    @property
    def limit(self) -> int:
        """How many bytes may be used now, without the reserve."""
        return self._memory.limit(head=False)

    def admits(self, size: int, *, promised: int, head: bool) -> bool:
        """Return whether an answer of this size will find memory behind ``promised`` bytes that were asked for before."""
        return self.used + promised + in_units(size) <= self._memory.limit(head=head)

    @property
    def exceeded(self) -> bool:
        """Whether more is used than may be: the memory was divided by more shares since."""
        return self.used > self._memory.limit(head=True)

    def take(self, size: int, *, head: bool) -> Buffer | None:
        """Return a buffer, counted as used once, or None; ``head``: for an answer that is planned next."""
        return self._memory.take(size, self, head=head)

    def close(self) -> None:
        """Return the share. Buffers in use stay valid."""
        self._memory.close(self)


def _memory(size: int) -> mmap.mmap:
    """Answer memory in huge pages, where the kernel has any. Unlike a bytearray it takes none where nothing was written yet."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

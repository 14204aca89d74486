"""Receive buffers that are reused: memory that the kernel has mapped once costs nothing the next time.

A buffer is free when the response in it has been read and planned and every slice of it was sent. All brokers of a link share
one pool, so that its memory is bounded whatever their number. The links of a worker divide the worker's memory evenly
(``share``), so that a link with a slow destination does not hold the buffers of the others. The contents of the buffers are not
interpreted.

| memory of a worker | limit | used for |
|---|---|---|
| pool | ``BUDGET``, divided by links | responses of fetch sessions |
| loose memory | ``LOOSE_BUDGET``, divided by links | merged batches, copies made for a slow destination |
| ahead memory | ``AHEAD_BUDGET`` + ``AHEAD_RESERVE``, divided by distant brokers | responses of extra connections |

While ahead memory is in use, pools and loose memory have lower limits. Memory beyond these that was in use when
reading ahead began is subtracted from the ahead memory until it is free (``BufferPool.trim``).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress

BUDGET = 40 << 20  # per worker; a larger response (messages up to 100 MB) gets a buffer if its link uses no other
LOOSE_BUDGET = 32 << 20  # for merged batches, and for copies that free the buffers a slow destination holds
BESIDE_AHEAD, LOOSE_BESIDE_AHEAD = 12 << 20, 8 << 20  # the same while ahead memory is in use
LEAST_BUDGET = 3 << 20  # per link, whatever their number: a response is written while another is read
AHEAD_BUDGET = 63 << 20  # per worker, for responses that were read ahead and wait until the preceding responses are planned
AHEAD_RESERVE = 8 << 20  # beyond it, for the responses that are planned next: without them nothing would become free
AHEAD_UNIT = 880 << 10
MOST_SHARES = 16  # of the ahead memory; each is large enough for some responses
SMALLEST = 1 << 20
HUGE_PAGE = 2 << 20  # size of the kernel's huge pages; larger buffers are multiples of it


class Buffer:
    """One receive buffer, and how many chunks point into it."""

    __slots__ = ("data", "on_free", "users")

    def __init__(self, size: int = 0, *, on_free: Callable[[], None] | None = None) -> None:
        self.data = _memory(size) if size else bytearray()
        self.users = 0
        self.on_free = on_free

    def view(self, size: int) -> memoryview:
        """Return the first ``size`` bytes."""
        return memoryview(self.data)[:size]

    def release(self) -> None:
        """Count a chunk less; a buffer without chunks is free."""
        self.users -= 1
        if self.users == 0 and self.on_free is not None:
            self.on_free()


class BufferPool:
    """The buffers of a link: a few suffice unless its destination is slow; ``budget`` bounds their bytes."""

    def __init__(self, *, budget: int = BUDGET, smallest: int = SMALLEST) -> None:
        self._budget, self._smallest = budget, smallest
        self._loose_budget = LOOSE_BUDGET
        self._buffers: list[Buffer] = []
        self._loose = 0
        self._expected = 0  # size of an oversized response that waits until no buffer is in use; 0: none waits

    def share(self, links: int, *, beside_ahead: bool = False) -> None:
        """Limit the pool to its part of the worker's memory, which ``links`` pools divide.

        Buffers in use beyond the new limit stay valid. ``beside_ahead``: some source broker is read ahead, which takes
        memory as well.
        """
        budget, loose = (BESIDE_AHEAD, LOOSE_BESIDE_AHEAD) if beside_ahead else (BUDGET, LOOSE_BUDGET)
        self._budget = max(LEAST_BUDGET, budget // max(1, links))
        self._loose_budget = max(LEAST_BUDGET, loose // max(1, links))
        self._drop_free(0)

    @property
    def size(self) -> int:
        """Bytes of all buffers."""
        return sum(len(buffer.data) for buffer in self._buffers)

    def trim(self) -> int:
        """Drop free buffers beyond the limit; return the bytes that are still used beyond it.

        They were taken before the limits were lowered, or by an oversized response.
        """
        self._drop_free(0)
        return max(0, self.size - self._budget) + max(0, self._loose - self._loose_budget)

    def take(self, size: int) -> Buffer | None:
        """Return a buffer for ``size`` bytes, counted as used once; None if those in use leave no memory for it.

        An oversized response that was refused comes next: until then all smaller requests are refused, since they would
        always find memory first.
        """
        if size < self._expected:
            return None
        if size <= self._budget:  # the buffer of an oversized response is not kept for ordinary responses
            self._buffers = [buffer for buffer in self._buffers if buffer.users or len(buffer.data) <= self._budget]
            self._drop_free(0)
        fitting = [buffer for buffer in self._buffers if buffer.users == 0 and len(buffer.data) >= size]
        found = min(fitting, key=lambda buffer: len(buffer.data), default=None)
        if found is None:
            wanted = self._rounded(size) if size <= self._budget else size
            self._drop_free(wanted)
            if self._buffers and self.size + wanted > self._budget:
                self._expected = size if size > self._budget else 0
                return None
            found = Buffer(wanted)
            self._buffers.append(found)
        found.users, self._expected = 1, 0
        return found

    def expect_none(self) -> None:
        """Stop reserving the pool for an oversized response, whose connection may be lost; ``take`` reserves it again."""
        self._expected = 0

    def loose(self, size: int) -> Buffer | None:
        """Return a placeholder, used once, for ``size`` bytes outside the pool; None if that exceeds the limit."""
        if self._loose + size > self._loose_budget:
            return None
        self._loose += size
        stand_in = Buffer(on_free=lambda: self._loose_freed(size))
        stand_in.users = 1
        return stand_in

    def _loose_freed(self, size: int) -> None:
        self._loose -= size

    def _rounded(self, size: int) -> int:
        return self._smallest if size <= self._smallest else -(-size // HUGE_PAGE) * HUGE_PAGE

    def _drop_free(self, wanted: int) -> None:
        """Drop free buffers, smallest first, until ``wanted`` more bytes fit."""
        for buffer in sorted(self._buffers, key=lambda buffer: len(buffer.data)):
            if self.size + wanted <= self._budget:
                return
            if buffer.users == 0:
                self._buffers.remove(buffer)


def in_units(size: int) -> int:
    """Return how much memory a response of this size takes: a multiple of AHEAD_UNIT."""
    return -(-size // AHEAD_UNIT) * AHEAD_UNIT


class AheadMemory:
    """The receive buffers of a worker for reading ahead. The source brokers that are read ahead have equal shares.

    The sum never exceeds ``AHEAD_BUDGET + AHEAD_RESERVE``, also when shares become smaller: a share that uses more than
    its limit gets nothing until it is below it (``AheadShare.exceeded``).
    """

    def __init__(
        self,
        *,
        budget: int = AHEAD_BUDGET,
        reserve: int = AHEAD_RESERVE,
        changed: Callable[[], None] = lambda: None,
        excess: Callable[[], int] = lambda: 0,
    ) -> None:
        """Create the memory without shares.

        ``changed`` is called when the first is opened and the last is closed; ``excess`` returns the bytes that the pools of
        the worker hold beyond their limits, by which the ahead memory is smaller.
        """
        self._budget, self._reserve, self._changed, self._excess = budget, reserve, changed, excess
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
        """Return a new share; None if there are already as many as the memory suffices for."""
        if len(self._shares) >= MOST_SHARES:
            return None
        share = AheadShare(self)
        self._shares.append(share)
        if len(self._shares) == 1:
            self._changed()
        return share

    def close(self, share: AheadShare) -> None:
        """Remove a share and divide the memory by the others. Buffers in use stay valid."""
        self._shares.remove(share)
        if not self._shares:
            self._free.clear()
            self._changed()

    def limit(self, *, head: bool) -> int:
        """Return the limit of each share in bytes; ``head``: including the reserve."""
        return (self._budget + (self._reserve if head else 0)) // max(1, len(self._shares))

    def take(self, size: int, share: AheadShare, *, head: bool) -> Buffer | None:
        """Return a buffer, counted as used once; None if the share or the sum leaves no memory for it."""
        wanted = in_units(size)
        most = self._budget + (self._reserve if head else 0)
        if share.used and share.used + wanted > self.limit(head=head):
            return None
        excess = self._excess()
        if self.used and self.used + wanted > most - excess:
            return None
        if wanted == AHEAD_UNIT and self._free:
            buffer = self._free.pop()
        else:
            while self._free and self.size + wanted > self._budget + self._reserve - excess:
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
    """The part of the ahead memory that a source broker may use."""

    __slots__ = ("_memory", "used")

    def __init__(self, memory: AheadMemory) -> None:
        self._memory = memory
        self.used = 0

    @property
    def limit(self) -> int:
        """Bytes that may be used now, without the reserve."""
        return self._memory.limit(head=False)

    def admits(self, size: int, *, promised: int, head: bool) -> bool:
        """Return whether a response of this size will find memory after ``promised`` bytes of earlier requests."""
        return self.used + promised + in_units(size) <= self._memory.limit(head=head)

    @property
    def exceeded(self) -> bool:
        """Whether more is used than allowed: the memory has been divided by more shares since."""
        return self.used > self._memory.limit(head=True)

    def take(self, size: int, *, head: bool) -> Buffer | None:
        """Return a buffer, counted as used once, or None; ``head``: for a response that is planned next."""
        return self._memory.take(size, self, head=head)

    def close(self) -> None:
        """Return the share to the worker. Buffers in use stay valid."""
        self._memory.close(self)


def _memory(size: int) -> mmap.mmap:
    """Return memory in huge pages if the kernel has any. Unlike a bytearray, unwritten pages take no memory."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory

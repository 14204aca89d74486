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
LEAST_BUDGET = 3 << 20  # of one link, however many there are: one answer that is written while another one is read
SMALLEST = 1 << 20
HUGE_PAGE = 2 << 20  # of the kernel; larger buffers are multiples of it


class Buffer:
    """One receive buffer and how many chunks still point into it."""

    __slots__ = ("_on_free", "data", "users")

    def __init__(self, size: int = 0, *, on_free: Callable[[], None] | None = None) -> None:
        self.data = _memory(size) if size else bytearray()
        self.users = 0
        self._on_free = on_free

    def view(self, size: int) -> memoryview:
        """Answer the first ``size`` bytes."""
        return memoryview(self.data)[:size]

    def release(self) -> None:
        """One chunk less points here."""
        self.users -= 1
        if self.users == 0 and self._on_free is not None:
            self._on_free()


class BufferPool:
    """The buffers of one link: a few are enough unless a destination is slow, ``budget`` bounds their bytes."""

    def __init__(self, *, budget: int = BUDGET) -> None:
        self._budget = budget
        self._loose_budget = LOOSE_BUDGET
        self._buffers: list[Buffer] = []
        self._loose = 0
        self._expected = 0  # bytes of a giant that waits until no buffer is in use

    def share(self, links: int) -> None:
        """Be one of so many; what is in use beyond the share is not taken again."""
        self._budget = max(LEAST_BUDGET, BUDGET // max(1, links))
        self._loose_budget = max(LEAST_BUDGET, LOOSE_BUDGET // max(1, links))

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
            wanted = _rounded(size) if size <= self._budget else size
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

    def _make_room(self, wanted: int) -> None:
        """Let go of free buffers, smallest first, until there is room for another size."""
        for one in sorted(self._buffers, key=lambda one: len(one.data)):
            if self.size + wanted <= self._budget:
                return
            if one.users == 0:
                self._buffers.remove(one)


def _memory(size: int) -> mmap.mmap:
    """Answer memory in huge pages, where the kernel has any. Unlike a bytearray it takes none where nothing was written yet."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _rounded(size: int) -> int:
    return SMALLEST if size <= SMALLEST else -(-size // HUGE_PAGE) * HUGE_PAGE

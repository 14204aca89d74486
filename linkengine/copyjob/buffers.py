"""Receive buffers that are used again and again: a page the kernel has mapped once costs nothing the next time.

A buffer is free when the answer in it has been read, planned and every slice of it sent. Must not know what is in them.
"""

from __future__ import annotations

from collections.abc import Callable

GROWTH = 1 << 20  # sizes are rounded up to this, so that slightly larger answers do not mean a new buffer


class Buffer:
    """One receive buffer and how many chunks still point into it."""

    __slots__ = ("data", "users")

    def __init__(self) -> None:
        self.data = bytearray()
        self.users = 0

    def view(self, size: int) -> memoryview:
        """Answer the first ``size`` bytes, in a larger buffer if need be."""
        if size > len(self.data):
            self.data = bytearray(-(-size // GROWTH) * GROWTH)
        return memoryview(self.data)[:size]

    def release(self) -> None:
        """One chunk less points here."""
        self.users -= 1


class BufferPool:
    """The buffers of one source broker: two are enough unless a destination is slow, ``most`` bounds the memory."""

    def __init__(self, *, most: int, on_starved: Callable[[], None] | None = None) -> None:
        self._most = most
        self._buffers: list[Buffer] = []
        self._on_starved = on_starved

    def take(self) -> Buffer | None:
        """Answer a free buffer, counted as used once; None when all are in use."""
        for buffer in self._buffers:
            if buffer.users == 0:
                buffer.users = 1
                return buffer
        if len(self._buffers) >= self._most:
            return None
        buffer = Buffer()
        buffer.users = 1
        self._buffers.append(buffer)
        return buffer

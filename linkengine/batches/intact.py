"""Finds the undamaged batches at the beginning of an answer. Costs a checksum of every byte: asked only of suspected ones."""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.neighbours import check_next
from linkengine.batches.view import BatchView, CorruptBatchError, check_crc, iter_batches


def intact_part(buffer: memoryview, *, next_offset: int) -> memoryview:
    """Answer what lies before the first damaged batch; raise CorruptBatchError where nothing there is needed any more."""
    end, needed = 0, False
    try:
        for start, view in _whole(buffer):
            end = start + view.size
            needed |= view.next_offset > next_offset
    except CorruptBatchError:
        if not needed:
            raise
    return buffer[:end]


def _whole(buffer: memoryview) -> Iterator[tuple[int, BatchView]]:
    for start, view in iter_batches(buffer):
        check_crc(view, buffer[start : start + view.size])
        check_next(buffer, start + view.size, view)
        yield start, view

"""Find the undamaged batches at the start of a response. Computes a checksum over every byte, so only used on suspicion."""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.neighbours import check_next
from linkengine.batches.view import BatchView, CorruptBatchError, check_crc, iter_batches


def intact_part(buffer: memoryview, *, next_offset: int) -> memoryview:
    """Return the part before the first damaged batch; raise CorruptBatchError if it holds no needed offset."""
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

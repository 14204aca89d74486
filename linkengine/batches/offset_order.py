"""Check whether a batch at an unexpected offset really has that offset, by the batch and by what follows it. Pure functions.

The base offset of a batch is outside its checksum. A bit that flips in it, on disk or on the network, moves all its records,
or opens a gap where they were, and every other check passes. The order of the log reveals it: batches ascend without overlap.

| the batch was moved | it contradicts |
|---------------------|----------------|
| up                  | the next batch, which begins before it ends, or the high end of its own response |
| down                | the batch before it, which ends after it begins |

If nothing follows in the response, this cannot be decided, and the batch is read again (``UnconfirmedBatchError``).

A batch that begins where the previous batch ended needs no check, except for the first batch of a response: a fetch from within
a batch returns the batch from its beginning, and a batch that was moved up may claim exactly the requested offset.

``intact_part`` finds the undamaged batches at the start of a response. It computes a checksum over every byte, so it is called
only after damage was found.
"""

from __future__ import annotations

from collections.abc import Iterator

from linkengine.batches.view import BatchView, CorruptBatchError, base_offset_at, check_crc, iter_batches

NOT_SEEN = -1


class UnconfirmedBatchError(Exception):
    """A response begins with an unexpected batch that nothing in it confirms, or contradicts itself: read it again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self.base_offset = base_offset


def check_next(buffer: memoryview, after: int, view: BatchView) -> int | None:
    """Return the base offset of the next batch, whole or cut off, None at the end; raise if the two batches overlap."""
    following = base_offset_at(buffer, after)
    if following is not None and following < view.next_offset:
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} ends at {view.next_offset}, and the next begins at {following}: "
            "one of the two claims an offset that is not its own."
        )
    return following


class OrderCheck:
    """Checks the first batch of a response, and batches that do not begin at the planner's cursor."""

    __slots__ = ("_buffer", "_first", "_high_end", "_seen")

    def __init__(self, buffer: memoryview, *, first: int, high_end: int, seen: int | None) -> None:
        self._buffer, self._first, self._high_end, self._seen = buffer, first, high_end, seen

    def admits(self, start: int, view: BatchView, *, cursor: int) -> bool:
        """Return whether the batch at ``start`` may be planned; if False, the next response has to begin with it.

        Raises CorruptBatchError if it contradicts its neighbours, UnconfirmedBatchError if the response begins with it.
        """
        begun = cursor > self._first
        if begun and view.base_offset < cursor:
            raise CorruptBatchError(f"A record batch claims offset {view.base_offset}; the one before it ends at {cursor}.")
        following = check_next(self._buffer, start + view.size, view)
        if (
            view.base_offset == cursor
            or self._seen is None
            or cursor >= self._high_end
            or self._confirmed(view, following, cursor=cursor)
        ):
            return True
        if not begun:
            self._check_repeated(view)
        return not begun

    def _confirmed(self, view: BatchView, following: int | None, *, cursor: int) -> bool:
        if following is None:
            return view.next_offset == self._high_end
        if view.base_offset < cursor:  # its end shows whether its offset is right
            return following == view.next_offset
        return view.next_offset <= self._high_end

    def _check_repeated(self, view: BatchView) -> None:
        """Accept a batch that began a response twice with the same offset, if it ends within the stable part of the log."""
        if view.base_offset != self._seen:
            raise UnconfirmedBatchError(view.base_offset)
        if view.next_offset > self._high_end:
            raise CorruptBatchError(
                f"A record batch claims the offsets {view.base_offset} to {view.next_offset - 1}, but its partition has stable "
                f"offsets below {self._high_end} only."
            )


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

"""Whether a batch that is not where it was expected lies where it says. Pure; looks at the batch and at what follows it.

The base offset is outside a batch's checksum: one bit that flips on a disk or on the way moves all its records, or makes a
hole where they were, and every other check is content. What follows tells. In a log batches ascend without overlapping, so
a batch that was moved up runs into the next one, or beyond the end that its own answer names; one that was moved down
begins before the one in front of it ends. Where nothing follows in the answer, nothing can be told: it is read again.

A batch that begins where the one before it ended needs no look. The first one of an answer does: who asks from within a batch
gets it from its beginning, and moved up it may claim just the offset that was asked for.
"""

from __future__ import annotations

from linkengine.batches.view import BatchView, CorruptBatchError, base_offset_at

NOT_SEEN = -1


class DoubtfulBatchError(Exception):
    """An answer begins with a batch out of place, and nothing in it confirms that: read it again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(base_offset)
        self.base_offset = base_offset


def check_next(buffer: memoryview, after: int, view: BatchView) -> int | None:
    """Answer where the batch behind one claims to begin, whole or cut off, None at the end; raise where they overlap."""
    following = base_offset_at(buffer, after)
    if following is not None and following < view.next_offset:
        raise CorruptBatchError(
            f"The record batch at offset {view.base_offset} ends at {view.next_offset}, and the next begins at {following}: "
            "one of both claims an offset that is not its own."
        )
    return following


class Neighbourhood:
    """Judges the first batch of an answer, and those that do not begin where the plan has come to."""

    __slots__ = ("_buffer", "_first", "_high_end", "_seen")

    def __init__(self, buffer: memoryview, *, first: int, high_end: int, seen: int | None) -> None:
        self._buffer, self._first, self._high_end, self._seen = buffer, first, high_end, seen

    def admits(self, start: int, view: BatchView, *, cursor: int) -> bool:
        """Tell whether the batch at ``start`` may be planned; False: not from this answer, the next one begins with it.

        Raises CorruptBatchError where it contradicts its neighbours, DoubtfulBatchError where the answer begins with it.
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
            self._judge_again(view)
        return not begun

    def _confirmed(self, view: BatchView, following: int | None, *, cursor: int) -> bool:
        if following is None:
            return view.next_offset == self._high_end
        if view.base_offset < cursor:  # its place is told by its end
            return following == view.next_offset
        return view.next_offset <= self._high_end

    def _judge_again(self, view: BatchView) -> None:
        """Believe a batch at the beginning of an answer that was there before, if it ends within what is stable."""
        if view.base_offset != self._seen:
            raise DoubtfulBatchError(view.base_offset)
        if view.next_offset > self._high_end:
            raise CorruptBatchError(
                f"A record batch claims the offsets {view.base_offset} to {view.next_offset - 1}, and its partition has stable "
                f"ones below {self._high_end} only."
            )

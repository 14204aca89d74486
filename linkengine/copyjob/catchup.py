"""Tells until when a mirror holds everything its source had: the age of a lag, measured and not guessed. No I/O.

Theory of operation. Each look at the source says "at this time it ended there". Once the mirror has reached that end, it holds
all the source had at that time, whatever the source has got since. So under steady load the answer keeps up with the clock
although the mirror never stands exactly at the source's end, and while nobody sees the source it stands still.

The end is the high watermark. Behind an open transaction nothing can be copied, of other producers' records neither; they are
acknowledged, and a failover would leave them behind. So meanwhile the answer stands still, too.
"""

from __future__ import annotations

from collections import deque

MOST_LOOKS = 256  # kept; above, the newest one is renewed in place, which only makes the answer older


class CatchUp:
    """The looks at the source that the mirror has not reached yet, oldest first."""

    __slots__ = ("_looks", "at_ms")

    def __init__(self) -> None:
        self.at_ms: int | None = None  # the mirror holds everything the source had then; None: not seen yet
        self._looks: deque[tuple[int, int]] = deque()  # (source end, seen at)

    def source_seen(self, end: int, *, at_ms: int) -> None:
        """Take in one look at the source's end; a log that became shorter makes older looks worthless."""
        while self._looks and self._looks[-1][0] >= end:
            self._looks.pop()
        if len(self._looks) >= MOST_LOOKS:
            self._looks.pop()
        self._looks.append((end, at_ms))

    def mirror_at(self, end: int) -> None:
        """Take in where the mirror ends."""
        while self._looks and self._looks[0][0] <= end:
            self.at_ms = self._looks.popleft()[1]

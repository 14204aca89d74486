"""Measures up to which time a mirror has everything its source had: the age of its lag (RPO). No I/O.

Each response of the source yields a sample: "at this time the source ended at this offset". Once the mirror has reached
that offset, it holds all that the source had at that time, whatever was produced since. So under steady load the measured
time follows the clock although the mirror never ends exactly where the source does; while the source cannot be read, it
stands still.

The end in a sample is the high watermark, not the last stable offset. Nothing behind an open transaction can be copied,
not even records of other producers; they are acknowledged, and a failover would lose them. So the measured time also
stands still while a transaction is open.
"""

from __future__ import annotations

from collections import deque

MOST_SAMPLES = 256  # samples kept; beyond that the newest is replaced, which only makes the measured time older


class CatchUp:
    """Samples of the source's end that the mirror has not reached yet, oldest first."""

    __slots__ = ("_samples", "at_ms")

    def __init__(self) -> None:
        self.at_ms: int | None = None  # the mirror holds everything the source had at this time; None: not measured yet
        self._samples: deque[tuple[int, int]] = deque()  # (source end, time in ms)

    def source_seen(self, end: int, *, at_ms: int) -> None:
        """Add a sample; older samples with the same or a higher end are dropped (a log can become shorter)."""
        while self._samples and self._samples[-1][0] >= end:
            self._samples.pop()
        if len(self._samples) >= MOST_SAMPLES:
            self._samples.pop()
        self._samples.append((end, at_ms))

    def mirror_at(self, end: int) -> None:
        """Note the mirror's end and consume the samples that it has reached."""
        while self._samples and self._samples[0][0] <= end:
            self.at_ms = self._samples.popleft()[1]

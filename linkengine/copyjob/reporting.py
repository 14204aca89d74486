"""When which partitions are reported: a change of phase at once, everything else in turn. No I/O.

A few partitions at a time: to describe a thousand takes tens of milliseconds, in which nothing would be copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import ceil

from linkengine.copyjob.observing import phase_of
from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.plans import PartitionPhase

TOGETHER = 64
EACH_S, MOST_S = 0.004, 2.0  # per partition, between two reports of the same one: hundreds do not report twice a second


class Turns:
    """Whose turn it is to be reported; times are monotonic seconds."""

    def __init__(self, partitions: Iterable[MirrorPartition], *, every_s: float) -> None:
        """Begin with all of them. ``every_s``: how often each of a few partitions is reported."""
        self._row = deque(partitions)
        self._phases: dict[str, PartitionPhase] = {}
        self._runs = ceil(len(self._row) / TOGETHER)
        self._pause_s = max(every_s, min(MOST_S, EACH_S * len(self._row))) / max(1, self._runs)
        self._due_at = 0.0

    def changed(self) -> list[MirrorPartition]:
        """Answer whose phase is another one than it was at the last call."""
        phases = {one.key: phase_of(one) for one in self._row}
        before, self._phases = self._phases, phases
        return [one for one in self._row if before.get(one.key) is not phases[one.key]]

    def due(self, now: float) -> list[MirrorPartition]:
        """Answer those whose turn it is, none if it is nobody's yet."""
        if now < self._due_at or not self._row:
            return []
        self._due_at = now + self._pause_s
        some = [self._row.popleft() for _ in range(ceil(len(self._row) / self._runs))]
        self._row.extend(some)
        return some

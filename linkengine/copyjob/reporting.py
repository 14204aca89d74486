"""When which partitions are reported: a change of phase at once, everything else in turn. No I/O.

A few partitions at a time: to describe a thousand takes tens of milliseconds, in which nothing would be copied.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from linkengine.copyjob.observing import phase_of
from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.plans import PartitionPhase

TOGETHER = 64
EACH_S, MOST_S = 0.004, 2.0  # per partition, between two reports of the same one: hundreds do not report twice a second


class Turns:
    """Whose turn it is to be reported; times are monotonic seconds."""

    def __init__(self, *, every_s: float) -> None:
        """Begin with none. ``every_s``: how often each of a few partitions is reported."""
        self._row: deque[MirrorPartition] = deque()
        self._phases: dict[MirrorPartition, PartitionPhase] = {}
        self._every_s, self._due_at = every_s, 0.0

    def add(self, partition: MirrorPartition) -> None:
        """Report a partition from now on, it first."""
        self._row.appendleft(partition)

    def drop(self, partition: MirrorPartition) -> None:
        """Report a partition no more."""
        self._row.remove(partition)
        self._phases.pop(partition, None)

    def changed(self) -> list[MirrorPartition]:
        """Answer whose phase is another one than it was at the last call."""
        found = []
        for partition in self._row:
            phase = phase_of(partition)
            if self._phases.get(partition) is not phase:
                self._phases[partition] = phase
                found.append(partition)
        return found

    def due(self, now: float) -> list[MirrorPartition]:
        """Answer those whose turn it is, none if it is nobody's yet."""
        if now < self._due_at or not self._row:
            return []
        runs = ceil(len(self._row) / TOGETHER)
        self._due_at = now + max(self._every_s, min(MOST_S, EACH_S * len(self._row))) / runs
        some = [self._row.popleft() for _ in range(ceil(len(self._row) / runs))]
        self._row.extend(some)
        return some

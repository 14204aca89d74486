"""Decides which partitions are reported when: a change of phase immediately, everything else round-robin. No I/O.

Only a few partitions at a time, because describing a thousand takes tens of milliseconds of the copy loop.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from linkengine.copyjob.observing import phase_of
from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.plans import PartitionPhase

TOGETHER = 64  # partitions per report at most, about
EACH_S, MOST_S = 0.004, 2.0  # interval of a partition's reports: so much per partition, at most so much


class Turns:
    """The round-robin order of partitions to report; times are monotonic seconds."""

    def __init__(self, *, every_s: float) -> None:
        """Start without partitions. ``every_s``: the interval of a partition's reports while there are few partitions."""
        self._queue: deque[MirrorPartition] = deque()
        self._phases: dict[MirrorPartition, PartitionPhase] = {}
        self._every_s, self._due_at = every_s, 0.0

    def add(self, partition: MirrorPartition) -> None:
        """Add a partition, to be reported first."""
        self._queue.appendleft(partition)

    def drop(self, partition: MirrorPartition) -> None:
        """Remove a partition."""
        self._queue.remove(partition)
        self._phases.pop(partition, None)

    def changed(self) -> list[MirrorPartition]:
        """Return the partitions whose phase has changed since the last call."""
        found = []
        for partition in self._queue:
            phase = phase_of(partition)
            if self._phases.get(partition) is not phase:
                self._phases[partition] = phase
                found.append(partition)
        return found

    def due(self, now: float) -> list[MirrorPartition]:
        """Return the partitions to report now; empty until the next report is due."""
        if now < self._due_at or not self._queue:
            return []
        runs = ceil(len(self._queue) / TOGETHER)
        self._due_at = now + max(self._every_s, min(MOST_S, EACH_S * len(self._queue))) / runs
        partitions = [self._queue.popleft() for _ in range(ceil(len(self._queue) / runs))]
        self._queue.extend(partitions)
        return partitions

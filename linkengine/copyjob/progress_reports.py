"""What is reported of a partition (its phase and its progress), and when. No I/O.

A change of phase is reported immediately, everything else round-robin. Only a few partitions at a time, because describing a
thousand takes tens of milliseconds of the copy loop.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from linkengine.copyjob.partition_counters import RECENT_MS
from linkengine.copyjob.partition_state import MirrorPartition
from linkengine.copyjob.values import Stage, Trouble
from linkengine.domain.plans import PartitionPhase, PartitionProgress

TOGETHER = 64  # partitions per report at most, about
EACH_S, MOST_S = 0.004, 2.0  # interval of a partition's reports: so much per partition, at most so much


def phase_of(one: MirrorPartition) -> PartitionPhase:
    """Name this moment."""
    trouble = _trouble(one)
    if one.failure:
        return PartitionPhase.FAILED
    if one.stage is Stage.ENDED:
        return PartitionPhase.RELEASED
    if one.stage is Stage.WAITING:
        return PartitionPhase.WAITING
    if trouble:
        return trouble.phase
    # a hold that begins says nothing yet: the trouble that ended the last one may still be there
    return PartitionPhase.COPYING if one.counters.moving else PartitionPhase.WAITING


def progress_of(one: MirrorPartition, *, now_ms: int, gaps_of_ms: int | None = RECENT_MS) -> PartitionProgress:
    """Answer the observation of this moment, with the gaps of so many ms, or all that are remembered (None)."""
    counters, trouble, proven = one.counters, _trouble(one), one.unchecked_tail is None
    counters.measure(now_ms)
    in_sight = one.source_trouble is None and proven  # else it has moved on unseen: the lag is unknown
    return PartitionProgress(
        key=one.key,
        hold_id=one.hold_id,
        phase=phase_of(one),
        observed_at_ms=now_ms,
        generation=0 if one.grant is None else one.grant.generation,
        source_start=counters.source_start,
        source_end=counters.source_end if in_sight else None,
        source_high_watermark=counters.source_high_watermark if in_sight else None,
        source_seen_at_ms=counters.source_seen_ms if in_sight else None,
        mirror_start=counters.mirror_start,
        mirror_end=counters.mirror_end if proven else None,
        unproven_end=None if proven else counters.mirror_end,
        set_back_to=counters.set_back_to,
        set_backs=counters.set_backs,
        last_fetch_offset=None if one.position is None or one.position == 0 else one.position - 1,
        source_epoch=one.read_position.epoch_of(one.origin),
        last_timestamp_ms=counters.last_timestamp_ms,
        caught_up_at_ms=counters.caught_up_at_ms,
        bytes_copied=counters.bytes_copied,
        records_copied=counters.records_copied,
        bytes_per_s=counters.bytes_per_s,
        records_per_s=counters.records_per_s,
        error_code=trouble.code if trouble else "",
        error_message=trouble.message if trouble else "",
        source_kept=trouble.source_kept if trouble else None,
        failed_at_ms=trouble.at_ms if trouble else None,
        gaps=counters.gaps(since_ms=0 if gaps_of_ms is None else now_ms - gaps_of_ms),
        topic_ids=one.assignment.topic_ids,
        since_ms=one.assignment.since_ms,
    )


def _trouble(one: MirrorPartition) -> Trouble | None:
    if one.stage is Stage.ENDED and not one.failure:
        return one.release_trouble
    return one.failure or one.source_trouble or one.mirror_trouble


class ReportSchedule:
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

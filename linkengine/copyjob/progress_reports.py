"""Progress reports of partitions (phase and progress), and their schedule. No I/O.

A change of phase is reported immediately, everything else round-robin. Only a few partitions at a time, because describing a
thousand takes tens of milliseconds of the copy loop.
"""

from __future__ import annotations

from collections import deque
from math import ceil

from linkengine.copyjob.partition_counters import RECENT_MS
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import Stage, Trouble
from linkengine.domain.plans import PartitionPhase, PartitionProgress

TOGETHER = 64  # partitions per run at most, about
MOST_RUNS = 4  # together, if the loop does not turn once per run
EACH_S, MOST_S = 0.004, 2.0  # interval of a partition's reports: so much per partition, at most so much


def phase_of(partition: PartitionState) -> PartitionPhase:
    """Return the partition's phase at this moment."""
    trouble = _trouble(partition)
    if partition.failure:
        return PartitionPhase.FAILED
    if partition.stage is Stage.ENDED:
        return PartitionPhase.RELEASED
    if partition.stage is Stage.WAITING:
        return PartitionPhase.WAITING
    if trouble:
        return trouble.phase
    # a new copy run has no result yet: the error that ended the previous run may persist
    return PartitionPhase.COPYING if partition.counters.has_progress else PartitionPhase.WAITING


def progress_of(partition: PartitionState, *, now_ms: int, gaps_of_ms: int | None = RECENT_MS) -> PartitionProgress:
    """Return the observation of this moment, with gaps filled in the last ``gaps_of_ms`` (None: all that are remembered)."""
    counters, trouble, checked = partition.counters, _trouble(partition), partition.unchecked_tail is None
    counters.measure(now_ms)
    source_known = partition.source_trouble is None and checked  # else its end may have moved since: the lag is unknown
    return PartitionProgress(
        key=partition.key,
        copy_run_id=partition.copy_run_id,
        phase=phase_of(partition),
        observed_at_ms=now_ms,
        generation=0 if partition.grant is None else partition.grant.generation,
        source_start=counters.source_start,
        source_end=counters.source_end if source_known else None,
        source_high_watermark=counters.source_high_watermark if source_known else None,
        source_seen_at_ms=counters.source_seen_ms if source_known else None,
        mirror_start=counters.mirror_start,
        mirror_end=counters.mirror_end if checked else None,
        unproven_end=None if checked else counters.mirror_end,
        set_back_to=counters.set_back_to,
        set_backs=counters.set_backs,
        last_fetch_offset=None if partition.position is None or partition.position == 0 else partition.position - 1,
        source_epoch=partition.read_position.epoch_of(partition.origin),
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
        topic_ids=partition.assignment.topic_ids,
        since_ms=partition.assignment.since_ms,
    )


def _trouble(partition: PartitionState) -> Trouble | None:
    if partition.stage is Stage.ENDED and not partition.failure:
        return partition.release_trouble
    return partition.failure or partition.source_trouble or partition.mirror_trouble


class ReportSchedule:
    """The round-robin order of partitions to report; times are monotonic seconds."""

    def __init__(self, *, every_s: float, stagger: float = 0.0) -> None:
        """Start without partitions. ``every_s``: the interval of a partition's reports while there are few partitions.

        ``stagger``: share of the first interval to leave out, so that links that begin together do not report together.
        """
        self._queue: deque[PartitionState] = deque()
        self._phases: dict[PartitionState, PartitionPhase] = {}
        self._every_s, self._due_at, self._stagger = every_s, 0.0, stagger

    def add(self, partition: PartitionState) -> None:
        """Add a partition, to be reported first."""
        self._queue.appendleft(partition)

    def drop(self, partition: PartitionState) -> None:
        """Remove a partition."""
        self._queue.remove(partition)
        self._phases.pop(partition, None)

    def changed(self) -> list[PartitionState]:
        """Return the partitions whose phase has changed since the last call."""
        found = []
        for partition in self._queue:
            phase = phase_of(partition)
            if self._phases.get(partition) is not phase:
                self._phases[partition] = phase
                found.append(partition)
        return found

    def due(self, now: float) -> list[PartitionState]:
        """Return the partitions to report now; empty until the next run is due. Runs that are late are made up for.

        Otherwise a worker of ten thousand partitions would report each so rarely that no report could be renewed.
        """
        if now < self._due_at or not self._queue:
            return []
        runs = ceil(len(self._queue) / TOGETHER)
        interval_s = max(self._every_s, min(MOST_S, EACH_S * len(self._queue))) / runs
        late = int((now - self._due_at) / interval_s) if self._due_at else 0
        due = min(1 + late, runs, MOST_RUNS)
        self._due_at = max(self._due_at + due * interval_s, now) if self._due_at else now + interval_s * (1.0 - self._stagger)
        partitions = [self._queue.popleft() for _ in range(min(len(self._queue), ceil(len(self._queue) / runs) * due))]
        self._queue.extend(partitions)
        return partitions

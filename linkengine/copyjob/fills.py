"""Compact record of the offsets of a partition that were filled since its lease was granted. No I/O.

Up to EXACT_RUNS runs of a reason are exact: each fill is a run of its own or extends its neighbour. A topic with
transactions has thousands of gaps per minute, so from then on a run covers all fills of RUN_MS and counts them. A run only
grows and keeps its start, so a receiver of several reports keeps the longest. Lost offsets always stay exact.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from linkengine.domain.ranges import EXACT_REASONS, Gap, OffsetRange
from linkengine.domain.states import GapReason

EXACT_RUNS = 16
RUN_MS = 10_000


class FillRuns:
    """Runs by reason, oldest first, each with the times of its first and last fill."""

    __slots__ = ("_begun", "_lost_open", "_runs")

    def __init__(self) -> None:
        self._runs: dict[GapReason, list[tuple[Gap, int, int]]] = defaultdict(list)
        self._begun: Counter[GapReason] = Counter()  # number of runs so far, dropped ones included
        self._lost_open = False  # the record after the newest loss is not known yet

    def add(self, start: int, end: int, reason: GapReason, *, now_ms: int, before_ms: int | None) -> None:
        """Add a fill; ``before_ms`` is the timestamp of the record before it, if known."""
        runs = self._runs[reason]
        added = Gap(OffsetRange(start, end), reason, before_ms=_known(before_ms) if reason is GapReason.LOST else None)
        if runs and self._joins(runs, added, now_ms):
            run, first_ms, _ = runs[-1]
            runs[-1] = (run.joined(added), first_ms, now_ms)
        else:
            runs.append((added, now_ms, now_ms))
            self._begun[reason] += 1
        self._lost_open |= reason is GapReason.LOST

    def record_followed(self, timestamp_ms: int) -> None:
        """Note the timestamp of the first record after a loss."""
        runs = self._runs[GapReason.LOST]
        for at, (run, first_ms, last_ms) in enumerate(runs):
            if run.after_ms is None:
                runs[at] = (replace(run, after_ms=_known(timestamp_ms)), first_ms, last_ms)
        self._lost_open = False

    @property
    def awaits_record(self) -> bool:
        """Whether the record after the newest loss is still to come."""
        return self._lost_open

    def since(self, since_ms: int) -> tuple[Gap, ...]:
        """Return, by offset, the runs that have grown since ``since_ms``, and all losses."""
        found = [
            run
            for reason, runs in self._runs.items()
            for run, _, last_ms in runs
            if last_ms >= since_ms or reason is GapReason.LOST
        ]
        return tuple(sorted(found, key=lambda gap: gap.range))

    def forget(self, before_ms: int) -> None:
        """Drop runs that have not grown since ``before_ms`` and were reported; the newest of a reason may still grow."""
        for reason, runs in self._runs.items():
            older = runs[:-1]
            self._runs[reason] = [
                run for run in older if run[2] >= before_ms or (reason is GapReason.LOST and run[0].after_ms is None)
            ] + runs[-1:]

    def _joins(self, runs: list[tuple[Gap, int, int]], added: Gap, now_ms: int) -> bool:
        run, first_ms, _ = runs[-1]
        if run.range.end == added.range.start and run.exact:
            return True
        return added.reason not in EXACT_REASONS and self._begun[added.reason] >= EXACT_RUNS and now_ms - first_ms < RUN_MS


def _known(timestamp_ms: int | None) -> int | None:
    """Return the timestamp, None if there is none: records of old formats have -1."""
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms

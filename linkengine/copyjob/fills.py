"""The filled offsets of one partition in one hold, as few runs. No I/O.

Every fill is a run of its own, or part of its neighbour, until there are EXACT_RUNS of a reason; a topic with transactions
makes thousands a minute, so from then on a run takes in what is filled within RUN_MS and counts it. A run only ever grows and
keeps its start, so whoever hears of it several times keeps the longest. What was lost stays exact, whatever it takes.
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
        self._begun: Counter[GapReason] = Counter()  # runs, those that are forgotten included
        self._lost_open = False  # the record after the newest loss is not known yet

    def add(self, start: int, end: int, reason: GapReason, *, now_ms: int, before_ms: int | None) -> None:
        """Take in a fill; ``before_ms`` is the timestamp of the record before it, if known."""
        runs = self._runs[reason]
        fresh = Gap(OffsetRange(start, end), reason, before_ms=_known(before_ms) if reason is GapReason.LOST else None)
        if runs and self._joins(runs, fresh, now_ms):
            run, first_ms, _ = runs[-1]
            runs[-1] = (run.joined(fresh), first_ms, now_ms)
        else:
            runs.append((fresh, now_ms, now_ms))
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
        """Answer the runs that grew since then, and what was lost whenever it was, by offset."""
        found = [
            run
            for reason, runs in self._runs.items()
            for run, _, last_ms in runs
            if last_ms >= since_ms or reason is GapReason.LOST
        ]
        return tuple(sorted(found, key=lambda one: one.range))

    def forget(self, before_ms: int) -> None:
        """Let go of runs that did not grow since then and were told; the newest of each reason may still be joined."""
        for reason, runs in self._runs.items():
            older = runs[:-1]
            self._runs[reason] = [
                one for one in older if one[2] >= before_ms or (reason is GapReason.LOST and one[0].after_ms is None)
            ] + runs[-1:]

    def _joins(self, runs: list[tuple[Gap, int, int]], fresh: Gap, now_ms: int) -> bool:
        run, first_ms, _ = runs[-1]
        if run.range.end == fresh.range.start and run.exact:
            return True
        return fresh.reason not in EXACT_REASONS and self._begun[fresh.reason] >= EXACT_RUNS and now_ms - first_ms < RUN_MS


def _known(timestamp_ms: int | None) -> int | None:
    """Old records have no timestamp: -1."""
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms

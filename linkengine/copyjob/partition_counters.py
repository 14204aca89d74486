"""Counters of a partition that a copy worker reports (``PartitionProgress``): ends, counts, time lag, filled gaps. No I/O.

``CatchUp`` measures up to which time a mirror has everything its source had: the time lag (RPO).

Each response of the source yields a sample: "at this time the source ended at this offset". Once the mirror has reached
that offset, it has everything the source had at that time, whatever was produced since. So under steady load the measured
time follows the clock although the mirror never ends exactly where the source does; while the source cannot be read, it
stands still.

The end in a sample is the high watermark, not the last stable offset. Nothing behind an open transaction can be copied,
not even records of other producers; they are acknowledged, and a failover would lose them. So the measured time also
stands still while a transaction is open.

``FillRuns`` is a compact record of the offsets that were filled since this worker started the partition. Up to EXACT_RUNS runs
of a reason are exact: each fill is a run of its own or extends its neighbour. A topic with transactions has thousands of gaps
per minute, so from then on a run covers all fills of RUN_MS and counts them. A run only grows and keeps its start, so a
receiver of several reports keeps the longest. Lost offsets always stay exact.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import replace

from linkengine.batches.steps import Append
from linkengine.batches.view import first_timestamp
from linkengine.domain.ranges import EXACT_REASONS, Gap, OffsetRange
from linkengine.domain.states import GapReason

HALF_LIFE_MS = 700  # of a measured rate: rates are smooth and follow a change within two seconds
# A longer interval is smooth by itself. The rate of a partition that gets a batch every ten seconds, and is reported every two,
# would otherwise decay for as long, and each of its reports would be new.
SMOOTHED_MS = 2 * HALF_LIFE_MS
LEAST_MEASURED_MS = 100  # a shorter interval between reports measures noise
RECENT_MS = 10_000  # a run is reported for so long after its last fill: in some twenty reports, of which some may be lost
MOST_SAMPLES = 256  # samples kept; beyond that the newest is replaced, which only makes the measured time older
EXACT_RUNS = 16
RUN_MS = 10_000


class PartitionCounters:
    """Counters of a partition since this worker started it; reported with its ``copy_run_id``. Unknown is None, never 0."""

    __slots__ = (
        "_catch_up",
        "_fills",
        "_measured",
        "_reached_end",
        "bytes_copied",
        "bytes_per_s",
        "last_timestamp_ms",
        "mirror_end",
        "mirror_start",
        "records_copied",
        "records_per_s",
        "set_back_to",
        "set_backs",
        "source_end",
        "source_high_watermark",
        "source_seen_ms",
        "source_start",
    )

    def __init__(self) -> None:
        self.source_start: int | None = None
        self.source_end: int | None = None  # last stable offset: there is nothing to copy beyond
        self.source_high_watermark: int | None = None  # above source_end while a transaction is open
        self.source_seen_ms: int | None = None  # when its leader last returned its end, or reported no change
        self.mirror_start: int | None = None
        self.mirror_end: int | None = None
        self.set_back_to: int | None = None  # lowest end that the mirror fell back to: it has lost acknowledged records
        self.set_backs = 0
        self.last_timestamp_ms: int | None = None
        self._catch_up, self._reached_end = CatchUp(), False
        self.bytes_copied = 0
        self.records_copied = 0
        self.bytes_per_s: float | None = None
        self.records_per_s: float | None = None
        self._measured: tuple[int, int, int] | None = None  # time, bytes and records of the last measurement
        self._fills = FillRuns()

    def observed_source(self, *, start: int, end: int, high_watermark: int, now_ms: int) -> None:
        """Record the source's log start, last stable offset and high watermark.

        A new leader may return a lower high watermark than was seen before, until its followers fetch from it. Such a response
        does not show the source's end: the ends and ``source_seen_ms`` stay as they were. The time lag is measured against the
        high watermark, because the mirror also lacks the records behind an open transaction.
        """
        self.source_start = start
        if self.source_high_watermark is not None and max(end, high_watermark) < self.source_high_watermark:
            return
        self.source_end, self.source_high_watermark = end, max(end, high_watermark)
        self.source_seen_ms = now_ms
        self._catch_up.source_seen(self.source_high_watermark, at_ms=now_ms)
        self._reach()

    def unchanged(self, now_ms: int) -> None:
        """Record that the source's leader reported no change at this time; an earlier time than the last is ignored."""
        if self.source_high_watermark is None or self.source_seen_ms is None or now_ms <= self.source_seen_ms:
            return
        self.source_seen_ms = now_ms
        if now_ms > (self.caught_up_at_ms or 0):
            self._catch_up.source_seen(self.source_high_watermark, at_ms=now_ms)
            self._reach()

    def observed_mirror(self, *, start: int, end: int, previous_end: int | None = None) -> None:
        """Record the mirror's ends as returned by its leader; ``previous_end``: the previous owner's last end, if known."""
        before = previous_end if self.mirror_end is None else self.mirror_end
        if before is not None and end < before:
            self.set_back_to = end if self.set_back_to is None else min(end, self.set_back_to)
            self.set_backs += 1
        self.mirror_start, self.mirror_end = start, end
        self._reach()

    @property
    def caught_up_at_ms(self) -> int | None:
        """Return the time up to which the mirror has everything the source had; None if not measured yet."""
        return self._catch_up.at_ms

    @property
    def has_progress(self) -> bool:
        """Return whether something was written or filled, or the mirror reached the source's end: proof that copying works."""
        return self.bytes_copied > 0 or self._reached_end or bool(self._fills.since(0))

    def sending(self, step: Append) -> None:
        """Note a batch before it is patched and sent; afterwards its buffer may be reused."""
        if self._fills.awaits_record:
            self._fills.record_followed(first_timestamp(step.payload))

    def appended(self, step: Append) -> None:
        """Count a batch that was acknowledged at its offset."""
        self.mirror_end = step.end
        self.records_copied += step.records
        self.bytes_copied += len(step.payload)
        self.last_timestamp_ms = step.max_timestamp
        self._reach()

    def filled(self, start: int, end: int, reason: GapReason, *, now_ms: int) -> None:
        """Add a fill whose markers were verified at these offsets."""
        self.mirror_end = end
        self._fills.add(start, end, reason, now_ms=now_ms, before_ms=self.last_timestamp_ms)
        self._reach()

    def measure(self, now_ms: int) -> None:
        """Update the rates from what was copied since the last call; the rate of an idle partition becomes exactly 0."""
        current = (now_ms, self.bytes_copied, self.records_copied)
        last = self._measured
        if last is None or now_ms < last[0]:
            self._measured = current
            return
        elapsed_ms = now_ms - last[0]
        if elapsed_ms < LEAST_MEASURED_MS:
            return
        self._measured = current
        weight = 1 - 0.5 ** (elapsed_ms / HALF_LIFE_MS) if elapsed_ms < SMOOTHED_MS else 1.0
        self.bytes_per_s = _smooth(self.bytes_per_s, (current[1] - last[1]) * 1000 / elapsed_ms, weight)
        self.records_per_s = _smooth(self.records_per_s, (current[2] - last[2]) * 1000 / elapsed_ms, weight)

    def gaps(self, *, since_ms: int = 0) -> tuple[Gap, ...]:
        """Return the runs of fills that have grown since ``since_ms``, and all losses."""
        return self._fills.since(since_ms)

    def forget_gaps(self, before_ms: int) -> None:
        """Drop runs of fills that have not grown since ``before_ms`` and were reported."""
        self._fills.forget(before_ms)

    def _reach(self) -> None:
        if self.mirror_end is not None:
            self._catch_up.mirror_at(self.mirror_end)
            self._reached_end = self._reached_end or (self.source_end is not None and self.mirror_end >= self.source_end)


def _smooth(old: float | None, new: float, weight: float) -> float:
    value = new if old is None else old + weight * (new - old)
    return value if value >= 1 else 0.0


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


class FillRuns:
    """Runs by reason, oldest first, each with the times of its first and last fill."""

    __slots__ = ("_begun", "_lost_open", "_runs")

    def __init__(self) -> None:
        self._runs: dict[GapReason, list[tuple[Gap, int, int]]] = defaultdict(list)
        self._begun: Counter[GapReason] = Counter()  # number of runs so far, including dropped runs
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
        """Return whether the record after the newest loss is still to come."""
        return self._lost_open

    def since(self, since_ms: int) -> tuple[Gap, ...]:
        """Return, by offset, the runs that have grown since ``since_ms``, and all losses."""
        if not self._runs:
            return ()
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

"""What one hold did to one partition, and what it saw: the numbers of PartitionProgress. No I/O."""

from __future__ import annotations

from linkengine.batches.steps import Append
from linkengine.batches.view import first_timestamp
from linkengine.copyjob.catchup import CatchUp
from linkengine.copyjob.fills import FillRuns
from linkengine.domain.ranges import Gap
from linkengine.domain.states import GapReason

HALF_LIFE_MS = 700  # of a measurement of the rates: calm numbers that still follow within two seconds
LEAST_MEASURED_MS = 100  # reports that follow each other faster measure noise
RECENT_MS = 10_000  # reports come twice a second and may be lost: each run of fills is in twenty of them


class Account:
    """Counts of one partition in one hold. Unknown is None, never 0."""

    __slots__ = (
        "_catch_up",
        "_fills",
        "_measured",
        "_stood_at_end",
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
        "source_heard_ms",
        "source_high_watermark",
        "source_start",
    )

    def __init__(self) -> None:
        self.source_start: int | None = None
        self.source_end: int | None = None  # last stable offset: there is nothing to copy beyond
        self.source_high_watermark: int | None = None  # further on while a transaction is open: acknowledged, and held back
        self.source_heard_ms: int | None = None  # when its leader last told where it ends
        self.mirror_start: int | None = None
        self.mirror_end: int | None = None
        self.set_back_to: int | None = None  # lowest end that the mirror fell back to: it has lost what was acknowledged
        self.set_backs = 0
        self.last_timestamp_ms: int | None = None
        self._catch_up, self._stood_at_end = CatchUp(), False
        self.bytes_copied = 0
        self.records_copied = 0
        self.bytes_per_s: float | None = None
        self.records_per_s: float | None = None
        self._measured: tuple[int, int, int] | None = None  # time, bytes and records of the last measurement
        self._fills = FillRuns()

    def observed_source(self, *, start: int, end: int, high_watermark: int, now_ms: int) -> None:
        """Take in the source's log start, last stable offset and high watermark.

        A new leader may know an older high watermark than was seen, until its followers fetch from it: that is no sight of the
        source's end, which is unknown meanwhile. The age of what the mirror lacks is that of the high watermark: what waits
        behind an open transaction is lacking too.
        """
        self.source_start = start
        if self.source_high_watermark is not None and max(end, high_watermark) < self.source_high_watermark:
            return
        self.source_end, self.source_high_watermark = end, max(end, high_watermark)
        self.source_heard_ms = now_ms
        self._catch_up.source_seen(self.source_high_watermark, at_ms=now_ms)
        self._reach()

    def unchanged(self, now_ms: int) -> None:
        """The source's leader had no news at this moment."""
        if self.source_high_watermark is None or self.source_heard_ms is None or now_ms <= self.source_heard_ms:
            return
        self.source_heard_ms = now_ms
        if now_ms > (self.caught_up_at_ms or 0):
            self._catch_up.source_seen(self.source_high_watermark, at_ms=now_ms)
            self._reach()

    def observed_mirror(self, *, start: int, end: int, left_at: int | None = None) -> None:
        """Take in the mirror's ends as its leader told them; ``left_at``: where its last owner left it, as far as known."""
        before = left_at if self.mirror_end is None else self.mirror_end
        if before is not None and end < before:
            self.set_back_to = end if self.set_back_to is None else min(end, self.set_back_to)
            self.set_backs += 1
        self.mirror_start, self.mirror_end = start, end
        self._reach()

    @property
    def caught_up_at_ms(self) -> int | None:
        """Answer until when the mirror holds everything the source had."""
        return self._catch_up.at_ms

    @property
    def moving(self) -> bool:
        """Whether something was written, or there was nothing to write: until then nobody knows that all is well."""
        return self.bytes_copied > 0 or self._stood_at_end or bool(self._fills.since(0))

    def sending(self, step: Append) -> None:
        """A batch is about to be patched and sent; afterwards its buffer may hold something else."""
        if self._fills.awaits_record:
            self._fills.record_followed(first_timestamp(step.payload))

    def appended(self, step: Append) -> None:
        """A batch was acknowledged at its place."""
        self.mirror_end = step.end
        self.records_copied += step.records
        self.bytes_copied += len(step.payload)
        self.last_timestamp_ms = step.max_timestamp
        self._reach()

    def filled(self, start: int, end: int, reason: GapReason, *, now_ms: int) -> None:
        """Markers were verified at these offsets."""
        self.mirror_end = end
        self._fills.add(start, end, reason, now_ms=now_ms, before_ms=self.last_timestamp_ms)
        self._reach()

    def measure(self, now_ms: int) -> None:
        """Update the rates from what was copied since the last call; an idle partition has rate 0, not a tail of fractions."""
        now = (now_ms, self.bytes_copied, self.records_copied)
        before = self._measured
        if before is None or now_ms < before[0]:
            self._measured = now
            return
        elapsed_ms = now_ms - before[0]
        if elapsed_ms < LEAST_MEASURED_MS:
            return
        self._measured = now
        weight = 1 - 0.5 ** (elapsed_ms / HALF_LIFE_MS)
        self.bytes_per_s = _smooth(self.bytes_per_s, (now[1] - before[1]) * 1000 / elapsed_ms, weight)
        self.records_per_s = _smooth(self.records_per_s, (now[2] - before[2]) * 1000 / elapsed_ms, weight)

    def gaps(self, *, since_ms: int = 0) -> tuple[Gap, ...]:
        """Answer what was filled since then, and what was lost whenever it was."""
        return self._fills.since(since_ms)

    def forget_gaps(self, before_ms: int) -> None:
        """Let go of what was filled until then: it was told."""
        self._fills.forget(before_ms)

    def _reach(self) -> None:
        if self.mirror_end is not None:
            self._catch_up.mirror_at(self.mirror_end)
            self._stood_at_end = self._stood_at_end or (self.source_end is not None and self.mirror_end >= self.source_end)


def _smooth(old: float | None, new: float, weight: float) -> float:
    value = new if old is None else old + weight * (new - old)
    return value if value >= 1 else 0.0

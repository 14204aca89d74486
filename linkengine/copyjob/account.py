"""What a slice did to one partition, and what it saw: the numbers of PartitionProgress. No I/O."""

from __future__ import annotations

from linkengine.batches.steps import Append
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason


class Account:
    """Counts of one partition since the slice took it. Unknown is None, never 0."""

    __slots__ = (
        "bytes_copied",
        "caught_up_at_ms",
        "gaps",
        "last_timestamp_ms",
        "mirror_end",
        "mirror_start",
        "records_copied",
        "source_end",
        "source_start",
    )

    def __init__(self) -> None:
        self.source_start: int | None = None
        self.source_end: int | None = None
        self.mirror_start: int | None = None
        self.mirror_end: int | None = None
        self.last_timestamp_ms: int | None = None
        self.caught_up_at_ms: int | None = None
        self.bytes_copied = 0
        self.records_copied = 0
        self.gaps: list[Gap] = []

    def observed_source(self, *, start: int, end: int, now_ms: int) -> None:
        """Take in the source's log start and last stable offset."""
        self.source_start, self.source_end = start, end
        self._notice_caught_up(now_ms)

    def observed_mirror(self, *, start: int, end: int, now_ms: int) -> None:
        """Take in the mirror's ends as its leader told them."""
        self.mirror_start, self.mirror_end = start, end
        self._notice_caught_up(now_ms)

    def appended(self, step: Append, *, now_ms: int) -> None:
        """A batch was acknowledged at its place."""
        self.mirror_end = step.end
        self.records_copied += step.records
        self.bytes_copied += len(step.payload)
        self.last_timestamp_ms = step.max_timestamp
        self._notice_caught_up(now_ms)

    def filled(self, start: int, end: int, reason: GapReason, *, now_ms: int) -> None:
        """Markers were verified at these offsets."""
        self.mirror_end = end
        last = self.gaps[-1] if self.gaps else None
        if last and last.reason is reason and last.range.end == start:
            self.gaps[-1] = Gap(OffsetRange(last.range.start, end), reason)
        else:
            self.gaps.append(Gap(OffsetRange(start, end), reason))
        self._notice_caught_up(now_ms)

    def _notice_caught_up(self, now_ms: int) -> None:
        if self.mirror_end is not None and self.source_end is not None and self.mirror_end >= self.source_end:
            self.caught_up_at_ms = now_ms

"""What a slice did to one partition, and what it saw: the numbers of PartitionProgress. No I/O."""

from __future__ import annotations

from linkengine.batches.steps import Append
from linkengine.copyjob.catchup import CatchUp
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason

RECENT_MS = 10_000  # reports come twice a second and are merged: each gap is in twenty of them


class Account:
    """Counts of one partition since the slice took it. Unknown is None, never 0."""

    __slots__ = (
        "_catch_up",
        "_gaps",
        "bytes_copied",
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
        self._catch_up = CatchUp()
        self.bytes_copied = 0
        self.records_copied = 0
        self._gaps: list[tuple[int, Gap]] = []  # with the time of the last fill

    def observed_source(self, *, start: int, end: int, now_ms: int) -> None:
        """Take in the source's log start and last stable offset."""
        self.source_start, self.source_end = start, end
        self._catch_up.source_seen(end, at_ms=now_ms)
        self._reach()

    def observed_mirror(self, *, start: int, end: int) -> None:
        """Take in the mirror's ends as its leader told them."""
        self.mirror_start, self.mirror_end = start, end
        self._reach()

    @property
    def caught_up_at_ms(self) -> int | None:
        """Answer until when the mirror holds everything the source had."""
        return self._catch_up.at_ms

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
        last = self._gaps[-1][1] if self._gaps else None
        if last and last.reason is reason and last.range.end == start:
            self._gaps[-1] = (now_ms, Gap(OffsetRange(last.range.start, end), reason))
        else:
            self._gaps.append((now_ms, Gap(OffsetRange(start, end), reason)))
        self._reach()

    def gaps(self, *, since_ms: int = 0) -> tuple[Gap, ...]:
        """Answer the gaps filled since then, and what was lost whenever it was; transactions make thousands a minute."""
        return tuple(gap for at_ms, gap in self._gaps if at_ms >= since_ms or gap.reason is GapReason.LOST)

    def _reach(self) -> None:
        if self.mirror_end is not None:
            self._catch_up.mirror_at(self.mirror_end)

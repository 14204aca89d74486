"""Reparenting: whether a mirror can continue from another copy of its source. It must be a prefix of the new parent.

Two mirrors of a topic hold the same records at the same offsets. When either of them is stopped, its fence records the offset
up to which it is a copy; what follows (the fence's marker, then records of its own producers) exists only there. The other
mirror is a prefix of it if it ends at or before that fence in every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from linkengine.domain.plans import LogRange

NONE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReparentPoint:
    """One partition of the mirror, which ends at ``end``. Below ``fence`` the parent is a copy of the common source."""

    partition: int
    end: int
    fence: int  # 0: the parent never copied this partition
    parent_start: int | None  # both None: the parent has no such partition
    parent_end: int | None
    start: int = 0
    parent_head: int = 0  # the parent never had records below it; a mirror's start follows that of its source

    @property
    def ahead(self) -> int:
        """Number of offsets that the mirror copied from the common source and the parent did not."""
        return max(0, self.end - self.fence)

    @property
    def to_copy(self) -> int:
        """Number of offsets that the parent holds beyond the mirror's end."""
        return max(0, (self.parent_end or 0) - self.end)


def reparent_points(
    held: Iterable[LogRange], *, parent: Iterable[LogRange], fences: Mapping[int, int], heads: Mapping[int, int] = NONE
) -> tuple[ReparentPoint, ...]:
    """Return the mirror's partitions combined with the parent's.

    ``fences`` are the parent's recorded ends, by partition; ``heads`` where its copy began, if the mirror's start would follow.
    """
    known = {log.partition: log for log in parent}
    return tuple(
        _point(log, known.get(log.partition), fence=fences.get(log.partition, 0), head=heads.get(log.partition, 0))
        for log in held
    )


def obstacles(points: Iterable[ReparentPoint]) -> tuple[str, ...]:
    """Return, by partition, why the mirror is not a prefix of the parent; () if it is in all partitions."""
    return tuple(words for point in points if (words := _obstacle(point)))


def _point(held: LogRange, parent: LogRange | None, *, fence: int, head: int) -> ReparentPoint:
    start, end = (None, None) if parent is None else (parent.start, parent.end)
    return ReparentPoint(
        partition=held.partition,
        end=held.end,
        fence=fence,
        parent_start=start,
        parent_end=end,
        start=held.start,
        parent_head=head,
    )


def _obstacle(point: ReparentPoint) -> str:
    if point.parent_start is None or point.parent_end is None:
        return f"partition {point.partition} does not exist there"
    if point.ahead:
        return (
            f"partition {point.partition} ends at offset {point.end}, {point.ahead} beyond offset {point.fence}, where the "
            "other copy was fenced"
        )
    if point.parent_end < point.fence:
        return f"partition {point.partition} ends at offset {point.parent_end} there, before its own fence at {point.fence}"
    if point.parent_start > point.end:
        return f"partition {point.partition} begins at offset {point.parent_start} there, beyond this mirror's end {point.end}"
    if point.start < point.parent_head:
        return (
            f"partition {point.partition} was copied from offset {point.parent_head} on there, and this mirror would lose its "
            "older records (leave retention out of the link's topic.config.sync.include to keep them)"
        )
    return ""

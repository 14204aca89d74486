"""May a mirror go on behind another copy of its source? Arithmetic of offsets: the mirror must be a prefix of the new parent.

Two mirrors of one topic hold the same records at the same offsets. When one of them is stopped, the fence records up to where
it is a copy; what follows (the fence's marker, then records of its own producers) belongs to it alone. The other mirror is a
prefix of it exactly where it ends at or before that fence, in every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from linkengine.domain.plans import LogRange

NONE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReparentPoint:
    """One partition of the mirror: it ends at ``end``; below ``fence`` the parent is a copy of the common source."""

    partition: int
    end: int
    fence: int  # 0: the parent never copied this partition
    parent_start: int | None  # None, both: the parent has no such partition
    parent_end: int | None
    start: int = 0
    parent_head: int = 0  # the parent never had anything below, and a mirror begins where its source begins

    @property
    def ahead(self) -> int:
        """Offsets that the mirror took from the common source and the parent did not."""
        return max(0, self.end - self.fence)

    @property
    def to_copy(self) -> int:
        """Offsets that the parent holds beyond the mirror's end."""
        return max(0, (self.parent_end or 0) - self.end)


def reparent_points(
    held: Iterable[LogRange], *, parent: Iterable[LogRange], fences: Mapping[int, int], heads: Mapping[int, int] = NONE
) -> tuple[ReparentPoint, ...]:
    """Lay the mirror's partitions beside the parent's.

    ``fences`` are the parent's recorded ends, by partition; ``heads`` where its copy began, if the mirror's start would follow.
    """
    known = {one.partition: one for one in parent}
    return tuple(
        _point(one, known.get(one.partition), fence=fences.get(one.partition, 0), head=heads.get(one.partition, 0))
        for one in held
    )


def obstacles(points: Iterable[ReparentPoint]) -> tuple[str, ...]:
    """Say, by partition, why the mirror is no prefix of the parent; () where it is one in all of them."""
    return tuple(words for one in points if (words := _obstacle(one)))


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


def _obstacle(one: ReparentPoint) -> str:
    if one.parent_start is None or one.parent_end is None:
        return f"partition {one.partition} does not exist there"
    if one.ahead:
        return (
            f"partition {one.partition} ends at offset {one.end}, {one.ahead} beyond offset {one.fence}, where the other copy "
            "was fenced"
        )
    if one.parent_end < one.fence:
        return f"partition {one.partition} ends at offset {one.parent_end} there, before its own fence at {one.fence}"
    if one.parent_start > one.end:
        return f"partition {one.partition} begins at offset {one.parent_start} there, so offsets from {one.end} on are gone"
    if one.start < one.parent_head:
        return (
            f"partition {one.partition} was copied from offset {one.parent_head} on there, and this mirror would lose its "
            "older records (leave retention out of the link's topic.config.sync.include, and it keeps them)"
        )
    return ""

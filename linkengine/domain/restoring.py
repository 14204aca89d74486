"""Where two topics that were one part: arithmetic of a truncate-and-restore. Knows offsets only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange

_BY_PARTITION = ("ends", "epochs", "fences", "fence_epochs")  # JSON has no numbers for keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPart:
    """What the stop of a copy tells of two topics, named by their ids: up to ``ends``, by partition, they held the same.

    ``epochs`` are the leader epochs under which the source of the copy was read; it is the topic here or the one there.
    ``fences`` are the offsets at which the copy, the other one of the two, was fenced, ``fence_epochs`` the leader epochs then.
    """

    here_id: str
    there_id: str
    ends: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    fences: Mapping[int, int] = field(default_factory=dict)
    fence_epochs: Mapping[int, int] = field(default_factory=dict)
    by_markers: bool = True  # the fences are markers of ours; else any producer's may look like them
    source_is_here: bool = False

    def to_json(self) -> dict[str, Any]:
        """Answer it as JSON can keep it."""
        return asdict(self) | {name: sorted(getattr(self, name).items()) for name in _BY_PARTITION}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> CommonPart:
        """Answer what ``to_json`` has written."""
        return cls(**{**kept, **{name: dict(kept.get(name, ())) for name in _BY_PARTITION}})

    def as_kept(self, kept: Mapping[int, int]) -> CommonPart:
        """Answer what is left of it where its source has kept what was read up to these offsets only, nothing if unknown."""
        return replace(self, ends={partition: min(end, kept.get(partition, 0)) for partition, end in self.ends.items()})

    def without(self, partitions: Collection[int]) -> CommonPart:
        """Answer what is left of it where the copy has lost its own fence in these, and nobody knows how much before that."""
        return replace(self, ends={partition: end for partition, end in self.ends.items() if partition not in partitions})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """One partition: it holds ``[start, end)``; below ``common`` both sides are, or will be, equal.

    The other side holds nothing below ``other_start``: never had it, or does not have it any more.
    """

    partition: int
    start: int
    end: int
    common: int
    other_start: int = 0

    @property
    def point(self) -> int:
        """The offset the partition is truncated to."""
        return min(self.common, self.end)

    @property
    def apart(self) -> tuple[OffsetRange, ...]:
        """What only this side holds, or what means something else on the other side."""
        return tuple(one for one in (self.head_since(0), self.tail) if one)

    @property
    def tail(self) -> OffsetRange:
        """What lies beyond the common part."""
        first = max(self.start, self.point)
        return OffsetRange(first, max(first, self.end))

    def head_since(self, other_start: int) -> OffsetRange:
        """What lies before the beginning of the other side, and did not while that was at ``other_start``."""
        first = max(self.start, other_start)
        return OffsetRange(first, max(first, min(self.other_start, self.point)))

    @property
    def diverged(self) -> int:
        """The offsets of it."""
        return sum(map(len, self.apart))


def restore_points(
    held: Iterable[LogRange], *, common: Mapping[int, int], other: Iterable[LogRange]
) -> tuple[RestorePoint, ...]:
    """Answer the point of each partition; what was never copied, or the other side lacks, is not common."""
    there = {one.partition: one for one in other}
    nothing = LogRange(partition=-1, start=0, end=0, stable_end=0)
    return tuple(
        RestorePoint(
            partition=one.partition,
            start=one.start,
            end=one.end,
            common=min(common.get(one.partition, 0), there.get(one.partition, nothing).end),
            other_start=there.get(one.partition, nothing).start,
        )
        for one in held
    )


def common_ends(parts: Iterable[CommonPart], *, here_id: str, there_id: str) -> dict[int, int]:
    """Answer, by partition, the first offset that is not known to be common to the two topics of these ids.

    A topic that was deleted and created again has nothing but its name in common with what was copied.
    """
    found: dict[int, int] = {}
    for part in parts:
        if (part.here_id, part.there_id) == (here_id, there_id):
            found |= {partition: max(end, found.get(partition, 0)) for partition, end in part.ends.items()}
    return found


def as_held_now(
    points: Iterable[RestorePoint],
    *,
    held: Iterable[LogRange],
    other: Iterable[LogRange],
    common: Mapping[int, int] | None = None,
) -> tuple[RestorePoint, ...]:
    """Answer the points with the bounds of now: retention may have moved a start, a super user an end.

    A partition that was added since is another point as soon as something is in it. ``common``: what is common now, where that
    may be less than it was.
    """
    known, now = [_still_common(one, common) for one in points], {one.partition: one for one in held}
    there = {one.partition: one for one in other}
    added = [one for number, one in sorted(now.items()) if one.end and number not in {point.partition for point in known}]
    grown = [*known, *restore_points(added, common={}, other=there.values())]
    return tuple(_as_now(one, now.get(one.partition), there.get(one.partition)) for one in grown)


def _still_common(one: RestorePoint, common: Mapping[int, int] | None) -> RestorePoint:
    return one if common is None else replace(one, common=min(one.common, common.get(one.partition, 0)))


def _as_now(one: RestorePoint, here: LogRange | None, there: LogRange | None) -> RestorePoint:
    return replace(
        one,
        start=max(one.start, here.start) if here else one.start,
        end=here.end if here else one.end,
        other_start=max(one.other_start, there.start) if there else one.other_start,
    )


def not_common(points: Iterable[RestorePoint], *, common: Mapping[int, int]) -> tuple[int, ...]:
    """List partitions of which less is known to be common by now than was agreed."""
    return tuple(one.partition for one in points if common.get(one.partition, 0) < one.common)


def open_transactions(held: Iterable[LogRange]) -> tuple[int, ...]:
    """List partitions in which a transaction has not ended: its records may still become visible."""
    return tuple(one.partition for one in held if one.stable_end < one.end)

"""Where two topics that were one part: arithmetic of a truncate-and-restore. Knows offsets only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from linkengine.domain.plans import LogRange


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPart:
    """What the stop of a copy tells of two topics, named by their ids: up to ``ends``, by partition, they hold the same."""

    here_id: str
    there_id: str
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """One partition: it holds ``[start, end)``; below ``common`` both sides are, or will be, equal."""

    partition: int
    start: int
    end: int
    common: int

    @property
    def point(self) -> int:
        """The offset the partition is truncated to."""
        return min(self.common, self.end)

    @property
    def diverged(self) -> int:
        """Offsets that only this side holds, or that mean something else on the other side."""
        return self.end - max(self.start, self.point)


def restore_points(held: Iterable[LogRange], *, common: Mapping[int, int]) -> tuple[RestorePoint, ...]:
    """Answer the point of each partition; one that was never copied has nothing in common."""
    return tuple(
        RestorePoint(partition=one.partition, start=one.start, end=one.end, common=common.get(one.partition, 0)) for one in held
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


def as_held_now(points: Iterable[RestorePoint], *, held: Iterable[LogRange]) -> tuple[RestorePoint, ...]:
    """Answer the points with the bounds of now: retention may have moved a start, a super user an end."""
    now = {one.partition: one for one in held}
    return tuple(
        replace(one, start=max(one.start, now[one.partition].start), end=now[one.partition].end)
        if one.partition in now
        else one
        for one in points
    )


def open_transactions(held: Iterable[LogRange]) -> tuple[int, ...]:
    """List partitions in which a transaction has not ended: its records may still become visible."""
    return tuple(one.partition for one in held if one.stable_end < one.end)

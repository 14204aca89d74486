"""Offset arithmetic of truncate-and-restore: up to which offset two topics are equal, and which records diverged.

Two topics are equal below an offset if either was a mirror of the other up to there. Each stop of a mirror records this as
a ``CommonPart``. To make the stopped topic a mirror again, each of its partitions is truncated to its ``RestorePoint.point``,
the end of the common part; records beyond that point, and records that the other topic no longer has at its start, are
diverged::

    start        other_start          point          end
      │   diverged    │       equal       │  diverged   │
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from linkengine.domain.plans import LogRange
from linkengine.domain.ranges import OffsetRange

_BY_PARTITION = ("ends", "epochs", "fences", "fence_epochs")  # JSON has no numbers for keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPart:
    """What the stop of a mirror says about two topics: below ``ends``, by partition, both held the same records.

    ``here_id`` and ``there_id`` are topic ids. Either topic was the mirror of the other (``source_is_here``).
    ``epochs`` are the leader epochs under which the source was read. ``fences`` are the offsets at which the mirror was fenced,
    ``fence_epochs`` the leader epochs of the mirror at that time.
    """

    here_id: str
    there_id: str
    ends: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    fences: Mapping[int, int] = field(default_factory=dict)
    fence_epochs: Mapping[int, int] = field(default_factory=dict)
    by_markers: bool = True  # fences were written by WriteTxnMarkers; False: by transactions, which any producer can imitate
    source_is_here: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the value as a dict for a JSON field; ``from_json`` reads it."""
        return asdict(self) | {name: sorted(getattr(self, name).items()) for name in _BY_PARTITION}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> CommonPart:
        """Return the value that ``to_json`` has written."""
        return cls(**{**kept, **{name: dict(kept.get(name, ())) for name in _BY_PARTITION}})

    def as_kept(self, kept: Mapping[int, int]) -> CommonPart:
        """Return the common part if the source kept what was read below these offsets only; unknown partitions count as 0."""
        return replace(self, ends={partition: min(end, kept.get(partition, 0)) for partition, end in self.ends.items()})

    def without(self, partitions: Collection[int]) -> CommonPart:
        """Return the common part without partitions whose mirror has lost its fence: how much was lost before it is unknown."""
        return replace(self, ends={partition: end for partition, end in self.ends.items() if partition not in partitions})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePoint:
    """One partition of the topic to restore, which holds ``[start, end)``. Below ``common`` both sides are, or will be, equal.

    The other side holds nothing below ``other_start``: it never had those records or has deleted them.
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
        """Offsets that only this side holds, or that hold other records on the other side."""
        return tuple(part for part in (self.head_since(0), self.tail) if part)

    @property
    def tail(self) -> OffsetRange:
        """Offsets behind the common part."""
        first = max(self.start, self.point)
        return OffsetRange(first, max(first, self.end))

    def head_since(self, other_start: int) -> OffsetRange:
        """Return offsets that the other side has lost at its start since that was ``other_start``."""
        first = max(self.start, other_start)
        return OffsetRange(first, max(first, min(self.other_start, self.point)))

    @property
    def diverged(self) -> int:
        """Number of offsets in ``apart``."""
        return sum(map(len, self.apart))


def restore_points(
    held: Iterable[LogRange], *, common: Mapping[int, int], other: Iterable[LogRange]
) -> tuple[RestorePoint, ...]:
    """Return the restore point of each partition; offsets never copied, or that the other side lacks, are not common."""
    there = {log.partition: log for log in other}
    nothing = LogRange(partition=-1, start=0, end=0, stable_end=0)
    return tuple(
        RestorePoint(
            partition=log.partition,
            start=log.start,
            end=log.end,
            common=min(common.get(log.partition, 0), there.get(log.partition, nothing).end),
            other_start=there.get(log.partition, nothing).start,
        )
        for log in held
    )


def common_ends(parts: Iterable[CommonPart], *, here_id: str, there_id: str) -> dict[int, int]:
    """Return, by partition, the end of what is known to be common to the two topics of these ids.

    A topic that was deleted and created again has another id and nothing in common with what was copied.
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
    """Return the points with the current bounds: retention may have moved a start, and DeleteRecords or a producer an end.

    A partition that was added since gets a point of its own once it holds records. ``common``: the currently common ends, given
    where they may have decreased.
    """
    known, now = [_still_common(point, common) for point in points], {log.partition: log for log in held}
    there = {log.partition: log for log in other}
    added = [log for number, log in sorted(now.items()) if log.end and number not in {point.partition for point in known}]
    grown = [*known, *restore_points(added, common={}, other=there.values())]
    return tuple(_as_now(point, now.get(point.partition), there.get(point.partition)) for point in grown)


def _still_common(point: RestorePoint, common: Mapping[int, int] | None) -> RestorePoint:
    return point if common is None else replace(point, common=min(point.common, common.get(point.partition, 0)))


def _as_now(point: RestorePoint, here: LogRange | None, there: LogRange | None) -> RestorePoint:
    return replace(
        point,
        start=max(point.start, here.start) if here else point.start,
        end=here.end if here else point.end,
        other_start=max(point.other_start, there.start) if there else point.other_start,
    )


def not_common(points: Iterable[RestorePoint], *, common: Mapping[int, int]) -> tuple[int, ...]:
    """List partitions whose common part is shorter now than when the points were agreed."""
    return tuple(point.partition for point in points if common.get(point.partition, 0) < point.common)


def open_transactions(held: Iterable[LogRange]) -> tuple[int, ...]:
    """List partitions with an open transaction, whose records may still become visible."""
    return tuple(log.partition for log in held if log.stable_end < log.end)

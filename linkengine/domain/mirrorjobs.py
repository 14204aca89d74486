"""The engine's jobs on a mirror besides copying: parameters, results, and the offset arithmetic of restore and reparenting.

Plain values as in ``plans``: times are Unix milliseconds, offsets are Kafka offsets, ends are exclusive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import LocalEdit
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groups import ClampedOffset, KnownOffset
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.plans import LogRange, PartitionAssignment
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import StopReason

# --- set-up, sync, stop, reversal ----------------------------------------------------------------------------------------


FILLERS = "fillers"  # name of a RefusedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSetup:
    """A mirror topic to be created, seeded and made read-only."""

    link_id: str
    mirror_id: str
    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    replication_factor: int | None = None  # None: the destination's default
    configs: dict[str, str] = field(default_factory=dict)  # overrides of unsynced configs
    sync_include: tuple[str, ...] | None = None  # topic.config.sync.include; None: the default list
    guard: bool = True  # deny writes; False if that would also deny them to the link's own principal
    start: str = "earliest"  # mirror.start.offset.spec, see ``linkrules``
    contested: bool = False  # another mirror has this name too: ACLs on it may belong to that mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCreated:
    """Result of a set-up."""

    source_topic_id: str
    mirror_topic_id: str
    partitions: int
    read_only: bool  # False: the destination has no authorizer
    seeded: tuple[tuple[int, int], ...] = ()  # (partition, offset the mirror starts at) where that is above 0
    source_configs: dict[str, str] = field(default_factory=dict)  # effective values of the synced configs; keep for the stop


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSync:
    """A mirror whose partitions and configs are to follow its source topic."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    source_topic_id: str
    mirror_topic: str
    mirror_topic_id: str = ""  # "": unknown; a topic of this name with another id is not the mirror
    sync_include: tuple[str, ...] | None = None  # topic.config.sync.include; None: the default list
    previous: dict[str, str] = field(default_factory=dict)  # source configs of the last run; empty: there was none
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    keyless: bool = False  # the mirror is compacted and has refused a record without a key
    guard: bool = True  # as in MirrorSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStep:
    """Something that the destination refused: a config while mirroring, or a step after writes were allowed.

    ``name`` is a topic config, or FILLERS for the records at the head that could not be removed.
    """

    name: str
    value: str | None  # value that the config should have; None: the cluster's default
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSynced:
    """Result of a sync run."""

    partitions: int  # of the mirror, after growth: new partitions need assignments
    source_partitions: int  # more if the mirror did not grow
    growth_error: LinkEngineError | None = None  # why partitions could not be added
    configs_error: LinkEngineError | None = None  # why configs could not be synced; only partitions were added then
    source_configs: dict[str, str]  # effective values of the synced configs; keep for the stop
    # False: ``source_configs`` are the previous configs, since the source's could not be synced, or since the mirror was being
    # changed to an ordinary topic
    read: bool = True
    refused: tuple[RefusedStep, ...] = ()  # configs that the destination refused
    changed: tuple[str, ...] = ()  # names of the configs that were set or deleted on the mirror
    reverted: tuple[LocalEdit, ...] = ()  # those that a user had changed on the mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStop:
    """A mirror to be fenced and made writable."""

    source: ClusterAddress
    destination: ClusterAddress
    assignments: tuple[PartitionAssignment, ...]
    reason: StopReason
    generation: int  # of the owner that fences; higher than that of every copy worker
    source_topic: str = ""  # both names: needed if there are no assignments yet
    mirror_topic: str = ""
    mirror_topic_id: str = ""  # as noted when the mirror was created; "": its set-up did not get that far
    contested: bool = False  # as in MirrorSetup
    was_mirror: bool = True  # False: an ordinary topic was to become a mirror; only its configs show how far that went
    failed: bool = False  # it was FAILED when it was stopped, perhaps because its log contains an earlier stop's fence
    seeding: bool = False  # its set-up was interrupted: the topic may hold part of a head, hidden, and nothing else
    fenced_ends: tuple[tuple[int, int], ...] = ()  # (partition, offset of the fence) recorded by an earlier attempt
    restoring_configs: bool = False  # an earlier attempt has begun to restore the source's configs, perhaps not all of them
    copied: tuple[tuple[int, int], ...] = ()  # (partition, offset) below which all is the source's: as reported, or recorded
    released_ends: tuple[tuple[int, int], ...] = ()  # (partition, end) with which the last copy worker released its lease
    source_configs: dict[str, str] = field(default_factory=dict)  # last known; used if the source does not respond
    configs: dict[str, str] = field(default_factory=dict)  # overrides, as in MirrorSetup
    sync_include: tuple[str, ...] | None = None
    guard: bool = True  # writes were denied and have to be allowed again, as in MirrorSetup
    was_closed: bool = False  # the same may be true without ``guard``: an ordinary topic that was to become a mirror
    group_offsets: tuple[KnownOffset, ...] = ()  # of the synced consumer groups


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStopped:
    """Where the mirror ended: the offset of the fence of each partition. Everything below was mirrored except ``foreign``."""

    ends: tuple[tuple[int, int], ...]
    foreign: tuple[tuple[int, int], ...] = ()  # (partition, first offset below the fence that was not mirrored), if any
    epochs: tuple[tuple[int, int], ...] = ()  # (partition, leader epoch in which the fence was found), of this attempt's fences
    clamped: tuple[ClampedOffset, ...] = ()  # offsets of groups that the end limits; known after the fence only
    restores_configs: bool = field(
        default=True, compare=False
    )  # False: stopped before; its configs and groups stay as they are
    refused: tuple[RefusedStep, ...] = ()  # known last: the topic is writable already


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorTakeover:
    """A stopped topic that is to become the mirror of its former mirror, with the records that it has."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    source_topic_id: str  # both ids: a name alone does not identify a topic that was deleted and created again
    mirror_topic_id: str
    assignments: tuple[PartitionAssignment, ...]
    ends: tuple[tuple[int, int], ...]  # (partition, offset at which the other side was fenced)
    begins: tuple[tuple[int, int], ...] = ()  # (partition, first offset the other side ever had) if it lacks older records
    generation: int
    sync_include: tuple[str, ...] | None = None


# --- truncate-and-restore ------------------------------------------------------------------------------------------------
# Up to which offset two topics are equal, and which records diverged. Two topics are equal below an offset if either was a
# mirror of the other up to there. Each stop of a mirror records this as a ``CommonPart``. To make the stopped topic a mirror
# again, each of its partitions is truncated to its ``RestorePoint.point``, the end of the common part. Records beyond that
# point, and records that the other topic no longer has at its start, are diverged::
#
#     start        other_start          point          end
#       │   diverged    │       equal       │  diverged   │


_BY_PARTITION = ("ends", "epochs", "fences", "fence_epochs")  # JSON has no numbers for keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPart:
    """Evidence from the stop of a mirror about two topics: below ``ends``, by partition, both held the same records.

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
    def diverged_ranges(self) -> tuple[OffsetRange, ...]:
        """Offsets that only this side holds, or that hold other records on the other side."""
        return tuple(part for part in (self.head_since(0), self.tail) if part)

    @property
    def tail(self) -> OffsetRange:
        """Offsets after the common part."""
        first = max(self.start, self.point)
        return OffsetRange(first, max(first, self.end))

    def head_since(self, other_start: int) -> OffsetRange:
        """Return offsets that the other side has lost at its start since that was ``other_start``."""
        first = max(self.start, other_start)
        return OffsetRange(first, max(first, min(self.other_start, self.point)))

    @property
    def diverged(self) -> int:
        """Number of offsets in ``diverged_ranges``."""
        return sum(map(len, self.diverged_ranges))


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


def ends_behind_takeover_markers(stopped: CommonPart, taken: CommonPart) -> dict[int, int]:
    """Return, by partition, the end of the common part behind the fence of a mirror whose former source has taken over.

    ``stopped`` is the stop of that mirror, as both sides confirm it; ``taken`` is a later stop of the former source, whose
    fences are confirmed. A takeover writes a marker at the offset of the other side's fence (``copyjob.stop.takeover``), so
    both topics hold a marker there and no record. The leader epochs of ``taken`` cannot confirm this if the former source has
    read nothing since, for example because the reversal was paused. Then these conditions together do: the mirror still has
    its fence, and it is exactly at the end of the common part; the former source ended as a copy exactly behind this offset.
    Fences written by transactions prove nothing here, since an application's marker looks the same.
    """
    if stopped.source_is_here == taken.source_is_here or not (stopped.by_markers and taken.by_markers):
        return {}
    return {
        partition: end + 1
        for partition, end in stopped.ends.items()
        if stopped.fences.get(partition) == end and partition not in taken.epochs and taken.ends.get(partition) == end + 1
    }


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


# --- reparenting ---------------------------------------------------------------------------------------------------------
# Whether a mirror can continue from another copy of its source: it must be a prefix of the new parent. Two mirrors of a topic
# hold the same records at the same offsets. When either of them is stopped, its fence records the offset up to which it is a
# copy; what follows (the fence's marker, then records of its own producers) exists only there. The other mirror is a prefix of
# it if it ends at or before that fence in every partition.


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
        return gettext_lazy("partition %(partition)s does not exist there", partition=point.partition)
    if point.ahead:
        return gettext_lazy(
            "partition %(partition)s ends at offset %(end)s, %(ahead)s beyond offset %(fence)s, where the other "
            "copy was fenced",
            partition=point.partition,
            end=point.end,
            ahead=point.ahead,
            fence=point.fence,
        )
    if point.parent_end < point.fence:
        return gettext_lazy(
            "partition %(partition)s ends at offset %(parent_end)s there, before its own fence at %(fence)s",
            partition=point.partition,
            parent_end=point.parent_end,
            fence=point.fence,
        )
    if point.parent_start > point.end:
        return gettext_lazy(
            "partition %(partition)s begins at offset %(parent_start)s there, beyond this mirror's end %(end)s",
            partition=point.partition,
            parent_start=point.parent_start,
            end=point.end,
        )
    if point.start < point.parent_head:
        return gettext_lazy(
            "partition %(partition)s was copied from offset %(parent_head)s on there, and this mirror would "
            "lose its older records (leave retention out of the link's topic.config.sync.include to keep them)",
            partition=point.partition,
            parent_head=point.parent_head,
        )
    return ""

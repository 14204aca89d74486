"""Input and result of a run of consumer offset sync. Plain values; the decisions are in ``groups``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkengine.domain.filters import NameFilter
from linkengine.domain.groups import Group, GroupStatus, OffsetOutcome, Remembered

BATCH = 200  # groups per run; each takes a handful of small requests


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """What a run syncs: which groups, which topics, and where it begins in the list of groups."""

    filters: tuple[NameFilter, ...]
    topics: tuple[MirroredTopic, ...]
    group_prefix: str = ""
    known: tuple[Group, ...] = ()  # of earlier runs; the source may no longer show or have some of them
    after: str = ""
    batch: int | None = BATCH  # None: every group at once
    strict: bool = False  # offsets of an undecided transaction count as unknown; a promotion waits for them


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A topic whose offsets are synced, as long as both topics have the ids noted when the mirror was created."""

    source_topic: str
    mirror_topic: str
    partitions: int
    source_topic_id: str = ""  # "": unknown
    mirror_topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """One partition of a group after a run. ``destination`` is the destination's committed offset now, None: none."""

    mirror_topic: str
    partition: int
    source: int
    destination: int | None
    target: int
    outcome: OffsetOutcome
    written: bool = False
    message: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the destination has the target offset."""
        return self.destination == self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """One group of the source after a run."""

    name: str
    destination_name: str
    status: GroupStatus
    is_listed: bool = True  # False: known from earlier runs; the source no longer lists it, and has not deleted it
    kind: str = ""
    message: str = ""
    partitions: tuple[PartitionOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """Result of a run. ``next_after`` is where the next run continues; "" once every group was synced.

    ``incomplete`` says why groups are, or may be, missing from the result: a broker of the source did not respond.
    """

    groups: Sequence[GroupOutcome]
    next_after: str = ""
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffset:
    """The last known offset of a group's partition when its mirror is stopped; the source may be unreachable."""

    group: str  # its name at the destination
    partition: int
    source: int  # the source's offset as last observed
    remembered: Remembered | None = None

    def is_in_place(self, end: int) -> bool:
        """Return whether a mirror that ends at ``end`` needs no commit: the group is where the source's was, or ahead."""
        done = self.remembered
        return done is not None and done.source == self.source and self.source <= done.destination <= end


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedOffset:
    """A group's offset that the end of a stopped mirror limits. ``before`` is the destination's offset, None if it had none."""

    group: str
    partition: int
    source: int | None
    before: int | None
    after: int | None
    message: str = ""  # why it could not be moved

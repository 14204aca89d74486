"""What is asked of a run over consumer groups, and what it tells. Plain values; the decisions are in ``groups``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linkengine.domain.filters import NameFilter
from linkengine.domain.groups import Group, GroupStatus, OffsetOutcome, Remembered

BATCH = 200  # groups of one run; a handful of small requests each


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """What shall be carried over: which groups, of which topics, and where this run begins."""

    filters: tuple[NameFilter, ...]
    topics: tuple[MirroredTopic, ...]
    group_prefix: str = ""
    known: tuple[Group, ...] = ()  # of earlier runs: the source may hide one by now, or have deleted it
    after: str = ""
    batch: int | None = BATCH  # None: every group at once
    strict: bool = False  # an offset that a transaction has not decided yet is not known: a promotion waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A topic whose offsets are carried over, as long as both sides are what was noted when the mirror was made."""

    source_topic: str
    mirror_topic: str
    partitions: int
    source_topic_id: str = ""  # "": not known
    mirror_topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """One partition of a group after a run. ``destination`` is what the destination holds now, None: nothing."""

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
        """Tell whether the destination holds what it should."""
        return self.destination == self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """One group of the source after a run."""

    name: str
    destination_name: str
    status: GroupStatus
    is_listed: bool = True  # False: known from before; the source does not show it, and has not deleted it
    kind: str = ""
    message: str = ""
    partitions: tuple[PartitionOutcome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """What one run saw. ``next_after`` is where the next one goes on; "" once every group had its turn.

    ``incomplete`` says why there are, or may be, groups that no outcome tells of: a broker of the source did not answer.
    """

    groups: Sequence[GroupOutcome]
    next_after: str = ""
    incomplete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOffset:
    """What is known of a group's partition when its mirror is stopped; the source need not answer any more."""

    group: str  # its name at the destination
    partition: int
    source: int  # the source's offset as last seen
    remembered: Remembered | None = None

    def is_in_place(self, end: int) -> bool:
        """Tell whether a mirror that ends at ``end`` leaves nothing to do: the group is where the source's was, or further."""
        done = self.remembered
        return done is not None and done.source == self.source and self.source <= done.destination <= end


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedOffset:
    """A group's offset that the end of a stopped mirror limits. ``before`` is the destination's offset, None: it had none."""

    group: str
    partition: int
    source: int | None
    before: int | None
    after: int | None
    message: str = ""  # why it could not be moved

"""Consumer offset sync: which groups are synced, and which offset is committed for each partition. Pure functions.

The target of a partition is ``max(mirror start, min(source's committed offset, mirror end))``. The last run is remembered per
group and partition (``Remembered``), which distinguishes three cases that look alike:

* The source's group was reset on purpose: its offset is lower than the last synced offset, and the destination's offset has not
  been changed since. The destination is rewound too.
* A user rewound the destination's group: its offset is lower than the last offset that the sync committed. It is left alone
  until the source's group commits another offset.
* The destination's group is ahead of the source's: it is never rewound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.names import NameFilter, chooses
from linkengine.domain.plans import TopicPartition

# --- decisions -----------------------------------------------------------------------------------------------------------


KINDS = ("classic", "consumer")  # types with one committed offset per partition; "": the broker does not report the type
INACTIVE = frozenset({"Empty", "Dead"})
SHOWN_LENGTH = 120  # characters of a name in a message; Kafka allows 32,767 bytes


class GroupStatus(StrEnum):
    """Sync status of a source's consumer group, including why it is skipped."""

    SYNCED = "SYNCED"
    PARTLY_SYNCED = "PARTLY_SYNCED"  # some partitions are left alone
    IN_USE = "IN_USE"  # has active members at the destination
    EXCLUDED = "EXCLUDED"  # by the filters
    NO_MIRROR_TOPIC = "NO_MIRROR_TOPIC"  # has no committed offset on a mirrored topic
    UNSUPPORTED_TYPE = "UNSUPPORTED_TYPE"  # share and streams groups
    FAILED = "FAILED"  # the group, or some of its partitions, could not be read or written
    WAITING = "WAITING"  # for a later batch
    NOT_LISTED = "NOT_LISTED"  # the source no longer lists it


# The statuses of groups that consumer offset sync leaves out.
NOT_TO_SYNC = (GroupStatus.EXCLUDED, GroupStatus.NOT_LISTED, GroupStatus.NO_MIRROR_TOPIC, GroupStatus.UNSUPPORTED_TYPE)


class OffsetOutcome(StrEnum):
    """Decision or result of a run for a partition of a group."""

    EQUAL = "EQUAL"
    ADVANCED = "ADVANCED"
    REWOUND = "REWOUND"  # the source was reset on purpose, or the mirror's log became shorter
    AHEAD = "AHEAD"  # the destination's group is ahead: left alone
    CHANGED_HERE = "CHANGED_HERE"  # the destination's group was rewound by a user: left alone
    IN_USE = "IN_USE"  # differs, but the group has active members at the destination
    FAILED = "FAILED"


SETTLED = frozenset({OffsetOutcome.EQUAL, OffsetOutcome.ADVANCED, OffsetOutcome.REWOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as a cluster lists it. ``kind`` is Kafka's group type in lower case, ``state`` Kafka's group state or ""."""

    name: str
    kind: str = ""
    state: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the group has members. False where the broker reports no state; it then refuses the commit instead."""
        return bool(self.state) and self.state not in INACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset with the consumer's metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Offsets of a partition after the last successful run: the source's when it was read, and the destination's."""

    source: int
    destination: int
    stale: bool = False  # long ago: committed again, since the offsets of a group without members expire


Memory = Mapping[TopicPartition, Remembered]  # of a group


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFacts:
    """The input of the decision about a partition of a group. ``mirror_end`` is exclusive."""

    source: Committed
    mirror_start: int
    mirror_end: int
    destination: Committed | None = None
    remembered: Remembered | None = None

    @property
    def target(self) -> int:
        """The offset the destination's group should have."""
        return max(self.mirror_start, min(self.source.offset, self.mirror_end))

    @property
    def was_touched_here(self) -> bool:
        """Whether another client has committed at the destination since the last run."""
        return (
            self.remembered is not None
            and self.destination is not None
            and self.destination.offset != self.remembered.destination
        )

    @property
    def is_held_back(self) -> bool:
        """Whether a user rewound the destination's group and the source's group has not committed since.

        An offset above the remembered offset but below the target is most likely the sync's own commit whose response was lost.
        """
        return (
            self.remembered is not None
            and self.destination is not None
            and self.destination.offset < self.remembered.destination
            and self.remembered.source == self.source.offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDecision:
    """Decision for a partition: ``target`` is committed if ``write``."""

    outcome: OffsetOutcome
    target: int
    write: bool = False


def decide(facts: OffsetFacts) -> OffsetDecision:
    """Decide about a partition of a group without active members at the destination."""
    outcome = _outcome(facts)
    fresh = outcome in {OffsetOutcome.ADVANCED, OffsetOutcome.REWOUND}
    return OffsetDecision(
        outcome=outcome, target=facts.target, write=fresh or (outcome is OffsetOutcome.EQUAL and _refresh(facts))
    )


Decided = tuple[OffsetFacts, OffsetDecision]


def agreed(first: Decided, second: Decided) -> Decided | None:
    """Return what two readings of a partition decide together, None if they contradict each other.

    ``first`` is to be committed. A single response may be damaged or out of date, so the more careful target counts: the lower
    offset of an advance, which skips no record, and the higher offset of a rewind, which repeats the fewest.
    """
    if not second[1].write:
        return second
    if first[1].outcome is not second[1].outcome:
        return None
    lower, higher = sorted((first, second), key=lambda seen: (seen[1].target, seen[0].source.offset))
    return higher if first[1].outcome is OffsetOutcome.REWOUND else lower


def settle(facts: OffsetFacts) -> OffsetDecision:
    """Decide about a partition whose mirror has just been fenced at ``mirror_end``; ``source`` is the last known offset.

    The rules of ``decide`` apply. In addition no offset stays beyond the end, regardless of who committed it, since a consumer
    would start there according to its ``auto.offset.reset``.
    """
    if facts.destination is not None and facts.destination.offset > facts.mirror_end:
        return OffsetDecision(outcome=OffsetOutcome.REWOUND, target=facts.mirror_end, write=True)
    return decide(facts)


def _outcome(facts: OffsetFacts) -> OffsetOutcome:
    destination, target, remembered = facts.destination, facts.target, facts.remembered
    if destination is None:
        return OffsetOutcome.ADVANCED
    if destination.offset == target:
        return OffsetOutcome.EQUAL
    if destination.offset < target:
        return OffsetOutcome.CHANGED_HERE if facts.is_held_back else OffsetOutcome.ADVANCED
    if remembered is None or facts.was_touched_here:
        return OffsetOutcome.AHEAD
    was_reset = facts.source.offset < remembered.source
    return OffsetOutcome.REWOUND if was_reset or destination.offset > facts.mirror_end else OffsetOutcome.AHEAD


def _refresh(facts: OffsetFacts) -> bool:
    """Return whether an equal offset is committed again: for its metadata, or so that it does not expire."""
    stale = facts.remembered is not None and facts.remembered.stale
    return stale or (facts.destination is not None and facts.destination.metadata != facts.source.metadata)


def why_skipped(group: Group, *, filters: Iterable[NameFilter]) -> tuple[GroupStatus, str] | None:
    """Return status and message of a group that is not synced whatever its offsets are; None if it may be synced."""
    if not chooses(filters, group.name):
        return GroupStatus.EXCLUDED, "consumer.offset.group.filters does not include this group."
    if group.kind and group.kind not in KINDS:
        return (
            GroupStatus.UNSUPPORTED_TYPE,
            f"Offsets of {group.kind} groups are not synced. Only classic and consumer groups are supported.",
        )
    return None


def quoted_name(name: str) -> str:
    """Return a group's name for messages: quoted, control characters escaped, at most about a line long."""
    return repr(name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}…")


def without_nul(name: str) -> str:
    """Return a name that a PostgreSQL JSON column accepts: NUL characters are replaced by their symbol."""
    return name.replace("\0", "\N{SYMBOL FOR NULL}")


def next_batch(names: Iterable[str], *, after: str, size: int) -> tuple[list[str], str]:
    """Return up to ``size`` names after ``after`` in alphabetical order, and the next ``after`` ("": start again)."""
    ordered = sorted(names)
    rest = [name for name in ordered if not after or name > after] or ordered  # a name may be empty
    batch = rest[:size]
    return batch, batch[-1] if len(rest) > size else ""


def status_of(outcomes: Iterable[OffsetOutcome], *, in_use: bool) -> GroupStatus:
    """Return the status of a group from the outcomes of its partitions."""
    found = set(outcomes)
    if in_use:
        return GroupStatus.IN_USE
    if OffsetOutcome.FAILED in found:
        return GroupStatus.FAILED
    return GroupStatus.SYNCED if found <= SETTLED else GroupStatus.PARTLY_SYNCED


# --- input and result of a run -------------------------------------------------------------------------------------------


BATCH = 200  # groups per run; each takes a handful of small requests


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """Input of a run: which groups, which topics, and where it begins in the list of groups."""

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

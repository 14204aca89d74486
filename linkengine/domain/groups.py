"""Which consumer groups follow the source, and which offset each of their partitions gets. Pure decisions.

The goal of a partition is ``max(mirror start, min(source's committed offset, mirror end))``. What was done before is remembered
per group and partition (``Remembered``), which tells apart three things that look alike:

* the source's group was reset on purpose: its offset is below the one we acted upon last, and nobody has touched the
  destination's since. The destination goes back too;
* somebody moved the destination's group back: its offset is not the one we wrote. That is left alone until the source's
  group commits something new;
* the destination's group is ahead: never moved backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.filters import NameFilter, chooses

KINDS = ("classic", "consumer")  # whose offsets are one number per partition; "" is a broker that does not tell
INACTIVE = frozenset({"Empty", "Dead"})
SHOWN_LENGTH = 120  # characters of a name in a message; Kafka allows 32,767 bytes


class GroupStatus(StrEnum):
    """How a group of the source stands at the destination, the reason for being skipped included."""

    SYNCED = "SYNCED"
    PARTLY_SYNCED = "PARTLY_SYNCED"  # some partitions are left alone
    IN_USE = "IN_USE"  # has active members at the destination
    EXCLUDED = "EXCLUDED"  # by the filters
    NO_MIRROR_TOPIC = "NO_MIRROR_TOPIC"  # has no offset on a topic that is mirrored
    UNSUPPORTED_TYPE = "UNSUPPORTED_TYPE"  # share and streams groups
    FAILED = "FAILED"  # all of it, or one partition, could not be read or written
    WAITING = "WAITING"  # for a later batch
    NOT_LISTED = "NOT_LISTED"  # the source does not show it any more


class OffsetOutcome(StrEnum):
    """What one run decided, or did, for one partition of a group."""

    EQUAL = "EQUAL"
    ADVANCED = "ADVANCED"
    REWOUND = "REWOUND"  # the source was reset on purpose, or the mirror's log became shorter
    AHEAD = "AHEAD"  # the destination's group is further: left alone
    CHANGED_HERE = "CHANGED_HERE"  # somebody moved the destination's group back: left alone
    IN_USE = "IN_USE"  # differs, but the group has active members at the destination
    FAILED = "FAILED"


SETTLED = frozenset({OffsetOutcome.EQUAL, OffsetOutcome.ADVANCED, OffsetOutcome.REWOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as a cluster lists it. ``kind`` is Kafka's group type in lower case, ``state`` Kafka's word or ""."""

    name: str
    kind: str = ""
    state: str = ""

    @property
    def is_active(self) -> bool:
        """Tell whether members are in it; where the broker does not tell, it refuses our commit instead."""
        return bool(self.state) and self.state not in INACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset with the metadata its consumer left."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the last successful run did with a partition: the source's offset it saw, the destination's it left behind."""

    source: int
    destination: int
    stale: bool = False  # long ago: written again, since offsets of a group without members expire


Place = tuple[str, int]  # mirror topic, partition
Memory = Mapping[Place, Remembered]  # of one group


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFacts:
    """All that decides about one partition of a group. ``mirror_end`` is exclusive."""

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
        """Tell whether somebody else has committed at the destination since we did."""
        return (
            self.remembered is not None
            and self.destination is not None
            and self.destination.offset != self.remembered.destination
        )

    @property
    def is_held_back(self) -> bool:
        """Tell whether somebody moved the destination's group back, and the source's has not committed since.

        Further than what we left, yet short of the goal, is most likely a commit of our own whose answer was lost.
        """
        return (
            self.remembered is not None
            and self.destination is not None
            and self.destination.offset < self.remembered.destination
            and self.remembered.source == self.source.offset
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDecision:
    """What to do with one partition: ``target`` is committed where ``write``."""

    outcome: OffsetOutcome
    target: int
    write: bool = False


def decide(facts: OffsetFacts) -> OffsetDecision:
    """Decide about one partition of a group without active members at the destination."""
    outcome = _outcome(facts)
    fresh = outcome in {OffsetOutcome.ADVANCED, OffsetOutcome.REWOUND}
    return OffsetDecision(
        outcome=outcome, target=facts.target, write=fresh or (outcome is OffsetOutcome.EQUAL and _refresh(facts))
    )


def settle(facts: OffsetFacts) -> OffsetDecision:
    """Decide about a partition whose mirror has just been fenced at ``mirror_end``; the source is what was last seen of it.

    The same rules, and on top: nothing stays beyond the end, whoever committed it, since a consumer there would start from
    whatever its auto.offset.reset says.
    """
    if facts.destination is not None and facts.destination.offset > facts.mirror_end:
        return OffsetDecision(outcome=OffsetOutcome.REWOUND, target=facts.mirror_end, write=True)
    return decide(facts)


def _outcome(facts: OffsetFacts) -> OffsetOutcome:
    here, target, remembered = facts.destination, facts.target, facts.remembered
    if here is None:
        return OffsetOutcome.ADVANCED
    if here.offset == target:
        return OffsetOutcome.EQUAL
    if here.offset < target:
        return OffsetOutcome.CHANGED_HERE if facts.is_held_back else OffsetOutcome.ADVANCED
    if remembered is None or facts.was_touched_here:
        return OffsetOutcome.AHEAD
    was_reset = facts.source.offset < remembered.source
    return OffsetOutcome.REWOUND if was_reset or here.offset > facts.mirror_end else OffsetOutcome.AHEAD


def _refresh(facts: OffsetFacts) -> bool:
    """Tell whether an equal offset is written again: for its metadata, or so that it does not expire."""
    stale = facts.remembered is not None and facts.remembered.stale
    return stale or (facts.destination is not None and facts.destination.metadata != facts.source.metadata)


def why_skipped(group: Group, *, filters: Iterable[NameFilter]) -> tuple[GroupStatus, str] | None:
    """Answer why a group of the source cannot follow, before anything is asked about its offsets; None if it may."""
    if not chooses(filters, group.name):
        return GroupStatus.EXCLUDED, "consumer.offset.group.filters does not choose this group."
    if group.kind and group.kind not in KINDS:
        return (
            GroupStatus.UNSUPPORTED_TYPE,
            f"Offsets of {group.kind} groups are not carried over; only those of classic and consumer groups are.",
        )
    return None


def shown(name: str) -> str:
    """Return the name of a group for messages: in quotes, control characters escaped, not longer than a line."""
    return repr(name if len(name) <= SHOWN_LENGTH else f"{name[:SHOWN_LENGTH]}…")


def without_nul(name: str) -> str:
    """Return a name as JSON of PostgreSQL can hold it: a NUL character is replaced by its symbol."""
    return name.replace("\0", "\N{SYMBOL FOR NULL}")


def next_batch(names: Iterable[str], *, after: str, size: int) -> tuple[list[str], str]:
    """Answer up to ``size`` names behind ``after`` in alphabetical order, and where the next batch begins ("": anew)."""
    ordered = sorted(names)
    rest = [name for name in ordered if not after or name > after] or ordered  # a name may be empty
    batch = rest[:size]
    return batch, batch[-1] if len(rest) > size else ""


def status_of(outcomes: Iterable[OffsetOutcome], *, in_use: bool) -> GroupStatus:
    """Sum the partitions of a group up."""
    found = set(outcomes)
    if in_use:
        return GroupStatus.IN_USE
    if OffsetOutcome.FAILED in found:
        return GroupStatus.FAILED
    return GroupStatus.SYNCED if found <= SETTLED else GroupStatus.PARTLY_SYNCED

"""Carry committed offsets of consumer groups over to the mirrors. What to do is decided in ``linkengine.domain.groups``.

Order of the looks: the source's offsets, then the destination's, then the mirrors' ends. A mirror that grows meanwhile only
allows more. One group that cannot be read or written is that group's outcome and stops no other.

A mirror may be failed over while a run is under way: fenced, its groups clamped to its end, producers let in. An end that is
read after that counts the producers' records, too, and would lead groups past records that nobody has read. Therefore, once
the ends were read, we ask which mirrors groups still follow (``Following``). A stop is marked before its fence is written, so
where no mark is seen the ends are older than the fence, and no target is beyond it. We ask again right before each commit. One
that is on its way at that very moment may still arrive behind the clamping. It skips nothing: it is where the source's own
group was, or the end of what was mirrored then. At worst the group reads some records a second time, or a position that a
person set in that moment is gone: Kafka knows no commit under a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import GroupOutcome, GroupReport, GroupSync, PartitionOutcome
from linkengine.domain.groups import (
    Committed,
    Group,
    GroupStatus,
    Memory,
    OffsetDecision,
    OffsetFacts,
    OffsetOutcome,
    Place,
    decide,
    next_batch,
    shown,
    status_of,
    why_skipped,
)
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_groups import GroupInUseError, MetadataLeftOutError, Offsets
from linkengine.sync.grouptopics import check_unreplaced, unreplaced

Recall = Callable[[Sequence[str]], Mapping[str, Memory]]  # groups of the source -> what was done with them before
Following = Callable[[Collection[str]], Collection[str]]  # mirror topics -> those that groups follow at this moment
_NAMED_AT_MOST = 5  # partitions listed in a message
Refusals = Mapping[str, Mapping[Place, LinkEngineError | None]]
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Case:
    """One group that may follow, and what was found of it."""

    group: Group
    name: str  # at the destination
    in_use: bool
    is_listed: bool
    decisions: dict[Place, tuple[OffsetFacts, OffsetDecision]] = field(default_factory=dict)
    blind: dict[Place, int] = field(default_factory=dict)  # source's offsets where the mirror does not tell its own
    error: LinkEngineError | None = None

    def forget(self, places: Iterable[Place]) -> None:
        """Say nothing of places whose mirror was stopped meanwhile."""
        for place in places:
            del self.decisions[place]

    @property
    def is_gone(self) -> bool:
        """Tell whether the source has deleted the group: it is not listed, and holds no offset that we care for."""
        return not (self.is_listed or self.error or self.decisions or self.blind)

    @property
    def writes(self) -> dict[Place, Committed]:
        """What is to be committed; nothing in the name of a group with members."""
        return {
            place: Committed(offset=decision.target, metadata=facts.source.metadata)
            for place, (facts, decision) in self.decisions.items()
            if decision.write and not self.in_use
        }


def sync_groups(
    source: ClusterAdmin, destination: ClusterAdmin, sync: GroupSync, *, recall: Recall, following: Following
) -> GroupReport:
    """Carry one batch of groups over and say of every group of the source how it stands.

    Mirrors that are not ``following`` any more are left as they are, and out of the report. Raises what keeps us from either
    cluster as a whole.
    """
    listed, incomplete = source.groups()
    unlisted = [] if incomplete else _unlisted(listed, sync)
    skipped = {name: reason for name, one in listed.items() if (reason := why_skipped(one, filters=sync.filters))}
    able = [name for name in listed if name not in skipped]
    batch, next_after = (able, "") if sync.batch is None else next_batch(able, after=sync.after, size=sync.batch)
    asked = {name: listed[name] for name in batch} | {one.name: one for one in unlisted}
    ours, _ = destination.groups() if asked else ({}, "")
    cases = [_case(one, ours, is_listed=one.name in listed, prefix=sync.group_prefix) for one in asked.values()]
    _examine(source, destination, cases, sync, memories=recall(list(asked)) if asked else {}, following=following)
    refusals = _write(destination, cases, following=following)
    waiting = set(able) - set(batch)
    outcomes = [_outcome(case, refusals.get(case.name, {})) for case in cases if not case.is_gone]
    outcomes += [_skipped(listed[name], *reason, prefix=sync.group_prefix) for name, reason in skipped.items()]
    outcomes += [_skipped(listed[name], GroupStatus.WAITING, "", prefix=sync.group_prefix) for name in sorted(waiting)]
    return GroupReport(groups=outcomes, next_after=next_after, incomplete=incomplete)


def _unlisted(listed: Collection[str], sync: GroupSync) -> list[Group]:
    """Choose the groups that an earlier run knew. They were deleted, or are hidden, and only their offsets tell which."""
    return [one for one in sync.known if one.name not in listed and not why_skipped(one, filters=sync.filters)]


def _case(group: Group, ours: Mapping[str, Group], *, is_listed: bool, prefix: str) -> _Case:
    name = f"{prefix}{group.name}"
    return _Case(group=group, name=name, in_use=name in ours and ours[name].is_active, is_listed=is_listed)


def _examine(
    source: ClusterAdmin,
    destination: ClusterAdmin,
    cases: Sequence[_Case],
    sync: GroupSync,
    *,
    memories: Mapping[str, Memory],
    following: Following,
) -> None:
    """Find out and decide, for every case, about the partitions of mirrored topics it has an offset for."""
    goals, failures = _goals(source, cases, sync)
    present, refusals = destination.committed([case.name for case in cases if goals.get(case.group.name)])
    places = sorted({place for offsets in goals.values() for place in offsets})
    starts, ends = destination.many_offsets(places, OffsetKind.START), destination.many_offsets(places, OffsetKind.END)
    followed = _followed(source, destination, {topic for topic, _ in places}, sync, following=following)  # not before the ends
    for case in cases:
        case.error = failures.get(case.group.name) or refusals.get(case.name)
        memory = memories.get(case.group.name, {})
        wanted = goals.get(case.group.name, {}) if case.error is None else {}
        for place, offset in wanted.items():
            if place[0] not in followed:
                continue
            if place not in starts or place not in ends:
                case.blind[place] = offset.offset
            else:
                facts = OffsetFacts(
                    source=offset,
                    mirror_start=starts[place],
                    mirror_end=ends[place],
                    destination=present.get(case.name, {}).get(place),
                    remembered=memory.get(place),
                )
                case.decisions[place] = (facts, decide(facts))


def _followed(
    source: ClusterAdmin, destination: ClusterAdmin, topics: Collection[str], sync: GroupSync, *, following: Following
) -> set[str]:
    """Choose the mirror topics that groups follow and whose offsets mean on both sides what they meant; raise if strict."""
    asked = [one for one in sync.topics if sync.strict or one.mirror_topic in topics]
    same = unreplaced(source, destination, asked)
    if sync.strict:
        check_unreplaced(source, destination, [one for one in asked if one.mirror_topic not in same])
        return set(following(topics))
    return same & set(following(topics))


def _goals(
    source: ClusterAdmin, cases: Sequence[_Case], sync: GroupSync
) -> tuple[dict[str, dict[Place, Committed]], dict[str, LinkEngineError]]:
    """Read, by group and partition of a mirror, what the groups have committed at the source."""
    mirrored = {(one.source_topic, n): (one.mirror_topic, n) for one in sync.topics for n in range(one.partitions)}
    names = [case.group.name for case in cases]
    found, failures = source.committed(names, stable_at=mirrored if sync.strict else None)
    goals = {
        name: {mirrored[place]: offset for place, offset in offsets.items() if place in mirrored}
        for name, offsets in found.items()
    }
    return goals, failures


def _write(destination: ClusterAdmin, cases: Iterable[_Case], *, following: Following) -> Refusals:
    def still_due(offsets: Offsets) -> Offsets:
        followed = following({topic for topic, _ in offsets})
        return {place: one for place, one in offsets.items() if place[0] in followed}

    writing = [case for case in cases if case.writes]
    answers = destination.commit({case.name: case.writes for case in writing}, still_due=still_due) if writing else {}
    for case in writing:
        case.forget(case.writes.keys() - answers[case.name].keys())
    return answers


def _outcome(case: _Case, refusals: Mapping[Place, LinkEngineError | None]) -> GroupOutcome:
    if case.error is not None:
        log.info("group_not_synced", group=case.group.name, code=case.error.code)
        message = case.error.message if case.is_listed else _why_unlisted(case.error)
        return replace(_skipped(case.group, GroupStatus.FAILED, message, name=case.name), is_listed=case.is_listed)
    if not case.decisions and not case.blind:
        message = "This group has committed no offset for a topic that the link mirrors now."
        return _skipped(case.group, GroupStatus.NO_MIRROR_TOPIC, message, name=case.name)
    in_use = case.in_use or any(isinstance(error, GroupInUseError) for error in refusals.values())
    partitions = (
        *(_partition(place, *both, error=refusals.get(place), in_use=in_use) for place, both in sorted(case.decisions.items())),
        *(_blind(place, source) for place, source in sorted(case.blind.items())),
    )
    status = status_of((one.outcome for one in partitions), in_use=in_use)
    message = _left_out(partitions) or next((one.message for one in partitions if one.message), "")
    if in_use:
        message = (
            f"Group {shown(case.name)} has active members on the destination cluster, so its offsets are not touched. Exclude "
            "it in consumer.offset.group.filters once its consumers have moved, or stop them here."
        )
    return GroupOutcome(
        name=case.group.name,
        destination_name=case.name,
        kind=case.group.kind,
        status=status,
        message=message,
        partitions=partitions,
        is_listed=case.is_listed,
    )


def _partition(
    place: Place, facts: OffsetFacts, decision: OffsetDecision, *, error: LinkEngineError | None, in_use: bool
) -> PartitionOutcome:
    here = facts.destination.offset if facts.destination else None
    done = PartitionOutcome(
        mirror_topic=place[0],
        partition=place[1],
        source=facts.source.offset,
        destination=here,
        target=decision.target,
        outcome=decision.outcome,
    )
    if in_use:
        equal = decision.outcome is OffsetOutcome.EQUAL
        return replace(done, outcome=OffsetOutcome.EQUAL if equal else OffsetOutcome.IN_USE)
    if isinstance(error, MetadataLeftOutError):
        moved = decision.outcome is not OffsetOutcome.EQUAL  # else it is repeated in each run, which changes nothing
        return replace(
            done, destination=decision.target, written=moved, message=f"{place[0]} partition {place[1]}: {error.message}"
        )
    if error is not None:
        return replace(done, outcome=OffsetOutcome.FAILED, message=error.message)
    if decision.write:
        return replace(done, destination=decision.target, written=True)
    return replace(done, message=_why_left(decision.outcome, done))


def _left_out(partitions: Sequence[PartitionOutcome]) -> str:
    """Return which offsets of a group were refused, how many follow all the same, and the first reason; "" if none was."""
    failed = [one for one in partitions if one.outcome is OffsetOutcome.FAILED]
    if not failed:
        return ""
    named = ", ".join(f"{one.mirror_topic} partition {one.partition}" for one in failed[:_NAMED_AT_MOST])
    more = f" and {len(failed) - _NAMED_AT_MOST} more" if len(failed) > _NAMED_AT_MOST else ""
    return f"{len(failed)} of {len(partitions)} offsets are left out, the others follow: {named}{more}. {failed[0].message}"


def _blind(place: Place, source: int) -> PartitionOutcome:
    message = f"Partition {place[1]} of mirror topic {place[0]!r} does not tell its offsets: it has no leader now. Retrying."
    return PartitionOutcome(
        mirror_topic=place[0],
        partition=place[1],
        source=source,
        destination=None,
        target=source,
        outcome=OffsetOutcome.FAILED,
        message=message,
    )


def _why_left(outcome: OffsetOutcome, one: PartitionOutcome) -> str:
    where = f"{one.mirror_topic} partition {one.partition}"
    if outcome is OffsetOutcome.AHEAD:
        return (
            f"In {where} the group is at {one.destination} here and at {one.source} on the source. Offsets are never moved "
            "backwards; the source's are followed again once they are higher."
        )
    if outcome is OffsetOutcome.CHANGED_HERE:
        return (
            f"In {where} somebody moved the group to {one.destination} here; the source is at {one.source}. That stays until "
            "the source's group commits again."
        )
    return ""


def _why_unlisted(error: LinkEngineError) -> str:
    return (
        f"The source does not list this group any more and does not tell its offsets. {error.message} If it was deleted for "
        "good, exclude it in consumer.offset.group.filters."
    )


def _skipped(group: Group, status: GroupStatus, message: str, *, prefix: str = "", name: str = "") -> GroupOutcome:
    return GroupOutcome(
        name=group.name, destination_name=name or f"{prefix}{group.name}", kind=group.kind, status=status, message=message
    )

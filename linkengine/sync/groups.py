"""Consumer offset sync: copy committed offsets of consumer groups to the mirrors.

``linkengine.domain.groups`` decides what happens to each offset. A group that cannot be read or written gets an outcome of its
own and does not stop the others.

Order of the reads: offsets at the source, offsets at the destination, log starts and ends of the mirrors. A mirror that grows
between them only raises the limit.

Kafka's protocol has no checksum over these numbers, and a coordinator that was cut off from the other brokers returns old
offsets. So everything is read a second time for each group that is to be moved, and only what both readings decide is
committed, at the more careful of the two targets (``agreed``). Before a group is moved backwards, all brokers of the source
have to respond.

Failover during a run. A failover fences the mirror, clamps the groups to its end and then admits producers. A log end that is
read after that includes the producers' records, and a commit at that offset would skip records that no consumer has read.

* After the log ends are read, ``Following`` returns the mirrors that groups still follow. A stop is recorded before its fence
  is written, so a mirror that is still followed had no fence when its end was read, and no target lies beyond the fence.
* ``Following`` is called again right before each commit request.
* A commit that is in flight at that moment may still arrive after the clamping. It skips nothing: its offset is that of the
  source's group, or the end of what was mirrored then. At worst the group reads some records twice, or a position that a user
  set in that moment is lost: Kafka has no conditional commit.

A committed offset must belong to the topic that the mirror was created from, and to the same mirror. It names its topic but not
the topic id. If the source topic or the mirror was deleted and recreated, the same offset is another record: syncing it would
make a group read everything again, or skip records that it has not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groups import (
    Committed,
    Decided,
    Group,
    GroupOutcome,
    GroupReport,
    GroupStatus,
    GroupSync,
    Memory,
    MirroredTopic,
    OffsetDecision,
    OffsetFacts,
    OffsetOutcome,
    PartitionOutcome,
    agreed,
    decide,
    next_batch,
    quoted_name,
    status_of,
    why_skipped,
)
from linkengine.domain.plans import TopicPartition
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_groups import GroupInUseError, MetadataLeftOutError, Offsets
from linkengine.sync.topics import find_mirror, missing_mirror, observe_sources

Recall = Callable[[Sequence[str]], Mapping[str, Memory]]  # groups of the source -> their offsets of earlier runs
Following = Callable[[Collection[str]], Collection[str]]  # mirror topics -> those that groups follow now
_NAMED_AT_MOST = 5  # partitions listed in a message
Refusals = Mapping[str, Mapping[TopicPartition, LinkEngineError | None]]
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Case:
    """A group that may be synced, with what was read about it."""

    group: Group
    name: str  # at the destination
    in_use: bool
    is_listed: bool
    decisions: dict[TopicPartition, Decided] = field(default_factory=dict)
    # the source's offset, and why nothing was decided
    undecided: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    error: LinkEngineError | None = None

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Drop the places whose mirror was stopped during the run."""
        for place in places:
            self.decisions.pop(place, None)
            self.undecided.pop(place, None)

    @property
    def places(self) -> set[TopicPartition]:
        """The partitions of mirrors that the group has committed offsets for."""
        return {*self.decisions, *self.undecided}

    @property
    def rewinds(self) -> bool:
        """True if an offset is to be moved backwards."""
        return any(self.decisions[place][1].outcome is OffsetOutcome.REWOUND for place in self.writes)

    @property
    def is_gone(self) -> bool:
        """True if the source has deleted the group: it is not listed and holds no offset of a mirrored topic."""
        return not (self.is_listed or self.error or self.places)

    @property
    def writes(self) -> dict[TopicPartition, Committed]:
        """The offsets to commit; none for a group with members."""
        return {
            place: Committed(offset=decision.target, metadata=facts.source.metadata)
            for place, (facts, decision) in self.decisions.items()
            if decision.write and not self.in_use
        }


def sync_groups(
    source: ClusterAdmin, destination: ClusterAdmin, sync: GroupSync, *, recall: Recall, following: Following
) -> GroupReport:
    """Sync a batch of groups; return the status of every group of the source.

    Mirrors that are no longer ``following`` are left as they are and out of the report. Raises LinkEngineError if a cluster
    cannot be read at all.
    """
    listed, incomplete = source.groups()
    unlisted = [] if incomplete else _unlisted(listed, sync)
    skipped = {name: reason for name, group in listed.items() if (reason := why_skipped(group, filters=sync.filters))}
    syncable = [name for name in listed if name not in skipped]
    batch, next_after = (syncable, "") if sync.batch is None else next_batch(syncable, after=sync.after, size=sync.batch)
    chosen = {name: listed[name] for name in batch} | {group.name: group for group in unlisted}
    local, _ = destination.groups() if chosen else ({}, "")
    cases = [_case(group, local, is_listed=group.name in listed, prefix=sync.group_prefix) for group in chosen.values()]
    _examine(source, destination, cases, sync, memories=recall(list(chosen)) if chosen else {}, following=following)
    refusals = _write(destination, cases, following=following)
    waiting = set(syncable) - set(batch)
    outcomes = [_outcome(case, refusals.get(case.name, {})) for case in cases if not case.is_gone]
    outcomes += [_skipped(listed[name], *reason, prefix=sync.group_prefix) for name, reason in skipped.items()]
    outcomes += [_skipped(listed[name], GroupStatus.WAITING, "", prefix=sync.group_prefix) for name in sorted(waiting)]
    return GroupReport(groups=outcomes, next_after=next_after, incomplete=incomplete)


def _unlisted(listed: Collection[str], sync: GroupSync) -> list[Group]:
    """Return the groups of earlier runs that are not listed now. They were deleted or are hidden; their offsets show which."""
    return [group for group in sync.known if group.name not in listed and not why_skipped(group, filters=sync.filters)]


def _case(group: Group, local: Mapping[str, Group], *, is_listed: bool, prefix: str) -> _Case:
    name = f"{prefix}{group.name}"
    return _Case(group=group, name=name, in_use=name in local and local[name].is_active, is_listed=is_listed)


def _examine(
    source: ClusterAdmin,
    destination: ClusterAdmin,
    cases: Sequence[_Case],
    sync: GroupSync,
    *,
    memories: Mapping[str, Memory],
    following: Following,
) -> None:
    """Read the offsets and decide, for every case, about the partitions of mirrored topics that the group has committed."""
    observed = _observe(source, destination, cases, sync, memories=memories)
    for case in cases:
        found = observed[case.group.name]
        if isinstance(found, LinkEngineError):
            case.error = found
        else:
            case.undecided = {place: (offset, _no_leader(place)) for place, offset in found.unreadable.items()}
            case.decisions = {place: (facts, decide(facts)) for place, facts in found.facts.items()}
    moved = [case for case in cases if case.writes]
    again = _observe(source, destination, [case for case in moved if not case.rewinds], sync, memories=memories)
    again |= _observe(source, destination, [case for case in moved if case.rewinds], sync, memories=memories, certain=True)
    for case in moved:
        _confirm(case, again[case.group.name])
    topics = {topic for case in cases for topic, _ in case.places}
    followed = _followed(source, destination, topics, sync, following=following)  # after the ends
    for case in cases:
        case.forget([place for place in case.places if place[0] not in followed])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """Offsets of a group as read, by partition of a mirror."""

    facts: Mapping[TopicPartition, OffsetFacts]
    unreadable: Mapping[TopicPartition, int]  # the source's offsets where the mirror's own are unknown


def _observe(
    source: ClusterAdmin,
    destination: ClusterAdmin,
    cases: Sequence[_Case],
    sync: GroupSync,
    *,
    memories: Mapping[str, Memory],
    certain: bool = False,
) -> dict[str, _Observed | LinkEngineError]:
    """Return what both clusters show of each group, by its name at the source, or why it cannot be read.

    ``certain``: no group can be read while a silent broker of the source may have newer offsets.
    """
    if not cases:
        return {}
    try:
        source_offsets, failures = _source_offsets(source, cases, sync, certain=certain)
    except LinkEngineError as error:
        if not certain:
            raise
        return {case.group.name: error for case in cases}
    present, refusals = destination.committed([case.name for case in cases if source_offsets.get(case.group.name)])
    places = sorted({place for offsets in source_offsets.values() for place in offsets})
    starts, ends = destination.many_offsets(places, OffsetKind.START), destination.many_offsets(places, OffsetKind.END)
    results: dict[str, _Observed | LinkEngineError] = {}
    for case in cases:
        refusal = failures.get(case.group.name) or refusals.get(case.name)
        memory, offsets = memories.get(case.group.name, {}), source_offsets.get(case.group.name, {})
        facts = {
            place: OffsetFacts(
                source=offset,
                mirror_start=starts[place],
                mirror_end=ends[place],
                destination=present.get(case.name, {}).get(place),
                remembered=memory.get(place),
            )
            for place, offset in offsets.items()
            if place in starts and place in ends
        }
        unreadable = {place: offset.offset for place, offset in offsets.items() if place not in facts}
        results[case.group.name] = refusal or _Observed(facts=facts, unreadable=unreadable)
    return results


def _confirm(case: _Case, found: _Observed | LinkEngineError) -> None:
    """Remove the offsets that a second reading does not confirm from those to be committed."""
    if isinstance(found, LinkEngineError):
        case.error, case.decisions = found, {}
        return
    for place in case.writes:
        first, facts = case.decisions.pop(place), found.facts.get(place)
        both = agreed(first, (facts, decide(facts))) if facts is not None else None
        if both is not None:
            case.decisions[place] = both
        else:
            case.undecided[place] = first[0].source.offset, _contradictory(place)


def _followed(
    source: ClusterAdmin, destination: ClusterAdmin, topics: Collection[str], sync: GroupSync, *, following: Following
) -> set[str]:
    """Return the mirror topics that groups follow and that were not recreated on either side; if strict, raise for those."""
    checked = [topic for topic in sync.topics if sync.strict or topic.mirror_topic in topics]
    same = same_topics(source, destination, checked)
    if sync.strict:
        check_same_topics(source, destination, [topic for topic in checked if topic.mirror_topic not in same])
        return set(following(topics))
    return same & set(following(topics))


def _source_offsets(
    source: ClusterAdmin, cases: Sequence[_Case], sync: GroupSync, *, certain: bool
) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, LinkEngineError]]:
    """Return, by group and mirror partition, the offsets that are committed at the source, and the errors by group."""
    mirrored = {(topic.source_topic, n): (topic.mirror_topic, n) for topic in sync.topics for n in range(topic.partitions)}
    names = [case.group.name for case in cases]
    found, failures = source.committed(names, stable_at=mirrored if sync.strict else None, certain=certain)
    source_offsets = {
        name: {mirrored[place]: offset for place, offset in offsets.items() if place in mirrored}
        for name, offsets in found.items()
    }
    return source_offsets, failures


def _write(destination: ClusterAdmin, cases: Iterable[_Case], *, following: Following) -> Refusals:
    def still_due(offsets: Offsets) -> Offsets:
        followed = following({topic for topic, _ in offsets})
        return {place: offset for place, offset in offsets.items() if place[0] in followed}

    writing = [case for case in cases if case.writes]
    results = destination.commit({case.name: case.writes for case in writing}, still_due=still_due) if writing else {}
    for case in writing:
        case.forget(case.writes.keys() - results[case.name].keys())
    return results


def _outcome(case: _Case, refusals: Mapping[TopicPartition, LinkEngineError | None]) -> GroupOutcome:
    if case.error is not None:
        log.info("group.not_synced", group=case.group.name, code=case.error.code)
        message = case.error.message if case.is_listed else _unlisted_message(case.error)
        return replace(_skipped(case.group, GroupStatus.FAILED, message, name=case.name), is_listed=case.is_listed)
    if not case.places:
        message = "This group has committed no offset for a topic that the link mirrors now."
        return _skipped(case.group, GroupStatus.NO_MIRROR_TOPIC, message, name=case.name)
    in_use = case.in_use or any(isinstance(error, GroupInUseError) for error in refusals.values())
    partitions = (
        *(_partition(place, *both, error=refusals.get(place), in_use=in_use) for place, both in sorted(case.decisions.items())),
        *(_undecided(place, *known) for place, known in sorted(case.undecided.items())),
    )
    status = status_of((partition.outcome for partition in partitions), in_use=in_use)
    message = _refusal_summary(partitions) or next((partition.message for partition in partitions if partition.message), "")
    if in_use:
        message = (
            f"Group {quoted_name(case.name)} has active members on the destination cluster, so its offsets are not touched. "
            "Exclude it in consumer.offset.group.filters once its consumers have moved, or stop them here."
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
    place: TopicPartition, facts: OffsetFacts, decision: OffsetDecision, *, error: LinkEngineError | None, in_use: bool
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
    return replace(done, message=_reason_unchanged(decision.outcome, done))


def _refusal_summary(partitions: Sequence[PartitionOutcome]) -> str:
    """Return which offsets of a group were refused, that the others are synced, and the first reason; "" if none was."""
    failed = [failure for failure in partitions if failure.outcome is OffsetOutcome.FAILED]
    if not failed:
        return ""
    named = ", ".join(f"{failure.mirror_topic} partition {failure.partition}" for failure in failed[:_NAMED_AT_MOST])
    more = f" and {len(failed) - _NAMED_AT_MOST} more" if len(failed) > _NAMED_AT_MOST else ""
    return f"{len(failed)} of {len(partitions)} offsets are left out, the others follow: {named}{more}. {failed[0].message}"


def _no_leader(place: TopicPartition) -> str:
    return f"Partition {place[1]} of mirror topic {place[0]!r} returns no offsets: it has no leader now. Retrying."


def _contradictory(place: TopicPartition) -> str:
    return f"Two readings of the group's offsets in {place[0]} partition {place[1]} contradict each other. Retrying."


def _undecided(place: TopicPartition, source: int, message: str) -> PartitionOutcome:
    return PartitionOutcome(
        mirror_topic=place[0],
        partition=place[1],
        source=source,
        destination=None,
        target=source,
        outcome=OffsetOutcome.FAILED,
        message=message,
    )


def _reason_unchanged(outcome: OffsetOutcome, partition: PartitionOutcome) -> str:
    where = f"{partition.mirror_topic} partition {partition.partition}"
    if outcome is OffsetOutcome.AHEAD:
        return (
            f"In {where} the group is at {partition.destination} here and at {partition.source} on the source. Offsets are "
            "never moved backwards; the source's are followed again once they are higher."
        )
    if outcome is OffsetOutcome.CHANGED_HERE:
        return (
            f"In {where} the group was moved to {partition.destination} on this cluster; the source is at {partition.source}. "
            "The position stays until the source's group commits again."
        )
    return ""


def _unlisted_message(error: LinkEngineError) -> str:
    return (
        f"The source no longer lists this group, and its offsets cannot be read. {error.message} If it was deleted "
        "permanently, exclude it in consumer.offset.group.filters."
    )


def _skipped(group: Group, status: GroupStatus, message: str, *, prefix: str = "", name: str = "") -> GroupOutcome:
    return GroupOutcome(
        name=group.name, destination_name=name or f"{prefix}{group.name}", kind=group.kind, status=status, message=message
    )


def same_topics(source: ClusterAdmin, destination: ClusterAdmin, topics: Sequence[MirroredTopic]) -> set[str]:
    """Return the mirror topics whose ids on both sides are those noted at creation; a request per side and 500 topics.

    Call this after the offsets were read: Kafka never reuses a topic id, so offsets read before belong to the topic that still
    has the id.
    """
    source_ids = _ids(source, {topic.source_topic for topic in topics})
    destination_ids = _ids(destination, {topic.mirror_topic for topic in topics})
    return {
        topic.mirror_topic
        for topic in topics
        if _is_same(source_ids.get(topic.source_topic), topic.source_topic_id)
        and _is_same(destination_ids.get(topic.mirror_topic), topic.mirror_topic_id)
    }


def check_same_topics(source: ClusterAdmin, destination: ClusterAdmin, topics: Iterable[MirroredTopic]) -> None:
    """Check each topic again; raise SOURCE_TOPIC_ID_CHANGED, SOURCE_TOPIC_MAY_BE_DELETED or MIRROR_TOPIC_MISSING."""
    for topic in topics:
        observed = observe_sources(source, {topic.source_topic: topic.source_topic_id})[topic.source_topic]
        if isinstance(observed, LinkEngineError):
            raise observed
        if find_mirror(destination, topic.mirror_topic, topic_id=topic.mirror_topic_id) is None:
            raise missing_mirror(topic.mirror_topic)


def _ids(admin: ClusterAdmin, names: Iterable[str]) -> dict[str, str]:
    return {topic.name: topic.topic_id for topic in admin.topics(names, with_configs=False)}


def _is_same(found: str | None, noted: str) -> bool:
    return found is not None and noted in {"", found}

"""Move consumer group offsets to their final position in a stopped mirror, at most its end. The source is not contacted.

The source may be gone. A group that had read further on the source than was mirrored resumes at the mirror's end, so it misses
nothing that is written there from now on. ``linkengine.domain.groups`` decides where each offset belongs.

No later run corrects these offsets, and Kafka's protocol has no checksum over the numbers that they follow from. So a group is
moved only if two readings of it agree; of several log starts the lowest counts, for they only grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import (
    ClampedOffset,
    Committed,
    KnownOffset,
    OffsetDecision,
    OffsetFacts,
    quoted_name,
    settle,
)
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped
from linkengine.domain.plans import TopicDescription, TopicPartition
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_groups import MetadataLeftOutError

READINGS = 4  # of a group, two of which have to agree
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    known: KnownOffset
    place: TopicPartition
    facts: OffsetFacts
    decision: OffsetDecision

    @property
    def before(self) -> int | None:
        return self.facts.destination.offset if self.facts.destination else None

    @property
    def commit(self) -> Committed:
        metadata = self.facts.destination.metadata if self.facts.destination else ""
        return Committed(offset=self.decision.target, metadata=metadata)


def clamp_groups(
    destination: ClusterAdmin, mirror_topic: str, *, ends: Mapping[int, int], known: Iterable[KnownOffset]
) -> list[ClampedOffset]:
    """Move the groups' offsets to where they belong in a mirror fenced at ``ends``; return those that the end limits.

    A group that has members, or cannot be read or written, is left as it is and returned with the reason. Idempotent.
    No request is sent where every group is in place already, as is usual without lag: a thousand mirrors must stop in seconds.
    """
    by_group: dict[str, list[KnownOffset]] = {}
    for offset in known:
        if offset.partition in ends and not offset.is_in_place(ends[offset.partition]):
            by_group.setdefault(offset.group, []).append(offset)
    if not by_group:
        return []
    cases, failures = _agreed_cases(destination, by_group, mirror_topic, ends=ends)
    refusals = _write(destination, cases)
    clamped = [
        _clamped(case, refusals.get(name, {}).get(case.place))
        for name, group in cases.items()
        for case in group
        if _is_limited(case) or refusals.get(name, {}).get(case.place)
    ]
    return clamped + [_unread_offset(offset, failures[name]) for name in failures for offset in by_group[name]]


def _agreed_cases(
    destination: ClusterAdmin, by_group: Mapping[str, list[KnownOffset]], mirror_topic: str, *, ends: Mapping[int, int]
) -> tuple[dict[str, list[_Case]], dict[str, LinkEngineError]]:
    """Return what to do by group, and the errors of the groups that cannot be read or whose readings contradict each other."""
    places = [(mirror_topic, partition) for partition in ends]
    starts: dict[TopicPartition, int] = {}
    readings: list[dict[str, list[_Case]]] = []
    failures: dict[str, LinkEngineError] = {}
    agreed: dict[str, list[_Case]] = {}
    for _ in range(READINGS):
        open_groups = by_group.keys() - agreed.keys() - failures.keys()
        if not open_groups:
            break
        present, unread = destination.committed(sorted(open_groups))
        failures |= unread
        for place, start in destination.many_offsets(places, OffsetKind.START).items():
            starts[place] = min(start, starts.get(place, start))
        cases = {
            name: [
                _case(offset, present[name], (mirror_topic, offset.partition), end=ends[offset.partition], starts=starts)
                for offset in by_group[name]
            ]
            for name in open_groups - unread.keys()
            if name in present
        }
        agreed |= {name: found for name, found in cases.items() if _settles(found, [seen.get(name) for seen in readings])}
        readings.append(cases)
    return agreed, failures | {name: _contradictory(name) for name in by_group.keys() - agreed.keys() - failures.keys()}


def _settles(found: list[_Case], earlier: Sequence[list[_Case] | None]) -> bool:
    """Return whether a reading of a group counts: it moves nothing, or an earlier reading was the same."""
    return not any(case.decision.write for case in found) or found in earlier


def _contradictory(name: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The offsets of consumer group {quoted_name(name)} were different each time they were read, so they are not moved. "
        "Check them, and set them by hand if needed.",
    )


def unread_groups(known: Iterable[KnownOffset], *, ends: Mapping[int, int], error: LinkEngineError) -> list[ClampedOffset]:
    """Return the error for every group that may not be in place, for use when the cluster does not respond."""
    return [
        _unread_offset(offset, error)
        for offset in known
        if offset.partition in ends and not offset.is_in_place(ends[offset.partition])
    ]


def _case(
    offset: KnownOffset,
    present: Mapping[TopicPartition, Committed],
    place: TopicPartition,
    *,
    end: int,
    starts: Mapping[TopicPartition, int],
) -> _Case:
    facts = OffsetFacts(
        source=Committed(offset=offset.source),
        mirror_start=min(starts.get(place, 0), end),
        mirror_end=end,
        destination=present.get(place),
        remembered=offset.remembered,
    )
    return _Case(known=offset, place=place, facts=facts, decision=_without_refresh(settle(facts), facts))


def _without_refresh(decision: OffsetDecision, facts: OffsetFacts) -> OffsetDecision:
    """Drop the write where the offset is equal: it would only refresh the source's metadata, which is not known here."""
    equal = facts.destination is not None and facts.destination.offset == decision.target
    return OffsetDecision(outcome=decision.outcome, target=decision.target, write=decision.write and not equal)


def _write(
    destination: ClusterAdmin, cases: Mapping[str, list[_Case]]
) -> dict[str, dict[TopicPartition, LinkEngineError | None]]:
    """Commit the offsets; return the errors. A commit that only lost its metadata counts as successful."""
    wanted = {name: {case.place: case.commit for case in group if case.decision.write} for name, group in cases.items()}
    results = destination.commit({name: places for name, places in wanted.items() if places})
    return {
        name: {place: None if isinstance(error, MetadataLeftOutError) else error for place, error in found.items()}
        for name, found in results.items()
    }


def _is_limited(case: _Case) -> bool:
    end = case.facts.mirror_end
    return case.known.source > end or (case.before is not None and case.before > end)


def _clamped(case: _Case, error: LinkEngineError | None) -> ClampedOffset:
    return ClampedOffset(
        group=case.known.group,
        partition=case.known.partition,
        source=case.known.source,
        before=case.before,
        after=case.decision.target if case.decision.write and error is None else case.before,
        message=error.message if error else "",
    )


def _unread_offset(offset: KnownOffset, error: LinkEngineError) -> ClampedOffset:
    return ClampedOffset(
        group=offset.group, partition=offset.partition, source=offset.source, before=None, after=None, message=error.message
    )


def clamp_stopped(
    destination: ClusterAdmin, topic: TopicDescription, stop: MirrorStop, stopped: MirrorStopped
) -> list[ClampedOffset]:
    """Move the offsets of groups to where they belong in the fenced mirror, unless an earlier attempt has allowed writes.

    Since then a group may have read new records, which it would read a second time.
    """
    ends = dict(stopped.ends) | dict(stopped.foreign)
    try:
        if _has_allowed_writes(destination, topic, stop):
            log.info("mirror.groups_left", topic=topic.name)
            return []
        return clamp_groups(destination, topic.name, ends=ends, known=stop.group_offsets)
    except LinkEngineError as error:  # a failing coordinator must not delay producers
        log.warning("mirror.groups_not_moved", topic=topic.name, code=error.code)
        return unread_groups(stop.group_offsets, ends=ends, error=error)


def _has_allowed_writes(destination: ClusterAdmin, topic: TopicDescription, stop: MirrorStop) -> bool:
    """Return whether an earlier attempt, which recorded fences, has also allowed writes.

    Its DENY WRITE is gone then. Not all of its fences need to be recorded: the console's database may have been restored from a
    backup in which some were missing. A topic that cannot be guarded has lost a mirror's configs instead, which are the last
    thing that a stop changes. ACLs and configs that the principal may not read do not count as gone.
    """
    if not stop.fenced_ends:
        return False
    if stop.guard and destination.has_authorizer():
        return destination.lacks_deny_write(topic.name)
    return not has_mirror_configs(topic.configs) and topic.name in destination.effective_configs_of([topic.name])

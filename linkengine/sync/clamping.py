"""Bring the offsets of groups to the end of a mirror that is stopped. The source is not asked: it may be gone.

Where a group had read further on the source than was mirrored, it goes on at the mirror's end and misses nothing that is
written there from now on. The decisions are those of ``linkengine.domain.groups``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import ClampedOffset, KnownOffset
from linkengine.domain.groups import Committed, OffsetDecision, OffsetFacts, Place, settle
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.admin_groups import MetadataLeftOutError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    known: KnownOffset
    place: Place
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
    """Move the groups' offsets where they belong in a mirror fenced at ``ends``; answer those that the end limits.

    A group with members, or one that cannot be read or written, is answered with the reason and left. Safe to repeat. Asks
    nothing where every group is in place already (no lag, as a rule): a thousand mirrors must stop in seconds.
    """
    by_group: dict[str, list[KnownOffset]] = {}
    for one in known:
        if one.partition in ends and not one.is_in_place(ends[one.partition]):
            by_group.setdefault(one.group, []).append(one)
    if not by_group:
        return []
    present, failures = destination.committed(by_group)
    places = [(mirror_topic, partition) for partition in ends]
    starts = destination.many_offsets(places, OffsetKind.START)
    cases = {
        name: [_case(one, present[name], (mirror_topic, one.partition), end=ends[one.partition], starts=starts) for one in rows]
        for name, rows in by_group.items()
        if name in present
    }
    refusals = _write(destination, cases)
    clamped = [
        _told(case, refusals.get(name, {}).get(case.place))
        for name, group in cases.items()
        for case in group
        if _is_limited(case) or refusals.get(name, {}).get(case.place)
    ]
    return clamped + [_unread(one, failures[name]) for name in failures for one in by_group[name]]


def unread_groups(known: Iterable[KnownOffset], *, ends: Mapping[int, int], error: LinkEngineError) -> list[ClampedOffset]:
    """Return the reason for every group that may not be in place, where the cluster did not answer."""
    return [_unread(one, error) for one in known if one.partition in ends and not one.is_in_place(ends[one.partition])]


def _case(
    one: KnownOffset, present: Mapping[Place, Committed], place: Place, *, end: int, starts: Mapping[Place, int]
) -> _Case:
    facts = OffsetFacts(
        source=Committed(offset=one.source),
        mirror_start=min(starts.get(place, 0), end),
        mirror_end=end,
        destination=present.get(place),
        remembered=one.remembered,
    )
    return _Case(known=one, place=place, facts=facts, decision=_without_refresh(settle(facts), facts))


def _without_refresh(decision: OffsetDecision, facts: OffsetFacts) -> OffsetDecision:
    """Leave an equal offset alone: the source's metadata is not known here."""
    equal = facts.destination is not None and facts.destination.offset == decision.target
    return OffsetDecision(outcome=decision.outcome, target=decision.target, write=decision.write and not equal)


def _write(destination: ClusterAdmin, cases: Mapping[str, list[_Case]]) -> dict[str, dict[Place, LinkEngineError | None]]:
    """Commit; what was committed without its metadata is done."""
    wanted = {name: {case.place: case.commit for case in group if case.decision.write} for name, group in cases.items()}
    answers = destination.commit({name: places for name, places in wanted.items() if places})
    return {
        name: {place: None if isinstance(error, MetadataLeftOutError) else error for place, error in found.items()}
        for name, found in answers.items()
    }


def _is_limited(case: _Case) -> bool:
    end = case.facts.mirror_end
    return case.known.source > end or (case.before is not None and case.before > end)


def _told(case: _Case, error: LinkEngineError | None) -> ClampedOffset:
    return ClampedOffset(
        group=case.known.group,
        partition=case.known.partition,
        source=case.known.source,
        before=case.before,
        after=case.decision.target if case.decision.write and error is None else case.before,
        message=error.message if error else "",
    )


def _unread(one: KnownOffset, error: LinkEngineError) -> ClampedOffset:
    return ClampedOffset(
        group=one.group, partition=one.partition, source=one.source, before=None, after=None, message=error.message
    )

"""What an operation would do, as far as this console knows now: records at risk, groups set back, configs to change.

Figures are of the last reports, and unknown is None, never 0. What a restore would drop is asked of the cluster instead
(``console.actions.restoring``), since the topic is an ordinary one that nobody samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.utils import timezone

from console.gatepolicies import gate_closed
from console.models import ClusterLink, GroupOffset, MirrorTopic
from console.policies import carries_offsets, why_not
from linkengine.domain.configs import configs_at_stop
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState, next_state

_E = MirrorEvent
_DRAINS = (_E.PROMOTE, _E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)  # these wait until both sides are equal
_STOPS = (*_DRAINS, _E.FAILOVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtRisk:
    """A consumer group that has read further than the mirror reaches."""

    group: str  # at the destination
    partition: int
    offset: int
    clamped_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect of one operation on one mirror; ``reason`` says why it is refused now."""

    mirror_topic_name: str
    operation: MirrorEvent
    allowed: bool
    reason: str = ""
    state_after: str = ""
    records_at_risk: int | None = None  # offsets that would be left behind or removed, as of the last report
    records_to_copy: int | None = None  # offsets that would be copied first, as of the last report
    groups_clamped: tuple[GroupAtRisk, ...] = ()
    configs_to_change: Mapping[str, str | None] = field(default_factory=dict)  # None: back to the cluster's default


def preview(mirror: MirrorTopic, operation: MirrorEvent) -> Preview:
    """Answer what the operation would do to the mirror now; a few queries, no cluster is asked."""
    reason = why_not(mirror, operation) or (gate_closed(mirror, now=timezone.now()) if operation is _E.PROMOTE else "")
    stops = operation in _STOPS and mirror.state not in BECOMING  # such a topic keeps its configs, its groups their offsets
    return Preview(
        mirror_topic_name=mirror.name,
        operation=operation,
        allowed=not reason,
        reason=reason,
        state_after="" if reason else next_state(MirrorState(mirror.state), operation),
        records_at_risk=_at_risk(mirror, operation),
        records_to_copy=_sum(mirror, [row.lag for row in mirror.partitions.all()]) if operation in _DRAINS else 0,
        groups_clamped=tuple(groups_at_risk(mirror.link, [mirror]).get(mirror.pk, ())) if operation is _E.FAILOVER else (),
        configs_to_change=_configs(mirror) if stops else {},
    )


def _at_risk(mirror: MirrorTopic, operation: MirrorEvent) -> int | None:
    if operation is _E.FAILOVER:
        return _sum(mirror, [row.missing for row in mirror.partitions.all()])
    if operation is _E.DELETE:
        return _held(mirror)
    return None if operation is _E.RESTORE else 0  # what a restore drops was written past us: nobody has counted it


def _held(mirror: MirrorTopic) -> int | None:
    """Count the offsets of the topic that goes; once it takes writes, nobody samples it."""
    ends = [(row.mirror_start, row.mirror_end) for row in mirror.partitions.all()]
    if mirror.state == MirrorState.STOPPED or len(ends) < mirror.num_partitions:
        return None
    known = [end - start for start, end in ends if start is not None and end is not None]
    return sum(known) if len(known) == len(ends) else None


def _sum(mirror: MirrorTopic, counts: Sequence[int | None]) -> int | None:
    if len(counts) < mirror.num_partitions or None in counts:
        return None
    return sum(count for count in counts if count is not None)


def groups_at_risk(link: ClusterLink, mirrors: Sequence[MirrorTopic]) -> dict[int, list[GroupAtRisk]]:
    """List the groups that a failover would set back, by primary key of the mirror; partitions were read with the mirrors."""
    if not carries_offsets(link):
        return {}  # a stop leaves the groups of such a link alone
    ends = {(one.pk, row.partition): row.mirror_end for one in mirrors for row in one.partitions.all()}
    stopping = [one.pk for one in mirrors if one.state not in (*BECOMING, MirrorState.STOPPED)]
    rows = GroupOffset.objects.filter(mirror__in=stopping).exclude(group__status=GroupStatus.EXCLUDED).select_related("group")
    found: dict[int, list[GroupAtRisk]] = defaultdict(list)
    for row in rows:
        end = ends.get((row.mirror_id, row.partition))
        if end is not None and row.source_offset > end:
            at_risk = {"offset": row.source_offset, "clamped_to": end, "partition": row.partition}
            found[row.mirror_id].append(GroupAtRisk(group=row.group.destination_name, **at_risk))
    return found


def _configs(mirror: MirrorTopic) -> dict[str, str | None]:
    include = [name.strip() for name in mirror.link.config("topic.config.sync.include").split(",") if name.strip()] or None
    change = configs_at_stop(mirror.source_configs, include=include, overrides=mirror.config_overrides)
    return {**change.values, **dict.fromkeys(change.deletions)}

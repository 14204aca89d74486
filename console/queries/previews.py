"""The effects of an operation before it is performed: records at risk, consumer groups to be clamped, configs to change.

Figures are those of the last reports. Unknown is None, never 0. The diverged records of a restore are read from the cluster
instead (``console.actions.restoring``), because the topic is an ordinary one without samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.utils import timezone

from console.mirrors import loss
from console.mirrors.migration_gate import gate_closed
from console.mirrors.rules import syncs_offsets, why_not
from console.models import ClusterLink, GroupOffset, MirrorPartition, MirrorTopic
from linkengine.domain.configs import configs_at_stop
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import BECOMING, MirrorEvent, MirrorState, next_state

_E = MirrorEvent
_DRAINS = (_E.PROMOTE, _E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)  # these wait until source and mirror are in sync
_STOPS = (*_DRAINS, _E.FAILOVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtRisk:
    """A consumer group whose source offset is beyond the end of the mirror."""

    group: str  # name on the destination
    partition: int
    offset: int
    clamped_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effects of an operation on a mirror. ``reason`` says why it is not possible now."""

    mirror_topic_name: str
    operation: MirrorEvent
    allowed: bool
    reason: str = ""
    state_after: str = ""
    records_at_risk: int | None = None  # offsets not copied or deleted, as of the last report
    records_to_copy: int | None = None  # offsets to copy first, as of the last report
    groups_clamped: tuple[GroupAtRisk, ...] = ()
    configs_to_change: Mapping[str, str | None] = field(default_factory=dict)  # None: reset to the cluster default


def preview(mirror: MirrorTopic, operation: MirrorEvent, *, source_partitions: int | None = None) -> Preview:
    """Return the effects of an operation. A few SQL queries; the clusters are not contacted.

    ``source_partitions`` is the mirror's value of ``loss.source_partitions``, if it was read for many mirrors.
    """
    reason = why_not(mirror, operation) or (gate_closed(mirror, now=timezone.now()) if operation is _E.PROMOTE else "")
    stops = operation in _STOPS and mirror.state not in BECOMING  # a topic that is becoming a mirror keeps its configs
    return Preview(
        mirror_topic_name=mirror.name,
        operation=operation,
        allowed=not reason,
        reason=reason,
        state_after="" if reason else next_state(MirrorState(mirror.state), operation),
        records_at_risk=_at_risk(mirror, operation, source_partitions),
        records_to_copy=_to_copy(mirror, operation, source_partitions),
        groups_clamped=tuple(groups_at_risk(mirror.link, [mirror]).get(mirror.pk, ())) if operation is _E.FAILOVER else (),
        configs_to_change=_configs(mirror) if stops else {},
    )


def _at_risk(mirror: MirrorTopic, operation: MirrorEvent, source_partitions: int | None) -> int | None:
    if operation is _E.FAILOVER:
        return loss.records_at_risk(mirror, source_partitions=_listed(mirror, source_partitions))
    if operation is _E.DELETE:
        return _held(mirror)
    return None if operation is _E.RESTORE else 0  # records written after mirroring stopped are not counted


def _to_copy(mirror: MirrorTopic, operation: MirrorEvent, source_partitions: int | None) -> int | None:
    if operation not in _DRAINS:
        return 0
    return loss.records_to_copy(mirror, source_partitions=_listed(mirror, source_partitions))


def _listed(mirror: MirrorTopic, source_partitions: int | None) -> int:
    return loss.source_partitions([mirror])[mirror.pk] if source_partitions is None else source_partitions


def _held(mirror: MirrorTopic) -> int | None:
    """Return the number of offsets of a topic to be deleted; None if unknown, as for a writable topic, which has no samples."""
    ends = [(row.mirror_start, row.mirror_end) for row in mirror.partitions.all()]
    if mirror.state == MirrorState.STOPPED or len(ends) < mirror.num_partitions:
        return None
    known = [end - start for start, end in ends if start is not None and end is not None]
    return sum(known) if len(known) == len(ends) else None


def groups_at_risk(
    link: ClusterLink, mirrors: Sequence[MirrorTopic], *, rows: Mapping[int, Sequence[MirrorPartition]] | None = None
) -> dict[int, list[GroupAtRisk]]:
    """Return the groups that a failover would clamp, by primary key of the mirror.

    ``rows`` are the current partitions by primary key of the mirror; without them the partitions must be prefetched.
    """
    if not syncs_offsets(link):
        return {}  # groups are not changed without consumer offset sync
    current = {mirror.pk: mirror.partitions.all() for mirror in mirrors} if rows is None else rows
    ends = {(mirror.pk, row.partition): row.mirror_end for mirror in mirrors for row in current.get(mirror.pk, ())}
    stopping = [mirror.pk for mirror in mirrors if mirror.state not in (*BECOMING, MirrorState.STOPPED)]
    synced = GroupOffset.objects.filter(mirror__in=stopping).exclude(group__status=GroupStatus.EXCLUDED)
    at_risk: dict[int, list[GroupAtRisk]] = defaultdict(list)
    for known in synced.select_related("group"):
        end = ends.get((known.mirror_id, known.partition))
        if end is not None and known.source_offset > end:
            offsets = {"offset": known.source_offset, "clamped_to": end, "partition": known.partition}
            at_risk[known.mirror_id].append(GroupAtRisk(group=known.group.destination_name, **offsets))
    return at_risk


def _configs(mirror: MirrorTopic) -> dict[str, str | None]:
    include = [name.strip() for name in mirror.link.config("topic.config.sync.include").split(",") if name.strip()] or None
    change = configs_at_stop(mirror.source_configs, include=include, overrides=mirror.config_overrides)
    return {**change.values, **dict.fromkeys(change.deletions)}

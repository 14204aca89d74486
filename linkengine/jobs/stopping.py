"""Turn a mirror into an ordinary, writable topic: the last step of a promotion and all of a failover.

Order of the steps:

1. The fence, so that no stale copy worker appends behind it. The ends are recorded.
2. Consumer groups are moved to the end. This comes before producers, because a group beyond the end would skip what they write.
   A refusal or a timeout is returned and does not stop the other steps.
3. DENY WRITE is removed: producers may write.
4. Steps that a cluster may refuse: fillers at the head are removed, the source's configs are restored. Refusals are returned,
   and the caller stores them for a retry (``give_configs_back``).

Between 3 and 4 the topic still has a mirror's configs: unlimited retention, CreateTime, the largest message limit. So nothing
is deleted early, and nothing is refused that the source would have accepted.
A failover does not contact the source if its configs are known from before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from linkengine.copyjob.stop.fence import fence_partitions
from linkengine.copyjob.stop.takeover import foreign_starts
from linkengine.domain.configs import ConfigChange, configs_at_stop, lacking, looks_like_mirror, mirror_configs, still_due
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import ClampedOffset
from linkengine.domain.mirrorjobs import FILLERS, MirrorStop, MirrorStopped, RefusedStep
from linkengine.domain.plans import PartitionAssignment, TopicDescription
from linkengine.domain.states import StopReason
from linkengine.jobs.reversing import open_if_closed, open_topic
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.sync.configs import read_source_configs, restore_configs
from linkengine.sync.offset_clamping import clamp_groups, unread_groups
from linkengine.sync.topics import find_mirror, missing_mirror, was_stopped

_REFUSED = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR})
log = structlog.get_logger(__name__)


def stop_mirror(
    stop: MirrorStop,
    *,
    on_fenced: Callable[[MirrorStopped], None] | None = None,
    on_open: Callable[[], None] = lambda: None,
    check_ours: Callable[[], None] = lambda: None,
) -> MirrorStopped:
    """Fence the mirror, move groups to its end, allow writes, restore the source's configs. Safe to repeat.

    ``on_fenced`` records the ends before producers may write; if a partition cannot be fenced, those of the others. Once
    producers have written, the ends can no longer be found in the log: a later attempt needs them in ``stop.fenced_ends``, and
    ``gives_back`` in ``stop.giving_back``. ``on_open`` is called when producers may write. ``check_ours`` raises if another
    worker has taken over this stop: the topic may be a mirror again, with configs and ACLs that it needs.

    A topic that was only becoming a mirror keeps its configs and groups, unless it has a mirror's configs already; so does a
    topic that was stopped before, because applications may have used it since. If the topic is not this mirror's own
    (``find_mirror``), it counts as missing: it keeps its records and configs, and only the ACLs of the mirror are removed.

    Raises MIRROR_TOPIC_MISSING if the topic is gone, and errors of the destination. Refusals of the destination after step 3
    are returned.
    """
    found = _find(stop)
    if found is None:
        check_ours()
        raise _missing(stop)
    destination = ClusterAdmin(stop.destination)
    gives_back = stop.giving_back or _is_mirror(destination, stop, found)

    def keep(ends: MirrorStopped) -> None:
        check_ours()
        if on_fenced is not None:
            on_fenced(replace(ends, gives_back=gives_back))

    stopped = _fence(stop, found, keep=keep)
    check_ours()
    clamped = _clamp(destination, stop, stopped) if gives_back else []
    was_seeding = stop.seeding and looks_like_mirror(found.configs)
    heads = _heads(destination, found, stopped) if was_seeding else {}
    check_ours()
    _let_producers_in(destination, stop, found.name)
    on_open()
    refused = _finish_seeding(destination, stop, stopped, heads=heads) if was_seeding else []
    if gives_back:
        change = _due(stop, destination.describe(found.name).configs)
        check_ours()
        refused += restore_configs(destination, {found.name: change}).get(found.name, ())
    log.info("mirror_stopped", topic=found.name, reason=stop.reason, ends=stopped.ends, refused=[step.name for step in refused])
    return replace(stopped, clamped=tuple(clamped), gives_back=gives_back, refused=tuple(refused))


def give_configs_back(stop: MirrorStop, *, check_ours: Callable[[], None] = lambda: None) -> tuple[RefusedStep, ...]:
    """Restore the source's configs that a stopped mirror still lacks; return what the destination refuses. Safe to repeat.

    A config with another value than the mirror's is left alone: it was set by a user since. Raises MIRROR_TOPIC_MISSING if
    the topic is gone.
    """
    found = _find(stop)
    if found is None:
        raise missing_mirror(_topic_of(stop))
    destination = ClusterAdmin(stop.destination)
    known = replace(stop, giving_back=True, reason=StopReason.FAILOVER)  # values of the time of the stop, not current ones
    change = _due(known, found.configs)
    check_ours()
    return restore_configs(destination, {found.name: change}).get(found.name, ())


def reopen_mirror(stop: MirrorStop) -> tuple[str, tuple[RefusedStep, ...]]:
    """Undo what a set-up or a take-over did after its mirror was stopped; return the topic's id ("": no topic) and refusals.

    For a task that was suspended during the stop. Nothing is fenced or trimmed: applications may have written since.
    """
    found = _find(stop)
    _open(stop, found)
    refused: tuple[RefusedStep, ...] = ()
    if found is not None and looks_like_mirror(found.configs):
        change = _due(stop, found.configs)
        refused = restore_configs(ClusterAdmin(stop.destination), {found.name: change}).get(found.name, ())
    log.warning("mirror_reopened", topic=_topic_of(stop), found=found is not None, refused=[step.name for step in refused])
    return (found.topic_id if found is not None else "", refused)


def _missing(stop: MirrorStop) -> LinkEngineError:
    """Remove the mirror's ACLs from the name of a topic that is gone, and return the error for the missing topic."""
    error = missing_mirror(_topic_of(stop))
    try:
        _open(stop, None)
    except LinkEngineError as refusal:
        if refusal.code != ErrorCode.AUTHORIZATION_ERROR:
            raise
        message = f"{error.message} The ACL DENY WRITE on its name could not be removed: {refusal.message}"
        return LinkEngineError(error.code, message)
    return error


def _let_producers_in(destination: ClusterAdmin, stop: MirrorStop, topic: str) -> None:
    if stop.guard:
        destination.allow_writes(topic)
    elif stop.was_closed:
        open_if_closed(stop.destination, topic)


def _is_mirror(destination: ClusterAdmin, stop: MirrorStop, found: TopicDescription) -> bool:
    """Return whether the topic's configs and groups are a mirror's, so that the stop changes them."""
    if not stop.was_mirror:
        return looks_like_mirror(found.configs)
    return not was_stopped(destination, found, guard=stop.guard, failed=stop.failed)


def _topic_of(stop: MirrorStop) -> str:
    return stop.mirror_topic or stop.assignments[0].mirror_topic


def _find(stop: MirrorStop) -> TopicDescription | None:
    destination = ClusterAdmin(stop.destination)
    return find_mirror(destination, _topic_of(stop), topic_id=stop.mirror_topic_id, contested=stop.contested)


def _open(stop: MirrorStop, found: TopicDescription | None) -> None:
    """Remove the mirror's ACLs from its name, unless they guard another mirror there."""
    if found is None and stop.contested:
        return
    if stop.guard:
        open_topic(stop.destination, _topic_of(stop))
    elif stop.was_closed:
        open_if_closed(stop.destination, _topic_of(stop))


def _fence(stop: MirrorStop, found: TopicDescription, *, keep: Callable[[MirrorStopped], None]) -> MirrorStopped:
    """Fence the topic that was found; a topic created in its place from here on is refused by its id.

    If a partition's leader is away for hours, the fences of the other partitions are recorded all the same. On a cluster
    without an authorizer, records that applications write behind them would hide them from the next attempt, which would write
    new ones.
    """
    assignments = [replace(partition, mirror_topic_id=found.topic_id) for partition in stop.assignments]
    here, so_far, epochs = stop.destination, dict(stop.fenced_ends), dict[int, int]()
    try:
        ends = fence_partitions(here, assignments, generation=stop.generation, already_fenced_ends=so_far, epochs=epochs)
    except LinkEngineError:
        if len(so_far) > len(stop.fenced_ends):
            with suppress(LinkEngineError):  # the error that prevents the stop is raised
                fenced = [partition for partition in assignments if partition.partition in so_far]
                keep(_stopped(stop, fenced, so_far, epochs=epochs))
        raise
    stopped = _stopped(stop, assignments, ends, epochs=epochs)
    keep(stopped)
    return stopped


def _stopped(
    stop: MirrorStop, assignments: Sequence[PartitionAssignment], ends: Mapping[int, int], *, epochs: Mapping[int, int]
) -> MirrorStopped:
    """Return the fences, and the offsets from which the mirror holds records that were not mirrored."""
    foreign = _foreign(stop, assignments, ends)
    return MirrorStopped(
        ends=tuple(sorted(ends.items())), foreign=tuple(sorted(foreign.items())), epochs=tuple(sorted(epochs.items()))
    )


def _foreign(stop: MirrorStop, assignments: Sequence[PartitionAssignment], fences: Mapping[int, int]) -> dict[int, int]:
    """Return the offsets from which a mirror has foreign records; a topic that was only becoming a mirror is not checked.

    The end of a clean release does not count if a later end was reported: then Redis was restored from a backup.
    """
    if not stop.was_mirror:
        return {}
    copied, fenced = dict(stop.copied), dict(stop.fenced_ends)
    left = {number: end for number, end in stop.left if end >= copied.get(number, 0)}
    known = left | {number: end for number, end in copied.items() if number in fenced}  # the latter from an earlier attempt
    below_fence = {number: end for number, end in known.items() if end < fences.get(number, end)}
    unknown = [partition for partition in assignments if partition.partition not in known]
    return below_fence | foreign_starts(stop.destination, unknown, fences=fences, copied=copied)


def _clamp(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> list[ClampedOffset]:
    """Move groups to the end, unless an earlier attempt has allowed writes: a group that has read further would read twice."""
    topic = _topic_of(stop)
    fenced = {number for number, _ in stop.fenced_ends}
    # no attempt allows writes before all partitions are fenced
    all_fenced = fenced and fenced >= {partition.partition for partition in stop.assignments}
    can_tell = all_fenced and stop.guard and destination.has_authorizer()
    ends = dict(stopped.ends) | dict(stopped.foreign)
    try:
        if can_tell and destination.lacks_deny_write(topic):
            return []
        return clamp_groups(destination, topic, ends=ends, known=stop.group_offsets)
    except LinkEngineError as error:  # a failing coordinator must not delay producers
        log.warning("groups_not_moved", topic=topic, code=error.code)
        return unread_groups(stop.group_offsets, ends=ends, error=error)


def _due(stop: MirrorStop, present: Mapping[str, str]) -> ConfigChange:
    """Return what the topic, with these own configs, has to change to become an ordinary topic with the source's configs."""
    values = _source_configs(stop)
    change = configs_at_stop(values, include=stop.sync_include, overrides=stop.configs)
    if not (stop.giving_back and present):
        return lacking(change, present=present)
    return still_due(change, mirror=mirror_configs(values, include=stop.sync_include, overrides=stop.configs), present=present)


def _heads(destination: ClusterAdmin, found: TopicDescription, stopped: MirrorStopped) -> dict[int, int]:
    """Return, by partition, the end of a topic that never held a record, before producers may write.

    That is behind the fence. Partitions without a fence, since their set-up did not get that far, end where the log does, as
    long as no earlier attempt has allowed writes.
    """
    fences = {number: fence + 1 for number, fence in stopped.ends}
    if len(fences) >= found.partitions or not destination.denies_writes(found.name):
        return fences
    return destination.offsets(found.name, OffsetKind.END, partitions=found.partitions) | fences


def _finish_seeding(
    destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped, *, heads: Mapping[int, int]
) -> list[RefusedStep]:
    """If the head was still being seeded, delete the fillers written so far and make the (empty) topic readable.

    Only for a topic that never held a record: an ACL that denies reads may have another origin, and may be synced from the
    source. Producers may have written behind the fence by now. Fillers that cannot be deleted stay visible: records without
    key and value. Raises if the cluster does not respond, for another attempt.
    """
    topic, refused = _topic_of(stop), list[RefusedStep]()
    guarded = stop.guard and destination.has_authorizer()
    if guarded and not destination.denies_reads(topic):
        return []
    try:
        destination.trim(topic, heads if guarded else _open_heads(destination, stop, stopped))
    except LinkEngineError as error:
        if error.code not in _REFUSED:
            raise
        refused.append(RefusedStep(name=FILLERS, value=None, code=error.code, message=error.message))
    if guarded:
        destination.allow_reads(topic)
    return refused


def _open_heads(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> dict[int, int]:
    """Return where partitions begin without their fillers if producers could not be denied: not behind the fence, and not
    beyond a foreign write.
    """
    fences, starts = dict(stopped.ends), destination.offsets(_topic_of(stop), OffsetKind.START)
    filled = {number: starts[number] for number, fence in fences.items() if starts.get(number, fence) < fence}
    others = foreign_starts(stop.destination, stop.assignments, fences=fences, copied=filled)
    return {number: fences[number] + 1 for number in filled if number not in others}


def _source_configs(stop: MirrorStop) -> dict[str, str]:
    """Return the source's configs: as two equal readings show them for a promotion, otherwise those of the last sync."""
    if stop.source_configs and stop.reason is StopReason.FAILOVER:
        return stop.source_configs
    topic = stop.source_topic or (stop.assignments[0].source_topic if stop.assignments else "")
    try:
        first, second = (read_source_configs(ClusterAdmin(stop.source), topic, include=stop.sync_include) for _ in range(2))
    except LinkEngineError as error:
        log.warning("source_configs_not_read", topic=topic, code=error.code, known=bool(stop.source_configs))
        return stop.source_configs
    return first if first == second else stop.source_configs

"""Turn a mirror into an ordinary, writable topic: the last step of a promotion and all of a failover.

The fence comes first, so that no late writer of ours appends behind it; then consumer groups are brought to the end and the
source's configs taken over; then producers are let in.
A failover asks nothing of the source as long as its configs are known from before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from linkengine.copyjob.fence import fence_partitions
from linkengine.copyjob.mirrored import foreign_starts
from linkengine.domain.configs import ConfigChange, configs_at_stop, looks_like_mirror
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.groupplans import ClampedOffset
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped
from linkengine.domain.plans import PartitionAssignment, TopicDescription
from linkengine.domain.states import StopReason
from linkengine.jobs.reversing import open_if_closed, open_topic
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.sync.clamping import clamp_groups
from linkengine.sync.configs import read_source_configs
from linkengine.sync.stopped import was_stopped
from linkengine.sync.topics import find_mirror, missing_mirror

log = structlog.get_logger(__name__)


def stop_mirror(
    stop: MirrorStop,
    *,
    on_fenced: Callable[[MirrorStopped], None] | None = None,
    check_ours: Callable[[], None] = lambda: None,
) -> MirrorStopped:
    """Fence the mirror, settle groups, take the source's configs, let producers write. Safe to repeat without a source.

    ``on_fenced`` records the ends before producers are let in; where a partition cannot be fenced, those of the others. Once
    producers have written, the ends cannot be told from the log any more: an attempt after that needs them back in
    ``stop.fenced_ends``. ``check_ours`` raises where another worker has
    gone on with this stop: the topic may be a mirror again by now, with configs and rules that it needs. A topic that was only
    becoming a mirror keeps its configs and its groups, unless it has a mirror's configs already; so does one that was stopped
    before and applications may use since. Raises MIRROR_TOPIC_MISSING where the topic is gone, and what keeps us from the
    destination. A topic that is not this mirror's (``find_mirror``) is none: it keeps its records and configs, only our rules
    go.
    """
    found = _find(stop)
    if found is None:
        check_ours()
        _open(stop, found)
        raise missing_mirror(_topic_of(stop))

    def keep(ends: MirrorStopped) -> None:
        check_ours()
        if on_fenced is not None:
            on_fenced(ends)

    stopped = _fence(stop, found, keep=keep)
    destination = ClusterAdmin(stop.destination)
    if stop.seeding and looks_like_mirror(found.configs):
        _finish_seeding(destination, stop, stopped)
    check_ours()
    clamped: list[ClampedOffset] = []
    if _is_mirror(destination, stop, found):
        clamped = _clamp(destination, stop, stopped)
        change = _configs(stop)
        check_ours()
        destination.change_configs(found.name, change)
    check_ours()
    if stop.guard:
        destination.allow_writes(found.name)
    elif stop.was_closed:
        open_if_closed(stop.destination, found.name)
    log.info("mirror_stopped", topic=found.name, reason=stop.reason, ends=stopped.ends, clamped=len(clamped))
    return replace(stopped, clamped=tuple(clamped))


def reopen_mirror(stop: MirrorStop) -> str:
    """Undo what a set-up or a take-over did after its mirror was stopped; answer the id of the topic, "" if there is none.

    For one that slept through the stop. Nothing is fenced or trimmed: applications may have written since.
    """
    found = _find(stop)
    if found is not None and looks_like_mirror(found.configs):
        ClusterAdmin(stop.destination).change_configs(found.name, _configs(stop))
    _open(stop, found)
    log.warning("mirror_reopened", topic=_topic_of(stop), found=found is not None)
    return found.topic_id if found is not None else ""


def _is_mirror(destination: ClusterAdmin, stop: MirrorStop, found: TopicDescription) -> bool:
    """Tell whether the topic's configs and groups are a mirror's, so that the stop settles them."""
    if not stop.was_mirror:
        return looks_like_mirror(found.configs)
    return not was_stopped(destination, found, guard=stop.guard, failed=stop.failed)


def _topic_of(stop: MirrorStop) -> str:
    return stop.mirror_topic or stop.assignments[0].mirror_topic


def _find(stop: MirrorStop) -> TopicDescription | None:
    destination = ClusterAdmin(stop.destination)
    return find_mirror(destination, _topic_of(stop), topic_id=stop.mirror_topic_id, contested=stop.contested)


def _open(stop: MirrorStop, found: TopicDescription | None) -> None:
    """Take our rules off the mirror's name, unless they guard another mirror there."""
    if found is None and stop.contested:
        return
    if stop.guard:
        open_topic(stop.destination, _topic_of(stop))
    elif stop.was_closed:
        open_if_closed(stop.destination, _topic_of(stop))


def _fence(stop: MirrorStop, found: TopicDescription, *, keep: Callable[[MirrorStopped], None]) -> MirrorStopped:
    """Fence the topic that was found: one that takes its place from here on is refused by its id.

    Where a partition's leader is away for hours, the others' fences are kept all the same: where nobody can be kept out, what
    applications write behind them meanwhile would hide them from the next attempt, which would write new ones there.
    """
    assignments = [replace(one, mirror_topic_id=found.topic_id) for one in stop.assignments]
    here, so_far, epochs = stop.destination, dict(stop.fenced_ends), dict[int, int]()
    try:
        ends = fence_partitions(here, assignments, generation=stop.generation, already_fenced_ends=so_far, epochs=epochs)
    except LinkEngineError:
        if len(so_far) > len(stop.fenced_ends):
            with suppress(LinkEngineError):  # what is to be told is why the stop cannot go on
                keep(_told(stop, [one for one in assignments if one.partition in so_far], so_far, epochs=epochs))
        raise
    stopped = _told(stop, assignments, ends, epochs=epochs)
    keep(stopped)
    return stopped


def _told(
    stop: MirrorStop, assignments: Sequence[PartitionAssignment], ends: Mapping[int, int], *, epochs: Mapping[int, int]
) -> MirrorStopped:
    """Answer the fences, and from where on there is what was not mirrored."""
    foreign = _foreign(stop, assignments, ends)
    return MirrorStopped(
        ends=tuple(sorted(ends.items())), foreign=tuple(sorted(foreign.items())), epochs=tuple(sorted(epochs.items()))
    )


def _foreign(stop: MirrorStop, assignments: Sequence[PartitionAssignment], fences: Mapping[int, int]) -> dict[int, int]:
    """Answer where a mirror ends with what was not mirrored; a topic that was only becoming one has nothing else."""
    if not stop.was_mirror:
        return {}
    # before an earlier attempt recorded it; or a copier that is at work no more has told
    known = {**dict(stop.left), **{number: end for number, end in stop.copied if number in dict(stop.fenced_ends)}}
    told = {number: end for number, end in known.items() if end < fences.get(number, end)}
    unknown = [one for one in assignments if one.partition not in known]
    return told | foreign_starts(stop.destination, unknown, fences=fences, copied=dict(stop.copied))


def _clamp(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> list[ClampedOffset]:
    """Bring groups to the end, unless an earlier attempt has let producers in: a group that has read on would read twice."""
    topic = _topic_of(stop)
    fenced = {number for number, _ in stop.fenced_ends}
    all_fenced = fenced and fenced >= {one.partition for one in stop.assignments}  # before, no attempt lets producers in
    tells = all_fenced and stop.guard and destination.has_authorizer()
    if tells and not destination.denies_writes(topic):
        return []
    return clamp_groups(destination, topic, ends=dict(stopped.ends) | dict(stopped.foreign), known=stop.group_offsets)


def _configs(stop: MirrorStop) -> ConfigChange:
    return configs_at_stop(_source_configs(stop), include=stop.sync_include, overrides=stop.configs)


def _finish_seeding(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> None:
    """Where the head was still being seeded, drop the fillers written so far and show the (empty) topic.

    Only of a topic that never held a record: a rule that denies reads may be anybody's, and carried over from the source.
    """
    topic = _topic_of(stop)
    if not stop.guard or not destination.has_authorizer():
        destination.trim(topic, _open_heads(destination, stop, stopped))
    elif destination.denies_reads(topic):
        destination.trim(topic, destination.offsets(topic, OffsetKind.END))
        destination.allow_reads(topic)


def _open_heads(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> dict[int, int]:
    """Answer where partitions begin without their fillers where nobody could be kept out: not behind our fence, and not
    beyond what somebody else wrote.
    """
    fences, starts = dict(stopped.ends), destination.offsets(_topic_of(stop), OffsetKind.START)
    filled = {number: starts[number] for number, fence in fences.items() if starts.get(number, fence) < fence}
    others = foreign_starts(stop.destination, stop.assignments, fences=fences, copied=filled)
    return {number: fences[number] + 1 for number in filled if number not in others}


def _source_configs(stop: MirrorStop) -> dict[str, str]:
    if stop.source_configs and stop.reason is StopReason.FAILOVER:
        return stop.source_configs
    topic = stop.source_topic or (stop.assignments[0].source_topic if stop.assignments else "")
    try:
        return read_source_configs(ClusterAdmin(stop.source), topic, include=stop.sync_include)
    except LinkEngineError as error:
        log.warning("source_configs_not_read", topic=topic, code=error.code, known=bool(stop.source_configs))
        return stop.source_configs

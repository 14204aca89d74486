"""Fail over many mirrors of a link together: each step of ``stopping`` for all of them before the next step.

Only for mirrors without an earlier stop attempt. Mirrors with any irregularity are not in the result and are stopped one at a
time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from linkengine.copyjob.stop.fence import fence_many
from linkengine.domain.configs import ConfigChange, configs_at_stop
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.configs import restore_configs
from linkengine.sync.offset_clamping import clamp_groups, unread_groups
from linkengine.sync.topics import was_stopped

log = structlog.get_logger(__name__)
Stopped = dict[str, MirrorStopped]  # by mirror topic


def stop_many(
    stops: Sequence[MirrorStop],
    *,
    on_fenced: Callable[[Stopped], None],
    on_open: Callable[[], None] = lambda: None,
    check_ours: Callable[[], None] = lambda: None,
) -> Stopped:
    """Fence all, record the ends, allow writes, restore the source's configs; return the mirrors that are writable.

    ``on_fenced`` must have recorded all ends it is given before producers may write; ``on_open`` is called when producers may
    write; ``check_ours`` raises if another worker has taken over these stops (``stop_mirror``). Raises errors that concern the
    whole cluster. Refusals of the destination after writes were allowed are in the result.
    """
    if not stops:
        return {}
    destination = ClusterAdmin(stops[0].destination)
    plain = {stop.mirror_topic: stop for stop in stops if _is_plain(stop)}
    fenced = _fence(_still_mirrors(destination, plain))
    check_ours()
    on_fenced(fenced)
    check_ours()
    clamped = {topic: _clamp(destination, plain[topic], stopped) for topic, stopped in fenced.items()}
    check_ours()
    destination.allow_many_writes(list(fenced))
    on_open()
    check_ours()
    refused = restore_configs(destination, {topic: _change(plain[topic]) for topic in fenced})
    log.info("mirrors_stopped", mirrors=len(fenced), of=len(stops), refused=len(refused))
    return {topic: replace(stopped, refused=refused.get(topic, ())) for topic, stopped in clamped.items()}


def _is_plain(stop: MirrorStop) -> bool:
    """Return whether the stop has no earlier attempt and its gaps are filled by markers, which the fence is then, too."""
    if not stop.mirror_topic_id or stop.fenced_ends or stop.seeding:
        return False
    return not any(partition.transactional_id for partition in stop.assignments)


def _still_mirrors(destination: ClusterAdmin, stops: Mapping[str, MirrorStop]) -> list[MirrorStop]:
    """Leave out topics that applications may use since an earlier stop; two requests per 500 mirrors."""
    seen = [(stops[topic.name], topic) for topic in destination.topics(list(stops))]
    return [stop for stop, topic in seen if not was_stopped(destination, topic, guard=stop.guard, failed=stop.failed)]


def _fence(stops: Sequence[MirrorStop]) -> Stopped:
    # a topic of another id is not the mirror's, and left to ``stop_mirror``
    assignments = [replace(each, mirror_topic_id=stop.mirror_topic_id) for stop in stops for each in stop.assignments]
    generations = {assignment.key: stop.generation for stop in stops for assignment in stop.assignments}
    fenced = fence_many(stops[0].destination, assignments, generations=generations) if stops else {}
    found: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for assignment in assignments:
        if assignment.key in fenced:
            found[assignment.mirror_topic][assignment.partition] = fenced[assignment.key]
    whole = [stop for stop in stops if stop.assignments and len(found[stop.mirror_topic]) == len(stop.assignments)]
    results = [(stop, _stopped(found[stop.mirror_topic])) for stop in whole]
    return {stop.mirror_topic: stopped for stop, stopped in results if _is_copy_to_its_end(stop, dict(stopped.ends))}


def _stopped(fences: Mapping[int, tuple[int, int]]) -> MirrorStopped:
    known = sorted(fences.items())
    ends, epochs = [(number, end) for number, (end, _) in known], [(number, epoch) for number, (_, epoch) in known]
    return MirrorStopped(ends=tuple(ends), epochs=tuple(epochs))


def _is_copy_to_its_end(stop: MirrorStop, fences: Mapping[int, int]) -> bool:
    """Return whether all partitions end where copying ended, so that foreign writes need not be searched for."""
    known = dict(stop.copied) | dict(stop.left)
    return all(known.get(partition, end) == end for partition, end in fences.items())


def _clamp(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> MirrorStopped:
    if not stop.group_offsets:
        return stopped
    ends = dict(stopped.ends)
    try:
        clamped = clamp_groups(destination, stop.mirror_topic, ends=ends, known=stop.group_offsets)
    except LinkEngineError as error:  # a failing coordinator must not delay producers
        log.warning("groups_not_moved", topic=stop.mirror_topic, code=error.code)
        clamped = unread_groups(stop.group_offsets, ends=ends, error=error)
    return replace(stopped, clamped=tuple(clamped))


def _change(stop: MirrorStop) -> ConfigChange:
    return configs_at_stop(stop.source_configs, include=stop.sync_include, overrides=stop.configs)

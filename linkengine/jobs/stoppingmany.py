"""Fail many mirrors of one link over together: each step of ``stopping`` for all of them before the next step.

Only for mirrors that nobody has begun to stop. What does not go smoothly is left out of the answer and stopped one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from linkengine.copyjob.fencemany import fence_many
from linkengine.domain.configs import ConfigChange, configs_at_stop
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop, MirrorStopped
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.clamping import clamp_groups, unread_groups
from linkengine.sync.configs import give_back_configs
from linkengine.sync.stopped import was_stopped

log = structlog.get_logger(__name__)
Stopped = dict[str, MirrorStopped]  # by mirror topic


def stop_many(
    stops: Sequence[MirrorStop],
    *,
    on_fenced: Callable[[Stopped], None],
    on_open: Callable[[], None] = lambda: None,
    check_ours: Callable[[], None] = lambda: None,
) -> Stopped:
    """Fence all, record where they ended, let producers write, give the source's configs back; return those that are writable.

    ``on_fenced`` must have recorded all ends it is given before producers are let in; ``on_open`` is called when producers may
    write; ``check_ours`` raises where somebody else has gone on with these stops (``stop_mirror``). Raises what keeps us from
    the cluster. What the destination refuses after the opening is in the result.
    """
    if not stops:
        return {}
    destination = ClusterAdmin(stops[0].destination)
    plain = {one.mirror_topic: one for one in stops if _is_plain(one)}
    fenced = _fence(_still_mirrors(destination, plain))
    check_ours()
    on_fenced(fenced)
    check_ours()
    clamped = {topic: _clamp(destination, plain[topic], stopped) for topic, stopped in fenced.items()}
    check_ours()
    destination.allow_many_writes(list(fenced))
    on_open()
    check_ours()
    refused = give_back_configs(destination, {topic: _change(plain[topic]) for topic in fenced})
    log.info("mirrors_stopped", mirrors=len(fenced), of=len(stops), refused=len(refused))
    return {topic: replace(stopped, refused=refused.get(topic, ())) for topic, stopped in clamped.items()}


def _is_plain(stop: MirrorStop) -> bool:
    """Tell whether nobody has begun it; where transactions fill gaps the fence is one of them, and markers may be refused."""
    if not stop.mirror_topic_id or stop.fenced_ends or stop.seeding:
        return False
    return not any(one.transactional_id for one in stop.assignments)


def _still_mirrors(destination: ClusterAdmin, stops: Mapping[str, MirrorStop]) -> list[MirrorStop]:
    """Leave out what applications may use since an earlier stop; two requests per 500 mirrors."""
    seen = [(stops[topic.name], topic) for topic in destination.topics(list(stops))]
    return [one for one, topic in seen if not was_stopped(destination, topic, guard=one.guard, failed=one.failed)]


def _fence(stops: Sequence[MirrorStop]) -> Stopped:
    # a topic of another id is not the mirror's, and left to ``stop_mirror``
    assignments = [replace(one, mirror_topic_id=stop.mirror_topic_id) for stop in stops for one in stop.assignments]
    generations = {one.key: stop.generation for stop in stops for one in stop.assignments}
    fenced = fence_many(stops[0].destination, assignments, generations=generations) if stops else {}
    found: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for one in assignments:
        if one.key in fenced:
            found[one.mirror_topic][one.partition] = fenced[one.key]
    whole = [stop for stop in stops if stop.assignments and len(found[stop.mirror_topic]) == len(stop.assignments)]
    told = [(stop, _told(found[stop.mirror_topic])) for stop in whole]
    return {stop.mirror_topic: stopped for stop, stopped in told if _is_copy_to_its_end(stop, dict(stopped.ends))}


def _told(fences: Mapping[int, tuple[int, int]]) -> MirrorStopped:
    known = sorted(fences.items())
    ends, epochs = [(number, end) for number, (end, _) in known], [(number, epoch) for number, (_, epoch) in known]
    return MirrorStopped(ends=tuple(ends), epochs=tuple(epochs))


def _is_copy_to_its_end(stop: MirrorStop, fences: Mapping[int, int]) -> bool:
    """Tell whether nobody has to look who wrote the last of it (``copyjob.mirrored``)."""
    known = dict(stop.copied) | dict(stop.left)
    return all(known.get(partition, end) == end for partition, end in fences.items())


def _clamp(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> MirrorStopped:
    if not stop.group_offsets:
        return stopped
    ends = dict(stopped.ends)
    try:
        clamped = clamp_groups(destination, stop.mirror_topic, ends=ends, known=stop.group_offsets)
    except LinkEngineError as error:  # a coordinator that does not answer keeps nobody's producers out
        log.warning("groups_not_moved", topic=stop.mirror_topic, code=error.code)
        clamped = unread_groups(stop.group_offsets, ends=ends, error=error)
    return replace(stopped, clamped=tuple(clamped))


def _change(stop: MirrorStop) -> ConfigChange:
    return configs_at_stop(stop.source_configs, include=stop.sync_include, overrides=stop.configs)

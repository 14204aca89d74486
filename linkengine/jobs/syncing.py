"""Topic config sync: apply the source's partition counts and configs to mirrors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from linkengine.domain.configs import ConfigChange, source_values
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSync, MirrorSynced, RefusedStep
from linkengine.domain.moments import SECOND_LOOK_AFTER_S
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.newest_offsets import count_partitions
from linkengine.sync.configs import plan_configs, restore_configs
from linkengine.sync.progress import holds_all
from linkengine.sync.stopped import stopped_error, was_stopped
from linkengine.sync.topics import find_mirror, grow_mirror, missing_mirror, observe_sources

_REFUSED = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR, ErrorCode.AUTHORIZATION_ERROR})
Outcome = MirrorSynced | LinkEngineError
StillMirrors = Callable[[str], bool]  # called with the mirror topic's name, right before anything is changed


def always(_: str) -> bool:
    """Return True: for callers whose mirrors no other task can stop at the same time."""
    return True


def sync_mirror(mirror: MirrorSync, *, still_mirrors: StillMirrors = always) -> MirrorSynced:
    """Apply partitions and configs of the source to a mirror once; about six requests.

    Raises SOURCE_TOPIC_MAY_BE_DELETED, SOURCE_TOPIC_ID_CHANGED, SOURCE_PARTITIONS_DECREASED, MIRROR_TOPIC_MISSING and
    MIRROR_WAS_STOPPED, which are permanent, and errors of either cluster, which are not.
    """
    (outcome,) = sync_mirrors([mirror], still_mirrors=still_mirrors)
    if isinstance(outcome, LinkEngineError):
        raise outcome
    if outcome.ungrown is not None:
        raise outcome.ungrown
    return outcome


def sync_mirrors(
    mirrors: Sequence[MirrorSync], *, still_mirrors: StillMirrors = always, reread_after_s: float = SECOND_LOOK_AFTER_S
) -> list[Outcome]:
    """Apply partitions and configs of the source to many mirrors of a link; return results or errors in order.

    Reading costs about six requests per 500 mirrors, applying one or two for each mirror that differs. Between reading and
    applying, a mirror may be stopped: ``still_mirrors`` returns False then, and the topic stays as it is. A mirror that cannot
    grow is synced with the partitions that it has, and the result says why. Raises only errors that concern a whole cluster.

    Source configs that differ from those of the last run are read once more, together after a single wait: a stop applies them,
    and the retention or cleanup policy of a damaged response, or of a broker that has just started, would delete records.
    """
    source, destination = ClusterAdmin(mirrors[0].source), ClusterAdmin(mirrors[0].destination)
    topics = observe_sources(source, {mirror.source_topic: mirror.source_topic_id for mirror in mirrors})
    values = source.effective_configs_of([name for name, topic in topics.items() if isinstance(topic, TopicDescription)])
    doubtful = _unconfirmed(source, mirrors, values, reread_after_s=reread_after_s)
    here = {topic.name: topic for topic in destination.topics([mirror.mirror_topic for mirror in mirrors])}
    follow = partial(_follow, (source, destination), here=here, still_mirrors=still_mirrors)
    return [
        _differing(mirror.source_topic)
        if mirror.source_topic in doubtful
        else follow(mirror, topics[mirror.source_topic], values=values.get(mirror.source_topic))
        for mirror in mirrors
    ]


def _unconfirmed(
    source: ClusterAdmin, mirrors: Sequence[MirrorSync], values: Mapping[str, Mapping[str, str]], *, reread_after_s: float
) -> set[str]:
    """Return the source topics whose configs have changed since the last run, and are different again at a second reading."""
    changed = {
        mirror.source_topic
        for mirror in mirrors
        if mirror.source_topic in values
        and source_values(values[mirror.source_topic], include=mirror.sync_include) != mirror.previous
    }
    if not changed:
        return changed
    time.sleep(reread_after_s)
    again = source.effective_configs_of(sorted(changed))
    return {topic for topic in changed if again.get(topic) != values[topic]}


def _follow(
    clusters: tuple[ClusterAdmin, ClusterAdmin],
    plan: MirrorSync,
    topic: TopicDescription | LinkEngineError,
    *,
    values: Mapping[str, str] | None,
    here: Mapping[str, TopicDescription],
    still_mirrors: StillMirrors,
) -> Outcome:
    if isinstance(topic, LinkEngineError):
        return topic
    if values is None:
        return _unreadable(plan)
    source, destination = clusters
    try:
        name = plan.mirror_topic
        mirror = find_mirror(destination, name, topic_id=plan.mirror_topic_id, seen=here.get(name))
        if mirror is None:
            raise missing_mirror(name)
        count = mirror.partitions
        unchanged = MirrorSynced(partitions=count, source_partitions=count, source_configs=plan.previous, read=False)
        stopped = was_stopped(destination, mirror, guard=plan.guard)
        if (stopped or mirror.partitions < topic.partitions) and not still_mirrors(name):
            return unchanged
        if stopped:
            raise stopped_error(destination, mirror)
        recount = partial(count_partitions, source.address, topic.name)
        partitions, ungrown = _grown(destination, mirror, partitions=topic.partitions, recount=recount)
        topic = replace(topic, partitions=max(topic.partitions, partitions))
        wanted = source_values(values, include=plan.sync_include)
        copied = partial(holds_all, source, destination, topic=topic, mirror=mirror)
        change, edits = plan_configs(mirror, plan, source_configs=wanted, copied=copied)
        if change and not still_mirrors(name):
            return unchanged
        refused = _change_configs(destination, mirror.name, change)
    except LinkEngineError as error:
        return error
    return MirrorSynced(
        partitions=partitions,
        source_partitions=topic.partitions,
        ungrown=ungrown,
        source_configs=wanted,
        refused=refused,
        changed=tuple(name for name in change.names if name not in {step.name for step in refused}),
        reverted=tuple(edit for edit in edits if edit.name not in {step.name for step in refused}),
    )


def _change_configs(destination: ClusterAdmin, topic: str, change: ConfigChange) -> tuple[RefusedStep, ...]:
    """Change the configs of a mirror as far as the destination accepts them; return what it refuses."""
    try:
        destination.change_configs(topic, change)
    except LinkEngineError as error:
        if error.code not in _REFUSED:
            raise
        return restore_configs(destination, {topic: change}).get(topic, ())
    return ()


def _grown(
    destination: ClusterAdmin, mirror: TopicDescription, *, partitions: int, recount: Callable[[], int]
) -> tuple[int, LinkEngineError | None]:
    """Return how many partitions the mirror has now, and why these are too few; raise if it has too many."""
    try:
        return grow_mirror(destination, mirror, partitions=partitions, recount=recount), None
    except LinkEngineError as error:
        if error.code == ErrorCode.SOURCE_PARTITIONS_DECREASED:
            raise
        return mirror.partitions, error


def _differing(topic: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Two readings of the configs of source topic {topic!r} differ. They are applied once two are equal. Retrying.",
    )


def _unreadable(plan: MirrorSync) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.AUTHORIZATION_ERROR,
        f"User {plan.source.sasl_username!r} may not read the configs of source topic {plan.source_topic!r}. Grant it "
        "DESCRIBE_CONFIGS on the topic.",
    )

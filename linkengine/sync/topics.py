"""Topics of both sides: whether a source topic is the same, whether a mirror is complete or stopped, and topic config sync."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

import structlog

from linkengine.domain.configs import (
    POLICY,
    ConfigChange,
    LocalEdit,
    config_difference,
    configs_at_stop,
    has_mirror_configs,
    is_compacted,
    lacking,
    local_edits,
    mirror_configs,
    released_names,
    source_values,
    still_due,
    with_compaction_in_time,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop, MirrorSync, RefusedStep
from linkengine.domain.plans import TopicDescription
from linkengine.domain.states import StopReason
from linkengine.domain.times import CONFIRM_AFTER_S
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.offsets import known_topic_ids

# --- source topics -------------------------------------------------------------------------------------------------------
# Whether a topic is still the same, and how many partitions it has. A mirror that is declared failed does not return to ACTIVE
# automatically, so stale metadata must not cause it:
#
# * A topic that seems to be deleted or to have another id is read a second time: right after a restart a broker may still
#   return old metadata.
# * A broker that is cut off from the controllers returns old metadata for as long as it is cut off. Therefore all brokers are
#   queried before the verdict, and nothing is decided while any of them is silent or disagrees.


log = structlog.get_logger(__name__)


def observe_sources(
    source: ClusterAdmin, wanted: Mapping[str, str], *, reread_after_s: float = CONFIRM_AFTER_S
) -> dict[str, TopicDescription | LinkEngineError]:
    """Describe source topics, given as name to topic id; return an error for each that is missing, replaced or hidden.

    Two requests per 500 topics. Unexpected topics are read a second time, together after a single wait. Only those with
    another id, or hidden ones, are then read singly: when a user clears a cluster, hundreds are missing at once.
    """
    found = _as_expected(source, wanted)
    strange = {name: topic_id for name, topic_id in wanted.items() if name not in found}
    if not strange:
        return found
    log.info("source_topics.read_again", topics=list(strange)[:10], number=len(strange))
    time.sleep(reread_after_s)
    missing = source.missing_among(strange)
    found |= {name: _missing(name) for name in missing}
    found |= _as_expected(source, {name: topic_id for name, topic_id in strange.items() if name not in missing})
    return found | {name: _read_again(source, name, topic_id=wanted[name]) for name in strange if name not in found}


def observe_source(source: ClusterAdmin, topic: str, *, topic_id: str) -> TopicDescription:
    """Describe a source topic, as ``observe_sources`` does; raise if it is missing, replaced or hidden."""
    found = observe_sources(source, {topic: topic_id})[topic]
    if isinstance(found, LinkEngineError):
        raise found
    return found


def _as_expected(source: ClusterAdmin, wanted: Mapping[str, str]) -> dict[str, TopicDescription | LinkEngineError]:
    seen = source.topics(wanted, with_configs=False)
    return {topic.name: topic for topic in seen if topic.topic_id == wanted[topic.name]}


def _read_again(source: ClusterAdmin, topic: str, *, topic_id: str) -> TopicDescription | LinkEngineError:
    try:
        seen = source.find(topic)
    except LinkEngineError as error:
        return error
    if seen is None:
        return _missing(topic)
    return seen if seen.topic_id == topic_id else _replaced(source, seen, topic_id=topic_id)


def _missing(topic: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED,
        f"Source topic {topic!r} no longer exists, or the link's principal may no longer DESCRIBE it. Fail over to "
        "keep the mirrored records as an ordinary topic, or delete the mirror topic.",
    )


def _replaced(source: ClusterAdmin, seen: TopicDescription, *, topic_id: str) -> LinkEngineError:
    try:
        _check_unknown(source, seen.name, topic_id=topic_id)
    except LinkEngineError as error:
        return error
    return LinkEngineError(
        ErrorCode.SOURCE_TOPIC_ID_CHANGED,
        f"Source topic {seen.name!r} was deleted and created again (id {topic_id} became {seen.topic_id}), so its offsets "
        "refer to other records now. Fail over to keep the mirrored records, then create a new mirror topic.",
    )


def follow_partitions(destination: ClusterAdmin, mirror_topic: str, *, partitions: int, recount: Callable[[], int]) -> int:
    """Grow the mirror to the source's partition count; return that count. Raise SOURCE_PARTITIONS_DECREASED if it has more.

    ``recount`` reads the count from all brokers of the source; the broker that responded first may be behind.
    """
    mirror = destination.find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    return grow_mirror(destination, mirror, partitions=partitions, recount=recount)


def grow_mirror(destination: ClusterAdmin, mirror: TopicDescription, *, partitions: int, recount: Callable[[], int]) -> int:
    """Grow a mirror that was described just before; otherwise as ``follow_partitions``."""
    if mirror.partitions > partitions:
        partitions = max(partitions, recount())
    if mirror.partitions > partitions:
        raise LinkEngineError(
            ErrorCode.SOURCE_PARTITIONS_DECREASED,
            f"The source topic has {partitions} partitions, its mirror {mirror.name!r} has {mirror.partitions}. Kafka never "
            "removes partitions, so one of the two was recreated. Fail over, or delete the mirror topic and create it again.",
        )
    if mirror.partitions < partitions:
        destination.add_partitions(mirror.name, total=partitions)
    return partitions


def find_mirror(
    destination: ClusterAdmin,
    mirror_topic: str,
    *,
    topic_id: str,
    contested: bool = False,
    seen: TopicDescription | None = None,
    reread_after_s: float = CONFIRM_AFTER_S,
) -> TopicDescription | None:
    """Return the description of the mirror's own topic; None if there is no topic of that name, or a different topic.

    ``seen`` is a description of that topic from a moment before, if available. ``topic_id`` is the id noted when the mirror
    was created; "" if its setup did not get that far: then the topic is recognized by the configs with which only mirrors are
    created. ``contested``: another mirror has the same name, so these configs prove nothing. Raises if a silent broker may have
    the topic, or if a broker does have it: for a stop, "none" means that nothing has to be fenced. A broker that is down no
    longer counts once its cluster has dropped it from the metadata, after some seconds.
    """
    found = seen or destination.find(mirror_topic)
    if found is not None and not _is_own(found, topic_id=topic_id, contested=contested):
        time.sleep(reread_after_s)
        found = destination.find(mirror_topic)
    if found is not None and _is_own(found, topic_id=topic_id, contested=contested):
        return found
    _check_unknown(destination, mirror_topic, topic_id=topic_id, seen=found)
    return None


def _is_own(found: TopicDescription, *, topic_id: str, contested: bool) -> bool:
    return found.topic_id == topic_id if topic_id else not contested and has_mirror_configs(found.configs)


def _check_unknown(admin: ClusterAdmin, topic: str, *, topic_id: str, seen: TopicDescription | None = None) -> None:
    """Raise if a broker returns the topic of this id; with "", if a broker returns a topic other than ``seen``."""
    known = known_topic_ids(admin.address, topic)
    if topic_id in known if topic_id else known - {seen.topic_id if seen else ""}:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"The brokers of the cluster do not agree on which topic {topic!r} is: one of them returns old metadata. "
            "Retrying. If this stays, restart the broker that has lost its connection to the controllers.",
        )


def missing_mirror(mirror_topic: str) -> LinkEngineError:
    """Return the error for a mirror topic that was deleted; a later topic of the same name is not the mirror's."""
    return LinkEngineError(
        ErrorCode.MIRROR_TOPIC_MISSING,
        f"Mirror topic {mirror_topic!r} does not exist on the destination cluster; it was deleted. A new topic of the same "
        "name is left as it is. Delete the mirror here and create it again.",
    )


# --- complete mirrors ----------------------------------------------------------------------------------------------------
# Costs two requests, and a short wait if the mirror is nearly complete.


WAIT_S = 0.5  # the usual lag is milliseconds, or the duration of a transaction
POLL_S = 0.1
CLOSE = 100_000  # offsets; a mirror with more lag does not catch up within WAIT_S


def holds_all(source: ClusterAdmin, destination: ClusterAdmin, *, topic: TopicDescription, mirror: TopicDescription) -> bool:
    """Return True if the mirror holds everything the source held at the call; False also if either cannot be read."""
    ends = source.offsets(topic.name, OffsetKind.END, partitions=topic.partitions)
    deadline = time.monotonic() + WAIT_S
    while len(ends) == topic.partitions:
        mirrored = destination.offsets(mirror.name, OffsetKind.END, partitions=topic.partitions)
        behind = sum(max(0, end - mirrored.get(partition, 0)) for partition, end in ends.items())
        if not behind:
            return True
        if behind > CLOSE or time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return False


# --- stopped mirrors -----------------------------------------------------------------------------------------------------
# A mirror that was stopped although its row does not show it, as after a restore of the console's database. Applications use
# such a topic, so nothing about it is changed on behalf of a mirror.


def was_stopped(destination: ClusterAdmin, topic: TopicDescription, *, guard: bool, failed: bool = False) -> bool:
    """Return True if a topic has lost both signs of a mirror: its configs and, with ``guard``, its DENY WRITE.

    A user may remove either; a stop removes both. Configs and ACLs that the principal may not read are not lost. On a link
    without guards the configs alone count, once the mirror has ``failed``, which means that its copy worker found the fence.
    Sends requests only for topics without a mirror's configs.
    """
    if has_mirror_configs(topic.configs):
        return False
    if guard and destination.has_authorizer():
        return destination.lacks_deny_write(topic.name)
    return failed


def stopped_error(
    destination: ClusterAdmin, topic: TopicDescription, *, reread_after_s: float = CONFIRM_AFTER_S
) -> LinkEngineError:
    """Return the error for a topic that ``was_stopped``: ``stopped_before``, which is permanent, only if no broker contradicts.

    A broker that has just started, or was cut off from the controllers, shows a topic as it was before a reversal made it a
    mirror. So the topic is described a second time, and no broker may have its DENY WRITE.
    """
    time.sleep(reread_after_s)
    again = destination.find(topic.name)
    is_ordinary = again is not None and again.topic_id == topic.topic_id and not has_mirror_configs(again.configs)
    if is_ordinary and destination.denies_writes_nowhere(topic.name):
        return stopped_before(topic.name)
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The brokers of the destination do not agree on whether topic {topic.name!r} is still a mirror: one of them returns "
        "old metadata. Retrying. If this stays, restart the broker that has lost its connection to the controllers.",
    )


def stopped_before(topic: str) -> LinkEngineError:
    """Return the error for a mirror that ``was_stopped``."""
    return LinkEngineError(
        ErrorCode.MIRROR_WAS_STOPPED,
        f"Topic {topic!r} no longer has a mirror's configs or its DENY WRITE: it was promoted or failed over "
        "earlier, and the console's database may have been restored from an older backup. Applications may use it, so it is "
        "not changed. Fail over to keep it as it is. Delete it and create the mirror again only if it is not needed.",
    )


# --- configs -------------------------------------------------------------------------------------------------------------
# Topic config sync: apply the source topic's configs to its mirror and check whether they are in force.
# ``linkengine.domain.configs`` decides which configs are synced and which differ while mirroring. Configs of the mirror that
# are not synced are left alone, since users may change them at any time.


# One config of the change may be the cause; the others may be accepted without it.
_RETRY_SINGLY = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR, ErrorCode.INTERNAL_ERROR})
TRIES = 2  # if the cluster does not respond


def read_source_configs(source: ClusterAdmin, topic: str, *, include: Collection[str] | None = None) -> dict[str, str]:
    """Return the configs that a mirror of ``topic`` follows, by name; needs DESCRIBE_CONFIGS on the source topic."""
    return source_values(source.effective_configs(topic), include=include)


def pending_change(
    destination: ClusterAdmin, mirror_topic: str, *, source_configs: Mapping[str, str], include: Collection[str] | None = None
) -> ConfigChange:
    """Return what the mirror still lacks of its source's configs; an empty change if nothing is missing."""
    present = destination.describe(mirror_topic).configs
    return config_difference(wanted=mirror_configs(source_configs, include=include), present=present)


def sync_configs(
    destination: ClusterAdmin, mirror_topic: str, *, source_configs: Mapping[str, str], include: Collection[str] | None = None
) -> tuple[str, ...]:
    """Apply the pending change; return the names of the changed configs."""
    change = pending_change(destination, mirror_topic, source_configs=source_configs, include=include)
    destination.change_configs(mirror_topic, change)
    return change.names


def plan_configs(
    mirror: TopicDescription,
    plan: MirrorSync,
    *,
    source_configs: Mapping[str, str],
    copied: Callable[[], bool],
) -> tuple[ConfigChange, tuple[LocalEdit, ...]]:
    """Return the change that a mirror, described just before, needs to follow its source, and the local edits it overwrites.

    ``copied`` returns whether the mirror holds everything that the source held when ``source_configs`` were read.
    """
    include, overrides = plan.sync_include, plan.configs
    released = released_names(plan.previous, include=include)
    wanted = mirror_configs(source_configs, include=include) | {name: overrides[name] for name in released & set(overrides)}
    change = config_difference(wanted=wanted, present=mirror.configs, released=released)
    change = with_compaction_in_time(change, wanted=wanted, present=mirror.configs, keyless=plan.keyless, copied=copied)
    same_list = set(plan.previous) == set(source_configs)  # otherwise the include list changed, not the mirror
    before = mirror_configs(plan.previous, include=include) if same_list else {}
    if is_compacted(wanted):
        before.pop(POLICY, None)  # the copy itself changes it, so a difference is not a local edit
    return change, local_edits(change, previous=before, present=mirror.configs)


def restore_configs(destination: ClusterAdmin, changes: Mapping[str, ConfigChange]) -> dict[str, tuple[RefusedStep, ...]]:
    """Change configs of topics as far as the cluster accepts them; return the refused configs by topic.

    Never raises. A change that is refused as a whole is repeated config by config. Waits until the accepted values are in
    force, but continues if the brokers do not show them in time: the controller has confirmed them.
    """
    refused: dict[str, list[RefusedStep]] = defaultdict(list)
    errors = _alter(destination, changes)
    accepted = {topic: change for topic, change in changes.items() if topic not in errors}
    singly = {topic for topic, error in errors.items() if error.code in _RETRY_SINGLY}
    for topic in errors.keys() - singly:
        refused[topic] += _refusals(changes[topic], errors[topic])
    for name in sorted({name for topic in singly for name in changes[topic].names}):
        single = {topic: _only(changes[topic], name) for topic in singly if name in changes[topic].names}
        errors = _alter(destination, single)
        for topic, change in single.items():
            if topic in errors:
                refused[topic] += _refusals(change, errors[topic])
            else:
                accepted[topic] = _joined(accepted.get(topic, ConfigChange()), change)
    try:
        destination.wait_for_configs(accepted)
    except LinkEngineError as error:
        log.warning("configs.not_shown", topics=list(accepted)[:10], code=error.code)
    return {topic: tuple(steps) for topic, steps in refused.items()}


def _alter(destination: ClusterAdmin, changes: Mapping[str, ConfigChange]) -> dict[str, LinkEngineError]:
    """Return the error of each topic; the same error for all topics if the cluster does not respond."""
    for left in reversed(range(TRIES)):
        try:
            return destination.alter_each(changes)
        except LinkEngineError as error:
            if not left:
                return dict.fromkeys(changes, error)
    raise AssertionError("unreachable")


def _only(change: ConfigChange, name: str) -> ConfigChange:
    if name in change.values:
        return ConfigChange(values={name: change.values[name]})
    return ConfigChange(deletions=(name,))


def _joined(first: ConfigChange, second: ConfigChange) -> ConfigChange:
    return ConfigChange(values={**first.values, **second.values}, deletions=(*first.deletions, *second.deletions))


def _refusals(change: ConfigChange, error: LinkEngineError) -> list[RefusedStep]:
    return [
        RefusedStep(name=name, value=change.values.get(name), code=error.code, message=error.message) for name in change.names
    ]


def restoring_change(stop: MirrorStop, present: Mapping[str, str]) -> ConfigChange:
    """Return the changes that make a topic with the configs ``present`` an ordinary topic with the source's configs."""
    values = _source_configs(stop)
    change = configs_at_stop(values, include=stop.sync_include, overrides=stop.configs)
    if not (stop.restoring_configs and present):
        return lacking(change, present=present)
    return still_due(change, mirror=mirror_configs(values, include=stop.sync_include, overrides=stop.configs), present=present)


def _source_configs(stop: MirrorStop) -> dict[str, str]:
    """Return the source's configs: for a promotion as read now, twice with the same result; otherwise those of the last sync.

    They are also read for a failover if none are known.
    """
    if stop.source_configs and stop.reason is StopReason.FAILOVER:
        return stop.source_configs
    topic = stop.source_topic or (stop.assignments[0].source_topic if stop.assignments else "")
    try:
        first, second = (read_source_configs(ClusterAdmin(stop.source), topic, include=stop.sync_include) for _ in range(2))
    except LinkEngineError as error:
        log.warning("mirror.source_configs_not_read", topic=topic, code=error.code, known=bool(stop.source_configs))
        return stop.source_configs
    return first if first == second else stop.source_configs

"""Carry the source topic's configs over to its mirror, and tell whether they are there.

Which names, and what differs while mirroring, is decided in ``linkengine.domain.configs``. Configs of the mirror that do not
follow the source are left alone: people may change them at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

import structlog

from linkengine.domain.compaction import POLICY, with_compaction_in_time
from linkengine.domain.configs import (
    ConfigChange,
    LocalEdit,
    config_difference,
    is_compacted,
    local_edits,
    mirror_configs,
    released_names,
    source_values,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSync, RefusedStep
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin

# One config of a change may be the reason; the others are accepted without it.
_ONE_BY_ONE = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR, ErrorCode.INTERNAL_ERROR})
TRIES = 2  # where the cluster does not answer
log = structlog.get_logger(__name__)


def read_source_configs(source: ClusterAdmin, topic: str, *, include: Collection[str] | None = None) -> dict[str, str]:
    """Read the values a mirror of ``topic`` follows; needs DESCRIBE_CONFIGS on the source topic."""
    return source_values(source.effective_configs(topic), include=include)


def pending_change(
    destination: ClusterAdmin, mirror_topic: str, *, source_configs: Mapping[str, str], include: Collection[str] | None = None
) -> ConfigChange:
    """Answer what the mirror still lacks of its source's configs; an empty change means equal."""
    present = destination.describe(mirror_topic).configs
    return config_difference(wanted=mirror_configs(source_configs, include=include), present=present)


def sync_configs(
    destination: ClusterAdmin, mirror_topic: str, *, source_configs: Mapping[str, str], include: Collection[str] | None = None
) -> tuple[str, ...]:
    """Apply what is pending and answer the names that changed."""
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
    """Answer what a mirror that was just described has to change to follow, and what of it somebody had changed there.

    ``copied`` tells whether the mirror holds all that the source had when ``source_configs`` were read.
    """
    include, overrides = plan.sync_include, plan.configs
    released = released_names(plan.previous, include=include)
    wanted = mirror_configs(source_configs, include=include) | {name: overrides[name] for name in released & set(overrides)}
    change = config_difference(wanted=wanted, present=mirror.configs, released=released)
    change = with_compaction_in_time(change, wanted=wanted, present=mirror.configs, keyless=plan.keyless, copied=copied)
    same_list = set(plan.previous) == set(source_configs)  # else the include list changed, and not the mirror
    before = mirror_configs(plan.previous, include=include) if same_list else {}
    if is_compacted(wanted):
        before.pop(POLICY, None)  # it is changed on behalf of the copy
    return change, local_edits(change, previous=before, present=mirror.configs)


def give_back_configs(destination: ClusterAdmin, changes: Mapping[str, ConfigChange]) -> dict[str, tuple[RefusedStep, ...]]:
    """Change configs of topics, by name, as far as the cluster accepts them; return what it refused, by topic.

    Never raises. A change that is refused as a whole is repeated config by config. Waits until the accepted values are in
    force, and continues where they are not shown in time: the controller has confirmed them.
    """
    refused: dict[str, list[RefusedStep]] = defaultdict(list)
    errors = _alter(destination, changes)
    accepted = {topic: change for topic, change in changes.items() if topic not in errors}
    singly = {topic for topic, error in errors.items() if error.code in _ONE_BY_ONE}
    for topic in errors.keys() - singly:
        refused[topic] += _refusals(changes[topic], errors[topic])
    for name in sorted({name for topic in singly for name in changes[topic].names}):
        one = {topic: _only(changes[topic], name) for topic in singly if name in changes[topic].names}
        errors = _alter(destination, one)
        for topic, change in one.items():
            if topic in errors:
                refused[topic] += _refusals(change, errors[topic])
            else:
                accepted[topic] = _joined(accepted.get(topic, ConfigChange()), change)
    try:
        destination.wait_for_configs(accepted)
    except LinkEngineError as error:
        log.warning("configs_not_shown", topics=list(accepted)[:10], code=error.code)
    return {topic: tuple(steps) for topic, steps in refused.items()}


def _alter(destination: ClusterAdmin, changes: Mapping[str, ConfigChange]) -> dict[str, LinkEngineError]:
    """Return the error of each topic; where the cluster does not answer, the same for all of them."""
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

"""Topic config sync: apply the source topic's configs to its mirror and check whether they are in force.

``linkengine.domain.configs`` decides which configs are synced and which differ while mirroring. Configs of the mirror that are
not synced are left alone, since users may change them at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

import structlog

from linkengine.domain.configs import (
    POLICY,
    ConfigChange,
    LocalEdit,
    config_difference,
    is_compacted,
    local_edits,
    mirror_configs,
    released_names,
    source_values,
    with_compaction_in_time,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSync, RefusedStep
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin

# One config of the change may be the cause; the others may be accepted without it.
_RETRY_SINGLY = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR, ErrorCode.INTERNAL_ERROR})
TRIES = 2  # if the cluster does not respond
log = structlog.get_logger(__name__)


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

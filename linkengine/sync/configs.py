"""Carry the source topic's configs over to its mirror, and tell whether they are there.

Which names, and what differs while mirroring, is decided in ``linkengine.domain.configs``. Configs of the mirror that do not
follow the source are left alone: people may change them at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

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
from linkengine.domain.mirrorjobs import MirrorSync
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin


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

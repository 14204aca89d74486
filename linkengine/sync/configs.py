"""Carry the source topic's configs over to its mirror, and tell whether they are there.

Which names, and what differs while mirroring, is decided in ``linkengine.domain.configs``. Configs of the mirror that do not
follow the source are left alone: people may change them at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from linkengine.domain.configs import ConfigChange, config_difference, mirror_configs, source_values
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

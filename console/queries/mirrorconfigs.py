"""Synced topic configs of a mirror: the value on the source, the value on the mirror, and reverted local changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.models import ConfigRevert, MirrorTopic
from linkengine.domain.configs import ALWAYS_SYNCED, mirror_configs
from linkengine.domain.states import MirrorState

INCLUDE = "topic.config.sync.include"
REVERTS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedConfig:
    """A config that is synced from the source."""

    name: str
    source_value: str  # as last read
    mirror_value: str  # the current value on the mirror topic
    always: bool  # False: only if the link's include list contains it


def followed_configs(mirror: MirrorTopic) -> list[FollowedConfig]:
    """Return the synced configs by name; for a stopped mirror, those that it got from the source."""
    text = mirror.link.config(INCLUDE)
    include = tuple(name.strip() for name in text.split(",") if name.strip()) if text else None
    known: dict[str, str] = mirror.source_configs
    applied = known if mirror.state == MirrorState.STOPPED else mirror_configs(known, include=include)
    return [
        FollowedConfig(name=name, source_value=value, mirror_value=applied.get(name, value), always=name in ALWAYS_SYNCED)
        for name, value in sorted(known.items())
    ]


def list_reverts(mirror: MirrorTopic) -> Sequence[ConfigRevert]:
    """Return the reverted local changes, newest first."""
    return list(mirror.config_reverts.all()[:REVERTS_SHOWN])

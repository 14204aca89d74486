"""The configs of a mirror topic that follow its source: its value, what the mirror carries meanwhile, what was set back."""

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
    """One config that follows the source."""

    name: str
    source_value: str  # as last read
    mirror_value: str  # what the mirror topic carries now
    always: bool  # False: the link's include list may leave it out


def followed_configs(mirror: MirrorTopic) -> list[FollowedConfig]:
    """List what follows the source, by name; of a stopped mirror what it was given."""
    text = mirror.link.config(INCLUDE)
    include = tuple(name.strip() for name in text.split(",") if name.strip()) if text else None
    known: dict[str, str] = mirror.source_configs
    carried = known if mirror.state == MirrorState.STOPPED else mirror_configs(known, include=include)
    return [
        FollowedConfig(name=name, source_value=value, mirror_value=carried.get(name, value), always=name in ALWAYS_SYNCED)
        for name, value in sorted(known.items())
    ]


def list_reverts(mirror: MirrorTopic) -> Sequence[ConfigRevert]:
    """List the local edits that were set back, newest first."""
    return list(mirror.config_reverts.all()[:REVERTS_SHOWN])

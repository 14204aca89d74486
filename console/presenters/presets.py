"""The purposes of a link to choose from when it is created. Each turns on what Confluent's console recommends for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A purpose, and the switches that it turns on."""

    key: str
    title: str
    hint: str
    auto_create: bool = False
    add_prefix: bool = False
    sync_offsets: bool = False
    sync_acls: bool = False

    def switches(self) -> dict[str, bool]:
        """Return the fields of the draft that the preset sets."""
        return {
            "auto_create": self.auto_create,
            "add_prefix": self.add_prefix,
            "sync_offsets": self.sync_offsets,
            "sync_acls": self.sync_acls,
        }


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.key: preset
        for preset in (
            Preset(
                key="migrate",
                title="Migrate",
                hint="Move topics and consumer groups to another cluster. Turns on auto-create and consumer offset sync.",
                auto_create=True,
                sync_offsets=True,
            ),
            Preset(
                key="recovery",
                title="Disaster recovery",
                hint="Keep a copy to fail over to. Turns on auto-create, consumer offset sync and ACL sync.",
                auto_create=True,
                sync_offsets=True,
                sync_acls=True,
            ),
            Preset(
                key="share",
                title="Share data",
                hint="Make topics readable on another team's cluster. Turns on auto-create and a prefix.",
                auto_create=True,
                add_prefix=True,
            ),
            Preset(
                key="aggregate",
                title="Aggregate",
                hint="Collect topics of several clusters on one. Turns on a prefix; add mirror topics by name.",
                add_prefix=True,
            ),
            Preset(key="custom", title="Custom", hint="Turns nothing on. Choose everything in step 3."),
        )
    }
)

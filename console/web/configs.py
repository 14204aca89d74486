"""Config values in people's units: "7 days" for 604800000, "unlimited" for -1. The value itself stays visible beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.numbers import Moment, moment
from linkengine.domain.linkconfigs import RPO_OBJECTIVE

if TYPE_CHECKING:
    from console.mirrors.queries import FollowedConfig
    from console.models import ConfigRevert

_LONG_MAX = 2**63 - 1  # Kafka's "never" or "no limit" for times, sizes and counts
_NEVER: Mapping[str, str] = MappingProxyType(  # -1
    {
        "retention.ms": gettext_noop("unlimited"),
        "retention.bytes": gettext_noop("unlimited"),
        RPO_OBJECTIVE: gettext_noop("no objective"),
        "link.throughput.limit.bytes.per.second": gettext_noop("no limit"),
        "replica.socket.receive.buffer.bytes": gettext_noop("chosen by the operating system"),
    }
)
_DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS = 86_400_000, 3_600_000, 60_000, 1_000
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedConfigRow:
    """A synced topic config of a mirror."""

    name: str
    source: str
    mirror: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertRow:
    """A local change of a topic config that was reverted."""

    name: str
    found: str | None  # None: the config had been deleted
    restored: str
    at: Moment | None


def readable_config(name: str, value: str) -> str:
    """Return a value with its meaning, for example ``7 days (604800000)``; the value alone if it needs no explanation."""
    words = config_words(name, value)
    return f"{words} ({value})" if words else value


def config_words(name: str, value: str) -> str:
    """Return the meaning of a numeric value in people's units; "" if the value needs no explanation."""
    try:
        number = int(value)
    except ValueError:
        return ""
    if number < 0:
        return gettext(_NEVER[name]) if number == -1 and name in _NEVER else ""
    return gettext("unlimited") if number == _LONG_MAX else _measured(name, number)


def _measured(name: str, number: int) -> str:
    if name.endswith(".ms"):
        return _duration(number)
    if name.endswith(".bytes"):
        return _size(number)
    if name.endswith(".bytes.per.second"):
        return f"{_size(number) or f'{number} B'}/s"
    return f"{number:,}" if number >= 10_000 else ""


def synced_config_rows(configs: Sequence[FollowedConfig]) -> list[SyncedConfigRow]:
    """Return the rows of synced configs."""
    return [
        SyncedConfigRow(
            name=config.name,
            source=readable_config(config.name, config.source_value),
            mirror=readable_config(config.name, config.mirror_value),
            differs=config.mirror_value != config.source_value,
        )
        for config in configs
    ]


def revert_row(revert: ConfigRevert, *, now: datetime) -> RevertRow:
    """Create the row of a reverted change."""
    return RevertRow(
        name=revert.name,
        found=None if revert.found is None else readable_config(revert.name, revert.found),
        restored=readable_config(revert.name, revert.restored),
        at=moment(revert.at, now=now),
    )


def _duration(number_ms: int) -> str:
    """Return a duration exactly, in as many units as it takes."""
    days, rest = divmod(number_ms, _DAY_MS)
    hours, rest = divmod(rest, _HOUR_MS)
    minutes, rest = divmod(rest, _MINUTE_MS)
    seconds, rest = divmod(rest, _SECOND_MS)
    parts = (
        (days, ngettext("%(count)s day", "%(count)s days", days)),
        (hours, ngettext("%(count)s hour", "%(count)s hours", hours)),
        (minutes, ngettext("%(count)s minute", "%(count)s minutes", minutes)),
        (seconds, ngettext("%(count)s second", "%(count)s seconds", seconds)),
    )
    words = [text % {"count": numbers.count(number)} for number, text in parts if number]
    if rest or not words:
        words.append(gettext("%(number)s ms") % {"number": rest})
    return " ".join(words)


def _size(number: int) -> str:
    """Return a size in the largest unit; "about" if it is rounded, "" for less than 1 KiB."""
    for length, unit in _SIZES:
        if number >= length:
            exact = number % length == 0
            return f"{number // length:,} {unit}" if exact else gettext("about %(size)s") % {"size": numbers.size(number)}
    return ""

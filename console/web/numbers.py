"""Formats numbers, sizes, rates, durations, times and config values. None (unknown) becomes a dash, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext

from linkengine.domain.linkconfigs import RPO_OBJECTIVE
from linkengine.domain.times import utc_words

if TYPE_CHECKING:
    from console.mirrors.queries import FollowedConfig
    from console.models import ConfigRevert

UNKNOWN = "\N{EN DASH}"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = (
    (86_400, gettext_noop("%(number)s d")),
    (3_600, gettext_noop("%(number)s h")),
    (60, gettext_noop("%(number)s min")),
    (1, gettext_noop("%(number)s s")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time in three formats: ISO 8601, relative to now, and exact with its time zone."""

    iso: str
    relative: str
    exact: str


def count(number: float | None) -> str:
    """Return a whole number with thousands separators."""
    return UNKNOWN if number is None else f"{round(number):,}"


def worst_lag(known: int | None, *, unknown: int) -> str:
    """Return the largest lag. With ``unknown`` partitions it is a lower bound (≥), and a dash instead of 0."""
    if unknown and not known:
        return UNKNOWN
    return f"≥ {count(known)}" if unknown else count(known)


def percent_of(part: int | None, whole: int | None) -> int | None:
    """Return a percentage, rounded down so that 100 means all; None if either number is unknown."""
    if part is None or whole is None:
        return None
    return 100 if whole <= 0 else max(0, min(100, part * 100 // whole))


def size(number: float | None) -> str:
    """Return a number of bytes with an IEC unit and three significant digits."""
    if number is None:
        return UNKNOWN
    value, unit = float(number), 0
    while value >= 1023.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {_BYTE_UNITS[unit]}"


def byte_rate(number: float | None) -> str:
    return UNKNOWN if number is None else f"{size(number)}/s"


def record_rate(number: float | None) -> str:
    return UNKNOWN if number is None else gettext("%(count)s records/s") % {"count": count(number)}


def duration(number_ms: float | None) -> str:
    """Return a duration in its two largest units, for example ``4 min 12 s``; below 1 s in milliseconds."""
    if number_ms is None:
        return UNKNOWN
    if number_ms < 1000:
        return gettext("%(number)s ms") % {"number": max(0, round(number_ms))}
    seconds = int(number_ms // 1000)
    position = next(position for position, (length, _) in enumerate(_SPANS) if seconds >= length)
    whole, rest = divmod(seconds, _SPANS[position][0])
    smaller = position + 1
    tail = rest // _SPANS[smaller][0] if smaller < len(_SPANS) else 0
    return f"{_span(whole, position)} {_span(tail, smaller)}" if tail else _span(whole, position)


def _span(number: int, position: int) -> str:
    return gettext(_SPANS[position][1]) % {"number": number}


def lag_time(number_ms: float | None) -> str:
    """Return a time lag. Below 1 s it is not given in milliseconds, which would be noise between samples."""
    if number_ms is None:
        return UNKNOWN
    if number_ms <= 0:
        return gettext("%(number)s s") % {"number": 0}
    return gettext("< 1 s") if number_ms < 1000 else duration(number_ms)


def moment(at: datetime | None, *, now: datetime) -> Moment | None:
    """Return the formats of a time; None for None."""
    if at is None:
        return None
    return Moment(iso=at.isoformat(timespec="milliseconds"), relative=ago(at, now=now), exact=exact(at))


def ago(at: datetime, *, now: datetime) -> str:
    """Return the time since ``at`` in one unit, for example ``5 min ago``; in the future ``in 5 min``."""
    seconds = (now - at) // timedelta(seconds=1)
    if abs(seconds) < 2:
        return gettext("just now")
    position = next(position for position, (length, _) in enumerate(_SPANS) if abs(seconds) >= length)
    span = {"span": _span(abs(seconds) // _SPANS[position][0], position)}
    return gettext("%(span)s ago") % span if seconds > 0 else gettext("in %(span)s") % span


def exact(at: datetime) -> str:
    """Return date, time and time zone, in the time zone that the user has chosen (UTC by default)."""
    local = timezone.localtime(at)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or 'UTC'}"


def interval(start: datetime, end: datetime) -> str:
    """Return begin and end of a short time span as ``exact`` does; the date of the end only if it is another."""
    first, last = timezone.localtime(start), timezone.localtime(end)
    until = f"{last:%H:%M:%S} {last.tzname() or 'UTC'}" if first.date() == last.date() else exact(end)
    return gettext("%(start)s to %(end)s") % {"start": f"{first:%Y-%m-%d %H:%M:%S}", "end": until}


def record_time(number_ms: int) -> str:
    """Return the timestamp of a record as ``exact`` does, or as its number if it is outside of the calendar."""
    try:
        return exact(datetime.fromtimestamp(number_ms // 1000, tz=UTC)) if number_ms >= 0 else utc_words(number_ms)
    except (ValueError, OverflowError):
        return utc_words(number_ms)


def retention(number_ms: int | None) -> str:
    """Return the retention of a topic. None is the default of the broker, -1 is unlimited."""
    if number_ms is None:
        return gettext("default")
    return gettext("unlimited") if number_ms < 0 else duration(number_ms)


def plural(number: int | None, singular: str) -> str:
    """Return a number with its noun, for example ``2 topics``."""
    return f"{count(number)} {singular if number == 1 else singular + 's'}"


# --- config values ----------------------------------------------------------------------------------------------------
#
# In people's units: "7 days" for 604800000, "unlimited" for -1. The value itself stays visible beside them.


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
        return _exact_duration(number)
    if name.endswith(".bytes"):
        return _exact_size(number)
    if name.endswith(".bytes.per.second"):
        return f"{_exact_size(number) or f'{number} B'}/s"
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


def _exact_duration(number_ms: int) -> str:
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
    words = [text % {"count": count(number)} for number, text in parts if number]
    if rest or not words:
        words.append(gettext("%(number)s ms") % {"number": rest})
    return " ".join(words)


def _exact_size(number: int) -> str:
    """Return a size in the largest unit; "about" if it is rounded, "" for less than 1 KiB."""
    for length, unit in _SIZES:
        if number >= length:
            is_exact = number % length == 0
            return f"{number // length:,} {unit}" if is_exact else gettext("about %(size)s") % {"size": size(number)}
    return ""

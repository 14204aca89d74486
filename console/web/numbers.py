"""Formats numbers, sizes, rates, durations and times. None (unknown) becomes a dash, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from linkengine.domain.times import utc_words

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


def plural(number: int | None, singular: str, many: str = "") -> str:
    """Return a number with its noun, for example ``2 topics``."""
    return f"{count(number)} {singular if number == 1 else many or singular + 's'}"

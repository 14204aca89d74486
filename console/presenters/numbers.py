"""Numbers, sizes, rates, durations and times as people read them. What is unknown is shown as such, never as 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

UNKNOWN = "\N{EN DASH}"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time as shown: how long ago, and exactly when, with its zone."""

    iso: str
    relative: str
    exact: str


def count(number: float | None) -> str:
    """Write a whole number with thousands separators."""
    return UNKNOWN if number is None else f"{round(number):,}"


def worst_lag(known: int | None, *, unknown: int) -> str:
    """Write the largest lag; with partitions nobody knows it is a lower bound at best, and no lag at all is not claimed."""
    if unknown and not known:
        return UNKNOWN
    return f"≥ {count(known)}" if unknown else count(known)


def percent_of(part: int | None, whole: int | None) -> int | None:
    """Answer a share in whole percent, rounded down so that 100 means all; None while either is unknown."""
    if part is None or whole is None:
        return None
    return 100 if whole <= 0 else max(0, min(100, part * 100 // whole))


def size(number: float | None) -> str:
    """Write bytes with an IEC unit and three significant digits."""
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
    return UNKNOWN if number is None else f"{count(number)} records/s"


def duration(number_ms: float | None) -> str:
    """Write a span in its two largest units, such as ``4 min 12 s``; below a second in milliseconds."""
    if number_ms is None:
        return UNKNOWN
    if number_ms < 1000:
        return f"{max(0, round(number_ms))} ms"
    seconds = int(number_ms // 1000)
    for position, (length, unit) in enumerate(_SPANS):
        if seconds >= length:
            whole, rest = divmod(seconds, length)
            smaller = _SPANS[position + 1] if position + 1 < len(_SPANS) else None
            tail = rest // smaller[0] if smaller else 0
            return f"{whole} {unit} {tail} {smaller[1]}" if smaller and tail else f"{whole} {unit}"
    return "0 s"


def lag_time(number_ms: float | None) -> str:
    """Write the age of a lag: nothing to wait for reads as 0 s, the milliseconds between samples are noise."""
    if number_ms is None:
        return UNKNOWN
    return "0 s" if number_ms <= 0 else "< 1 s" if number_ms < 1000 else duration(number_ms)


def moment(at: datetime | None, *, now: datetime) -> Moment | None:
    """Present a point in time; None stays None."""
    if at is None:
        return None
    return Moment(iso=at.isoformat(timespec="milliseconds"), relative=ago(at, now=now), exact=exact(at))


def ago(at: datetime, *, now: datetime) -> str:
    """Write how long ago ``at`` was, in one unit; the future reads ``in 5 min``."""
    seconds = (now - at) // timedelta(seconds=1)
    if abs(seconds) < 2:
        return "just now"
    length, unit = next((length, unit) for length, unit in _SPANS if abs(seconds) >= length)
    text = f"{abs(seconds) // length} {unit}"
    return f"{text} ago" if seconds > 0 else f"in {text}"


def exact(at: datetime) -> str:
    """Write date, time and zone."""
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname() or 'UTC'}"


def retention(number_ms: int | None) -> str:
    """Write a topic's retention; None is the broker's default, -1 is for ever."""
    if number_ms is None:
        return "default retention"
    return "kept for ever" if number_ms < 0 else f"kept {duration(number_ms)}"


def plural(number: int | None, singular: str, many: str = "") -> str:
    """Write a number with its noun."""
    return f"{count(number)} {singular if number == 1 else many or singular + 's'}"

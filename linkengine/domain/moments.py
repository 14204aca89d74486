"""Handling of times that cannot be trusted. Pure functions.

Record timestamps come from producers and can be any number: -1, or far beyond the calendar. A stored time can be ahead of the
current time because a clock was set back; it is then unusable.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

AHEAD_MS = 2_000  # largest accepted difference between the clocks of an installation
CONFIRM_AFTER_S = 2.0  # a broker that has just started catches up with the metadata log within this time
_YEAR_10000_MS = 253_402_300_800_000


def is_due(at: datetime | None, *, now: datetime, longest: timedelta) -> bool:
    """Return whether the time to do something has come; None is at once.

    ``at`` was set at most ``longest`` ahead. A time further ahead was set before a clock was set back, and would postpone the
    work for as long as the clock was set back.
    """
    return at is None or at <= now or at - now > longest + timedelta(milliseconds=AHEAD_MS)


def utc_words(timestamp_ms: int) -> str:
    """Return a timestamp as date and time, or as its number if it is outside the calendar."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"Unix millisecond {timestamp_ms}"
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

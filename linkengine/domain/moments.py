"""Tolerated clock skew, and record timestamps as text. Pure functions.

Record timestamps come from producers and can be any number: -1, or far beyond the calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime

AHEAD_MS = 2_000  # largest accepted difference between the clocks of an installation
CONFIRM_AFTER_S = 2.0  # a broker that has just started catches up with the metadata log within this time
_YEAR_10000_MS = 253_402_300_800_000


def utc_words(timestamp_ms: int) -> str:
    """Return a timestamp as date and time, or as its number if it is outside the calendar."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"Unix millisecond {timestamp_ms}"
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

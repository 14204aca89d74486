"""Times that cannot be trusted. Pure.

Record timestamps come from producers and may be anything: none at all, or far beyond the calendar. What was noted by a clock
may lie ahead of now, since a clock was set back; it tells nothing then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

AHEAD_MS = 2_000  # what the clocks of one installation may differ by
SECOND_LOOK_AFTER_S = 2.0  # a broker that has just started catches up with the metadata log within this time
_YEAR_10000_MS = 253_402_300_800_000


def is_recent(at_ms: int, *, now_ms: int, within_ms: int) -> bool:
    """Tell whether something was seen lately; a time ahead of now says no."""
    return -AHEAD_MS <= now_ms - at_ms <= within_ms


def is_due(at: datetime | None, *, now: datetime, longest: timedelta) -> bool:
    """Tell whether the time to do something has come; None is at once.

    Whoever fixed ``at`` waits for ``longest`` at most. A time beyond that was fixed before a clock was set back, and would keep
    the work away for as long as the clock was set.
    """
    return at is None or at <= now or at - now > longest + timedelta(milliseconds=AHEAD_MS)


def utc_words(timestamp_ms: int) -> str:
    """Answer a timestamp as date and time, or as its number where no calendar has it."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"Unix millisecond {timestamp_ms}"
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

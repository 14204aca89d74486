"""Record timestamps in words. They come from producers and may be anything: none at all, or far beyond the calendar. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_YEAR_10000_MS = 253_402_300_800_000


def utc_words(timestamp_ms: int) -> str:
    """Answer a timestamp as date and time, or as its number where no calendar has it."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"Unix millisecond {timestamp_ms}"
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"

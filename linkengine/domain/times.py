"""Tolerated clock skew, pauses between retries, and record timestamps as text. Pure functions.

Record timestamps come from producers and can be any number: -1, or far beyond the calendar.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

AHEAD_MS = 2_000  # largest accepted difference between the clocks of an installation
CONFIRM_AFTER_S = 2.0  # a broker that has just started catches up with the metadata log within this time
_YEAR_10000_MS = 253_402_300_800_000
_MOST_DOUBLINGS = 60  # a float cannot represent the power of a count that was never reset


def utc_words(timestamp_ms: int) -> str:
    """Return a timestamp as date and time, or as its number if it is outside the calendar."""
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"Unix millisecond {timestamp_ms}"
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def pause_s(failures: int, *, first_s: float, longest_s: float, spread: tuple[float, float] = (0.75, 1.25)) -> float:
    """Return the seconds to wait after a failure that followed ``failures`` others.

    They double from ``first_s`` to ``longest_s``, and are then multiplied with a random number within ``spread``, so that
    many clients do not retry together.
    """
    doubled: float = first_s * 2 ** min(failures, _MOST_DOUBLINGS)
    return min(longest_s, doubled) * random.uniform(*spread)  # noqa: S311 - jitter, no secret

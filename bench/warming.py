"""When brokers are warm: their rate has stopped rising."""

from __future__ import annotations

from collections.abc import Callable

RISE = 1.05  # times what the last rise reached; less is chance
PATIENCE = 2  # turns without a rise
MOST_TURNS = 12  # a machine whose clock drifts never settles


def until_settled(measure: Callable[[], float]) -> list[float]:
    """Measure a rate again and again until it rises no more; answer all that was found, in order."""
    found: list[float] = []
    best, flat = 0.0, 0
    while flat < PATIENCE and len(found) < MOST_TURNS:
        found.append(measure())
        best, flat = (found[-1], 0) if found[-1] > best * RISE else (best, flat + 1)
    return found

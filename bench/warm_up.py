"""Detection of warm brokers: their rate has stopped rising."""

from __future__ import annotations

from collections.abc import Callable

RISE = 1.05  # factor over the last higher rate; less is noise
PATIENCE = 2  # turns without a rise
MOST_ROUNDS = 12  # limit for a machine whose speed never settles


def until_settled(measure: Callable[[], float]) -> list[float]:
    """Measure a rate repeatedly until it stops rising; return all rates, in order."""
    found: list[float] = []
    best, flat = 0.0, 0
    while flat < PATIENCE and len(found) < MOST_ROUNDS:
        found.append(measure())
        best, flat = (found[-1], 0) if found[-1] > best * RISE else (best, flat + 1)
    return found

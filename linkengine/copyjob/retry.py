"""Exponential backoff with jitter, from 100 ms to 5 s, reset after a success."""

from __future__ import annotations

import random

FIRST_S = 0.1
MOST_S = 5.0


class Backoff:
    """The pauses between retries of an operation."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def next_pause(self) -> float:
        """Count a failure; return the seconds to wait, half of them random, so that many clients do not retry together."""
        full: float = min(MOST_S, FIRST_S * 2 ** min(self._failures, 10))
        self._failures += 1
        return full * (0.5 + random.random() / 2)  # noqa: S311 - jitter, no secret

    @property
    def rested(self) -> bool:
        """Whether nothing has failed since the last success."""
        return self._failures == 0

    def reset(self) -> None:
        """Start from the shortest pause again."""
        self._failures = 0

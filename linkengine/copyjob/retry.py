"""When to try again: exponential with jitter, from 100 ms to 5 s, from scratch after a success."""

from __future__ import annotations

import random

FIRST_S = 0.1
MOST_S = 5.0


class Backoff:
    """The pause before the next try of one thing."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def next_pause(self) -> float:
        """Answer seconds to wait after one more failure: half fixed, half by chance, so that many do not come at once."""
        full: float = min(MOST_S, FIRST_S * 2 ** min(self._failures, 10))
        self._failures += 1
        return full * (0.5 + random.random() / 2)  # noqa: S311 - jitter, no secret

    @property
    def rested(self) -> bool:
        """Whether nothing has failed since the last success."""
        return self._failures == 0

    def reset(self) -> None:
        """Begin from the shortest pause again."""
        self._failures = 0

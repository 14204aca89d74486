"""Exponential backoff: the pause before a retry."""

from __future__ import annotations

import random

_MOST_DOUBLINGS = 60  # a float cannot represent the power of a count that was never reset


def pause_s(failures: int, *, first_s: float, longest_s: float, spread: tuple[float, float] = (0.75, 1.25)) -> float:
    """Return the seconds to wait after a failure that followed ``failures`` others.

    They double from ``first_s`` to ``longest_s``, and are then multiplied with a random number within ``spread``, so that
    many clients do not retry together.
    """
    doubled: float = first_s * 2 ** min(failures, _MOST_DOUBLINGS)
    return min(longest_s, doubled) * random.uniform(*spread)  # noqa: S311 - jitter, no secret

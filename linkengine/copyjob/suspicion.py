"""Confirmation by repeated observation: a single response of a cluster that is restarting may be wrong. No I/O."""

from __future__ import annotations


class Suspicion:
    """Confirms a key after ``observations`` over at least ``seconds`` without a contradiction in between."""

    __slots__ = ("_observations", "_seconds", "_seen")

    def __init__(self, *, observations: int, seconds: float) -> None:
        self._observations = observations
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int, object]] = {}  # key -> time of the first, count, observed value

    def confirmed(self, key: str, now: float, *, of: object = None) -> bool:
        """Count an observation at monotonic time ``now``; return whether it is confirmed. Another value ``of`` starts again."""
        first, count, before = self._seen.get(key, (now, 0, of))
        if before != of:
            first, count = now, 0
        self._seen[key] = (first, count + 1, of)
        return count + 1 >= self._observations and now - first >= self._seconds

    def clear(self, key: str) -> None:
        """Note a contradicting observation."""
        self._seen.pop(key, None)

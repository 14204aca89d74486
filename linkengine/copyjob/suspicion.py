"""Judgement by repeated observation: one look at a cluster that is just restarting may be wrong. Pure."""

from __future__ import annotations


class Suspicion:
    """Confirms after enough observations over enough time without a contradiction in between."""

    __slots__ = ("_observations", "_seconds", "_seen")

    def __init__(self, *, observations: int, seconds: float) -> None:
        self._observations = observations
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int, object]] = {}  # key -> first time, count, what was observed

    def confirmed(self, key: str, now: float, *, of: object = None) -> bool:
        """Note one more observation, ``of`` something that has to stay the same; answer whether that settles it."""
        first, count, before = self._seen.get(key, (now, 0, of))
        if before != of:
            first, count = now, 0
        self._seen[key] = (first, count + 1, of)
        return count + 1 >= self._observations and now - first >= self._seconds

    def clear(self, key: str) -> None:
        """Note an observation to the contrary."""
        self._seen.pop(key, None)

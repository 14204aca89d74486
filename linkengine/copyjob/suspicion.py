"""Judgement by repeated observation: one look at a cluster that is just restarting may be wrong. Pure."""

from __future__ import annotations


class Suspicion:
    """Confirms after enough observations over enough time without a contradiction in between."""

    __slots__ = ("_observations", "_seconds", "_seen")

    def __init__(self, *, observations: int, seconds: float) -> None:
        self._observations = observations
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int]] = {}  # key -> first time, count

    def confirmed(self, key: str, now: float) -> bool:
        """Note one more observation; answer whether that settles it."""
        first, count = self._seen.get(key, (now, 0))
        self._seen[key] = (first, count + 1)
        return count + 1 >= self._observations and now - first >= self._seconds

    def clear(self, key: str) -> None:
        """Note an observation to the contrary."""
        self._seen.pop(key, None)

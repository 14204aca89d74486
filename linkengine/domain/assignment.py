"""Which copy worker copies which partition. Pure: what is wanted and who lives in, moves out.

A partition stays where it is unless there is a reason to move it, since each move costs it up to a second:

1. It has no worker, or its worker is gone: it is placed at once.
2. Its worker drains: it moves to another one.
3. The workers are out of balance: it moves from the busiest to the idlest one.

Moves of the last two kinds are few at a time (``MOST_MOVED`` of all partitions), so that never more than a tenth of the
partitions wait for a new owner. A worker's load is the bytes per second its partitions moved lately, plus a little for each
partition, so that idle partitions are spread by their number. Equal candidates: the worker that has fewest partitions of the
same link, so that a large link uses every worker, then the host with the least load.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

EACH_BYTES_PER_S = 10_000.0  # load of one partition besides its bytes: requests, reports, lease
MOST_MOVED = 0.1  # of all partitions, in one call
BALANCED = 1.2  # the busiest worker has at most so many times the mean load


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A copy worker that lives."""

    worker_id: str
    host: str = ""
    draining: bool = False  # gets nothing, and gives away what it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A partition that shall be copied."""

    key: str
    link_id: str
    worker_id: str = ""  # who has it; "": nobody
    bytes_per_s: float | None = None  # moved lately; None: not measured

    @property
    def load(self) -> float:
        """What it costs its worker."""
        return (self.bytes_per_s or 0.0) + EACH_BYTES_PER_S


def assign(partitions: Iterable[Wanted], places: Collection[Place]) -> dict[str, str]:
    """Answer who gets which partition from now on, by key; partitions that stay are not named. Deterministic.

    Nobody gets anything while every worker drains; what nobody has then waits.
    """
    found = sorted(partitions, key=lambda one: (-one.load, one.key))
    table = _Table(found, places)
    if not table.open:
        return {}
    for one in table.homeless:
        table.move(one, table.best_for(one))
    left = tenth(len(found))
    for one in table.draining()[:left]:
        table.move(one, table.best_for(one))
        left -= 1
    while left > 0 and (pair := table.unbalanced()) is not None:
        table.move(*pair)
        left -= 1
    return table.moved


class _Table:
    """Who has what, while it is decided."""

    def __init__(self, partitions: list[Wanted], places: Collection[Place]) -> None:
        self.open = {one.worker_id: one for one in sorted(places, key=lambda one: one.worker_id) if not one.draining}
        closing = {one.worker_id for one in places if one.draining}
        self.moved: dict[str, str] = {}
        self._of: dict[str, list[Wanted]] = {worker: [] for worker in (*self.open, *sorted(closing))}
        self._load: dict[str, float] = defaultdict(float)
        self._links: dict[str, Counter[str]] = defaultdict(Counter)
        self.homeless = [one for one in partitions if one.worker_id not in self._of]
        self._closing = closing
        for one in partitions:
            if one.worker_id in self._of:
                self._put(one, one.worker_id)

    def draining(self) -> list[Wanted]:
        """List what lies with workers that drain, in turn, so that all of them get smaller."""
        rows = [self._of[worker] for worker in sorted(self._closing)]
        return [row[number] for number in range(max(map(len, rows), default=0)) for row in rows if number < len(row)]

    def best_for(self, one: Wanted) -> str:
        """Choose the open worker that a partition costs least."""
        return min(self.open, key=lambda worker: (*self._rank(worker, one), worker))

    def move(self, one: Wanted, worker: str) -> None:
        """Give a partition to a worker."""
        before = self.moved.get(one.key, one.worker_id)
        if before in self._of:
            self._of[before].remove(one)
            self._load[before] -= one.load
            self._links[before][one.link_id] -= 1
        self._put(one, worker)
        self.moved[one.key] = worker

    def unbalanced(self) -> tuple[Wanted, str] | None:
        """Answer the partition whose move to the idlest worker brings most balance, None where it is good enough."""
        busiest = max(self.open, key=lambda worker: (self._load[worker], worker))
        idlest = min(self.open, key=lambda worker: (self._load[worker], worker))
        mean = sum(self._load[worker] for worker in self.open) / len(self.open)
        room = (self._load[busiest] - self._load[idlest]) / 2
        if self._load[busiest] <= BALANCED * mean or room < EACH_BYTES_PER_S:
            return None
        # the largest one that fits; it may have been moved once, but never twice: each move makes the difference smaller
        fitting = [one for one in self._of[busiest] if one.load <= room and one.key not in self.moved]
        if not fitting:
            return None
        crowd = self._links[busiest]
        return max(fitting, key=lambda one: (one.load, crowd[one.link_id], one.key)), idlest

    def _put(self, one: Wanted, worker: str) -> None:
        self._of[worker].append(one)
        self._load[worker] += one.load
        self._links[worker][one.link_id] += 1

    def _rank(self, worker: str, one: Wanted) -> tuple[float, int, float]:
        host = self.open[worker].host
        neighbours = sum(self._load[other] for other, place in self.open.items() if host and place.host == host)
        return (round(self._load[worker], 3), self._links[worker][one.link_id], neighbours)


def tenth(count: int) -> int:
    """Answer how many of so many partitions may move in one call, besides those that nobody has."""
    return max(1, int(count * MOST_MOVED))

"""Decides which copy worker copies which partition. A pure function of the partitions and the running workers.

Each move interrupts a partition for up to a second, so a partition keeps its worker unless there is a reason to move it:

1. It has no worker, or its worker is gone: it is placed at once.
2. Its worker is draining: it moves to another worker.
3. The load is unbalanced: it moves from the busiest to the least loaded worker.

Moves of kinds 2 and 3 are limited per call to ``MOST_MOVED`` of all partitions, so that at most a tenth of them wait for a new
owner at a time. A worker's load is the recently measured bytes per second of its partitions, plus a constant for each
partition, so that idle partitions are spread by number. Among equally loaded workers that with the fewest partitions of the
same link is chosen, so that a large link uses all workers; then the worker on the host with the lowest load.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

EACH_BYTES_PER_S = 10_000.0  # constant load of a partition besides its bytes: requests, reports, lease
MOST_MOVED = 0.1  # share of all partitions that may move per call
BALANCED = 1.2  # balanced while the busiest worker has at most this multiple of the mean load


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A running copy worker."""

    worker_id: str
    host: str = ""
    draining: bool = False  # gets no new partitions, and its partitions move to other workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A partition that is to be copied."""

    key: str
    link_id: str
    worker_id: str = ""  # current worker; "": none
    bytes_per_s: float | None = None  # measured recently; None: unknown

    @property
    def load(self) -> float:
        """Load in bytes per second that the partition puts on its worker."""
        return (self.bytes_per_s or 0.0) + EACH_BYTES_PER_S


def assign(partitions: Iterable[Wanted], places: Collection[Place]) -> dict[str, str]:
    """Return the new worker of each partition that moves, by partition key. Deterministic.

    Nothing is assigned while all workers drain; partitions without a worker then wait.
    """
    ordered = sorted(partitions, key=lambda partition: (-partition.load, partition.key))
    table = _Placement(ordered, places)
    if not table.available:
        return {}
    for partition in table.unplaced:
        table.move(partition, table.best_for(partition))
    left = tenth(len(ordered))
    for partition in table.draining()[:left]:
        table.move(partition, table.best_for(partition))
        left -= 1
    while left > 0 and (pair := table.unbalanced()) is not None:
        table.move(*pair)
        left -= 1
    return table.moved


class _Placement:
    """Partitions and load per worker while ``assign`` decides."""

    def __init__(self, partitions: list[Wanted], places: Collection[Place]) -> None:
        ordered = sorted(places, key=lambda place: place.worker_id)
        self.available = {place.worker_id: place for place in ordered if not place.draining}
        draining = {place.worker_id for place in places if place.draining}
        self.moved: dict[str, str] = {}
        self._of: dict[str, list[Wanted]] = {worker: [] for worker in (*self.available, *sorted(draining))}
        self._load: dict[str, float] = defaultdict(float)
        self._links: dict[str, Counter[str]] = defaultdict(Counter)
        self.unplaced = [partition for partition in partitions if partition.worker_id not in self._of]
        self._draining = draining
        for partition in partitions:
            if partition.worker_id in self._of:
                self._put(partition, partition.worker_id)

    def draining(self) -> list[Wanted]:
        """List the partitions of draining workers, taken from each worker in turn so that all of them shrink."""
        rows = [self._of[worker] for worker in sorted(self._draining)]
        return [row[number] for number in range(max(map(len, rows), default=0)) for row in rows if number < len(row)]

    def best_for(self, partition: Wanted) -> str:
        """Return the available worker with the lowest rank for a partition."""
        return min(self.available, key=lambda worker: (*self._rank(worker, partition), worker))

    def move(self, partition: Wanted, worker: str) -> None:
        """Assign a partition to a worker and update the loads."""
        before = self.moved.get(partition.key, partition.worker_id)
        if before in self._of:
            self._of[before].remove(partition)
            self._load[before] -= partition.load
            self._links[before][partition.link_id] -= 1
        self._put(partition, worker)
        self.moved[partition.key] = worker

    def unbalanced(self) -> tuple[Wanted, str] | None:
        """Return the partition whose move improves the balance most, with its new worker; None if balanced."""
        busiest = max(self.available, key=lambda worker: (self._load[worker], worker))
        idlest = min(self.available, key=lambda worker: (self._load[worker], worker))
        mean = sum(self._load[worker] for worker in self.available) / len(self.available)
        surplus = (self._load[busiest] - self._load[idlest]) / 2
        if self._load[busiest] <= BALANCED * mean or surplus < EACH_BYTES_PER_S:
            return None
        # the largest partition that fits; a partition moves at most once per call, so each move reduces the difference
        fitting = [
            partition for partition in self._of[busiest] if partition.load <= surplus and partition.key not in self.moved
        ]
        if not fitting:
            return None
        links = self._links[busiest]
        return max(fitting, key=lambda partition: (partition.load, links[partition.link_id], partition.key)), idlest

    def _put(self, partition: Wanted, worker: str) -> None:
        self._of[worker].append(partition)
        self._load[worker] += partition.load
        self._links[worker][partition.link_id] += 1

    def _rank(self, worker: str, partition: Wanted) -> tuple[float, int, float]:
        host = self.available[worker].host
        host_load = sum(self._load[other] for other, place in self.available.items() if host and place.host == host)
        return (round(self._load[worker], 3), self._links[worker][partition.link_id], host_load)


def tenth(count: int) -> int:
    """Return how many of ``count`` partitions may move per call, besides those without a worker."""
    return max(1, int(count * MOST_MOVED))

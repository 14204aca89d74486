"""Decides which copy worker copies which partition. A pure function of the partitions and the running workers.

Each move interrupts a partition for up to a second, so a partition keeps its worker unless there is a reason to move it:

1. It has no worker, or its worker is gone: it is placed at once.
2. Its worker is draining: it moves to another worker.
3. The load is unbalanced: it moves from a busier to a less loaded worker, or two partitions are exchanged.

Moves of kinds 2 and 3 are limited per call to ``MOST_MOVED`` of all partitions, so that at most a tenth of them wait for a new
owner at a time. A worker's load is the recently measured bytes per second of its partitions, plus a constant for each
partition, so that idle partitions are spread by number. Among equally loaded workers that with the fewest partitions of the
same link is chosen, so that a large link uses all workers; then the worker on the host with the lowest load.

When all moves are done, the loads of any two workers differ by at most 20 % (``BALANCED``) if no partition has more than 15 %
of the mean load of a worker. (A partition moves if its load is at most 90 % of the difference. So the difference that remains
is less than a partition's load / 0.9, and (mean + x) / (mean + x - 0.15 mean / 0.9) <= 1.2.) With larger partitions the loads
differ by as much as no move or exchange between two workers reduces any further.

Measured rates vary, so moves have a hysteresis: they begin at one ratio and continue to a lower one (``SETTLED``), and no move
is made that merely reverses the difference. A small imbalance (below ``COARSE``) is corrected only if the caller says so with
``fine``, which it does rarely.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

EACH_BYTES_PER_S = 10_000.0  # constant load of a partition besides its bytes: requests, reports, lease
MOST_MOVED = 0.1  # share of all partitions that may move per call
BALANCED = 1.2  # balanced while a worker has at most this multiple of another worker's load
COARSE = 1.5  # the same, for calls without ``fine``
SETTLED = 1.1  # partitions that begin to move continue to do so until this multiple is reached
COMPARED = 100  # of thousands of partitions with the same load, about so many are compared
OVERSHOOT = 0.9  # of the difference of two workers: a partition with more load does not move, since it would nearly reverse it


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


@dataclass(frozen=True, slots=True)
class _Shift:
    """A partition that moves from a busier worker to a less loaded one, and perhaps another that takes the opposite way."""

    busy: str
    idle: str
    partition: Wanted
    back: Wanted | None = None

    @property
    def partitions(self) -> int:
        """Number of partitions that move."""
        return 1 if self.back is None else 2

    def rest(self, difference: float) -> float:
        """Return the difference of the two workers' loads after the shift."""
        return abs(difference - 2 * (self.partition.load - (self.back.load if self.back else 0.0)))


def assign(partitions: Iterable[Wanted], places: Collection[Place], *, fine: bool = False) -> dict[str, str]:
    """Return the new worker of each partition that moves, by partition key. Deterministic.

    Nothing is assigned while all workers drain; partitions without a worker then wait. ``fine``: correct small imbalances, too.
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
    ratio, most = (BALANCED if fine else COARSE), left
    while left > 0 and (shift := table.shift(ratio)) is not None:
        if shift.partitions > left < most:  # an exchange needs two moves; as the first change it may exceed the limit by one
            break
        table.apply(shift)
        left, ratio = left - shift.partitions, SETTLED
    return table.moved


def moves_nothing(loads: Mapping[str, float], places: Collection[Place], *, fine: bool = False) -> bool:
    """Return whether ``assign`` surely moves nothing; ``loads``: the load of each worker that has partitions, by worker id.

    It needs sums only, so that thousands of partitions need not be read to learn that all of them stay where they are.
    """
    available = {place.worker_id for place in places if not place.draining}
    if not available:
        return True
    if not loads.keys() <= available:
        return False
    known = [loads.get(worker, 0.0) for worker in available]
    return max(known) <= (BALANCED if fine else COARSE) * min(known)


class _Placement:
    """Partitions and load per worker while ``assign`` decides."""

    def __init__(self, partitions: list[Wanted], places: Collection[Place]) -> None:
        """Take the partitions in descending order of load."""
        ordered = sorted(places, key=lambda place: place.worker_id)
        self.available = {place.worker_id: place for place in ordered if not place.draining}
        self._draining = sorted(place.worker_id for place in places if place.draining)
        self.moved: dict[str, str] = {}
        # partitions that have not moved in this call, per worker in ascending order of ``_order``
        self._staying: dict[str, list[Wanted]] = {worker: [] for worker in (*self.available, *self._draining)}
        self._load: dict[str, float] = defaultdict(float)
        self._links: dict[str, Counter[str]] = defaultdict(Counter)
        self.unplaced = [partition for partition in partitions if partition.worker_id not in self._staying]
        for partition in sorted(partitions, key=_order):
            if partition.worker_id in self._staying:
                self._staying[partition.worker_id].append(partition)
                self._count(partition, partition.worker_id, 1)

    def draining(self) -> list[Wanted]:
        """List the partitions of draining workers, taken from each worker in turn so that all of them shrink."""
        rows = [self._staying[worker][::-1] for worker in self._draining]
        return [row[number] for number in range(max(map(len, rows), default=0)) for row in rows if number < len(row)]

    def best_for(self, partition: Wanted) -> str:
        """Return the available worker with the lowest rank for a partition."""
        return min(self.available, key=lambda worker: (*self._rank(worker, partition), worker))

    def move(self, partition: Wanted, worker: str) -> None:
        """Assign a partition to a worker, once per call, and update the loads."""
        before = self._staying.get(partition.worker_id)
        if before is not None:
            del before[bisect_left(before, _order(partition), key=_order)]
            self._count(partition, partition.worker_id, -1)
        self._count(partition, worker, 1)
        self.moved[partition.key] = worker

    def apply(self, shift: _Shift) -> None:
        """Move the partitions of a shift."""
        self.move(shift.partition, shift.idle)
        if shift.back is not None:
            self.move(shift.back, shift.busy)

    def shift(self, ratio: float) -> _Shift | None:
        """Return the shift between two workers whose loads differ by more than ``ratio`` that improves their balance most.

        The pairs are tried by their difference, since the worker with the highest load may have a single large partition.
        None: no pair differs that much, or no shift helps.
        """
        for busy, idle in self._pairs():
            if self._load[busy] > ratio * self._load[idle]:
                found = self._best_shift(busy, idle)
                if found is not None:
                    return found
        return None

    def _pairs(self) -> list[tuple[str, str]]:
        """List all pairs of a busier and a less loaded worker, those with the largest differences first."""
        ordered = sorted(self.available, key=lambda worker: (-self._load[worker], worker))
        pairs = [(busy, idle) for number, busy in enumerate(ordered) for idle in ordered[number + 1 :]]
        return sorted(pairs, key=lambda pair: self._load[pair[1]] - self._load[pair[0]])

    def _best_shift(self, busy: str, idle: str) -> _Shift | None:
        """Return the best move from ``busy`` to ``idle``, or exchange if no move halves the difference; None if none helps."""
        difference = self._load[busy] - self._load[idle]
        move, exchange = self._best_move(busy, idle, difference), None
        if move is None or move.rest(difference) > difference / 2:
            exchange = self._best_exchange(busy, idle, difference)
        return move if exchange is None else exchange

    def _best_move(self, busy: str, idle: str, difference: float) -> _Shift | None:
        """Return the move that leaves the smallest difference; of partitions with the same load, one of the largest link."""
        staying, links = self._staying[busy], self._links[busy]
        near = [partition for partition in _nearest(staying, difference / 2) if partition.load <= OVERSHOOT * difference]
        if not near:
            return None
        load = min(near, key=lambda partition: abs(difference - 2 * partition.load)).load
        alike = staying[bisect_left(staying, load, key=_load_of) : bisect_right(staying, load, key=_load_of)]
        alike = alike[:: 1 + len(alike) // COMPARED]
        return _Shift(busy, idle, max(alike, key=lambda partition: (links[partition.link_id], partition.key)))

    def _best_exchange(self, busy: str, idle: str, difference: float) -> _Shift | None:
        """Return the exchange of two partitions that leaves the smallest difference; None if none at least halves it."""
        large = self._staying[busy][bisect_left(self._staying[busy], difference / 4, key=_load_of) :]
        found = [
            _Shift(busy, idle, partition, back)
            for partition in large
            for back in _nearest(self._staying[idle], partition.load - difference / 2)
        ]
        best = min(found, key=lambda shift: (shift.rest(difference), shift.partition.key), default=None)
        return best if best is not None and best.rest(difference) <= difference / 2 else None

    def _count(self, partition: Wanted, worker: str, by: int) -> None:
        self._load[worker] += by * partition.load
        self._links[worker][partition.link_id] += by

    def _rank(self, worker: str, partition: Wanted) -> tuple[float, int, float]:
        host = self.available[worker].host
        host_load = sum(self._load[other] for other, place in self.available.items() if host and place.host == host)
        return (round(self._load[worker], 3), self._links[worker][partition.link_id], host_load)


def _order(partition: Wanted) -> tuple[float, str]:
    return partition.load, partition.key


def _load_of(partition: Wanted) -> float:
    return partition.load


def _nearest(partitions: list[Wanted], load: float) -> list[Wanted]:
    """Return the partitions next to ``load`` in their ascending order: the last below it and the first above it."""
    above = bisect_left(partitions, load, key=_load_of)
    return partitions[max(0, above - 1) : above + 1]


def tenth(count: int) -> int:
    """Return how many of ``count`` partitions may move per call, besides those without a worker."""
    return max(1, int(count * MOST_MOVED))

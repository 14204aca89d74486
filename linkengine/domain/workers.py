"""Copy workers: set-up and heartbeats, assignment of partitions, and partition leases. Pure functions."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from linkengine.domain.plans import CopyPlan

# --- set-up and heartbeats -----------------------------------------------------------------------------------------------
# JSON objects with named fields, as plans are (``plans``), because executors may run another version.
#
# Spark starts a copy worker in any executor with a free slot. If two copy workers run in one executor while another has none,
# that executor copies everything, and its loss interrupts every partition. ``crowded_worker`` finds a worker to be replaced.
# Spark may start the replacement in the wrong executor as well, so a caller tries it a few times.


HEARTBEAT_MS = 1_000  # interval of heartbeats
DEAD_MS = 4_000  # after this time without a heartbeat a worker counts as dead; its partitions are placed on other workers
NUMBER_DIGITS = 4


class SetupText(str):
    """A worker's setup as JSON; it holds a key and an address with a password, so it is never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<the setup of a copy worker>"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """The settings of a copy worker, which are part of its Spark job."""

    worker_id: str
    redis_url: str = field(repr=False)
    key: str = field(repr=False)  # encrypts its assignments and heartbeats (``coordination.pool``)
    lease_ttl_ms: int = 4_000
    poll_ms: int = 100  # interval at which it reads its assignments


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The Spark executor that a copy worker runs in; its name is empty if unknown, as in local mode with a single executor."""

    name: str = ""
    slots: int = 0  # its cores


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAssignments:
    """The current assignments of a copy worker, by link."""

    plans: Mapping[str, CopyPlan]  # what to copy; a plan without partitions: release the link
    numbers: Mapping[str, int]  # of the assignments; reported in the heartbeat
    refused: Mapping[str, str] = field(default_factory=dict)  # why the worker cannot apply an assignment
    ends: bool = False  # release everything and end


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStatus:
    """How far a worker has applied its assignment of a link."""

    applied: int  # number of the assignment that is in effect; 0: none
    partitions: int = 0  # that it has not released
    error: str = ""  # why it does not copy the link


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The heartbeat of a copy worker."""

    worker_id: str
    host: str = ""
    pid: int = 0
    executor: str = ""  # as in ``Executor``
    executor_slots: int = 0
    started_at_ms: int = 0  # by its own clock
    partitions: int = 0
    bytes_per_s: float = 0.0
    links: Mapping[str, AssignmentStatus] = field(default_factory=dict)
    ended: bool = False  # the last heartbeat of a worker that ends in order: it has released everything
    silent_ms: int = 0  # since Redis received it; set by the reader

    @property
    def alive(self) -> bool:
        """Return True if its last heartbeat is recent and not that of its end."""
        return not self.ended and self.silent_ms <= DEAD_MS


def worker_id_for(number: int, unique: str) -> str:
    """Return the id of a worker: its number in the pool and a part that differs between workers of the same number."""
    return f"{number:0{NUMBER_DIGITS}d}-{unique}"


def number_of(worker_id: str) -> int:
    """Return a worker's number in the pool."""
    return int(worker_id.partition("-")[0])


def crowded_worker(beats: Iterable[Heartbeat], *, slots: int | None) -> str:
    """Return the id of the worker to be replaced so that the live workers are spread over Spark's executors, or "".

    It is the newest worker of the executor with the most workers, if another executor with a free slot has at least two fewer.
    ``slots``: of all executors. If those with workers have fewer, there are others without any. None: unknown.
    """
    executors: dict[str, list[Heartbeat]] = defaultdict(list)
    for beat in beats:
        if beat.alive:
            executors[beat.executor].append(beat)
    if not executors or "" in executors:
        return ""
    workers = [len(group) for group in executors.values() if len(group) < group[0].executor_slots]
    if slots is not None and slots > sum(group[0].executor_slots for group in executors.values()):
        workers.append(0)
    most = max(executors.values(), key=lambda group: (len(group), group[0].executor))
    if not workers or len(most) < min(workers) + 2:
        return ""
    return max(most, key=lambda beat: (beat.started_at_ms, beat.worker_id)).worker_id


def write_setup(setup: WorkerSetup) -> SetupText:
    """Return a setup as JSON."""
    return SetupText(json.dumps(asdict(setup)))


def read_setup(text: str) -> WorkerSetup:
    """Return the setup that ``write_setup`` wrote, in any version."""
    return WorkerSetup(**_known(WorkerSetup, json.loads(text)))


def write_heartbeat(beat: Heartbeat) -> str:
    """Return a heartbeat as JSON."""
    return json.dumps(asdict(beat))


def read_heartbeat(text: str, *, silent_ms: int) -> Heartbeat:
    """Return the heartbeat that ``write_heartbeat`` wrote; raise ValueError for any other text."""
    try:
        values = _known(Heartbeat, json.loads(text))
        links = {name: AssignmentStatus(**_known(AssignmentStatus, status)) for name, status in values.get("links", {}).items()}
        return Heartbeat(**{**values, "links": links, "silent_ms": silent_ms})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a copy worker's heartbeat: {error}") from error


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {known.name for known in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


# --- assignment ----------------------------------------------------------------------------------------------------------
# A pure function of the partitions and the running workers. Each move interrupts a partition for up to a second, so a partition
# keeps its worker unless there is a reason to move it:
#
# 1. It has no worker, or its worker is gone: it is placed at once.
# 2. Its worker is draining: it moves to another worker.
# 3. The load is unbalanced: it moves from a busier to a less loaded worker, or two partitions are exchanged.
#
# Moves of kinds 2 and 3 are limited per call to ``MOST_MOVED`` of all partitions, so that at most a tenth of them wait for a
# new owner at a time. A worker's load is the recently measured bytes per second of its partitions, plus a constant for each
# partition, so that idle partitions are spread by number. Among equally loaded workers, the worker with the fewest partitions
# of the same link is chosen, so that a large link uses all workers; then the worker on the host with the lowest load.
#
# When all moves are done, the loads of any two workers differ by at most 20 % (``BALANCED``) if no partition has more than 15 %
# of the mean load of a worker. (A partition moves if its load is at most 90 % of the difference. So the difference that remains
# is less than a partition's load / 0.9, and (mean + x) / (mean + x - 0.15 mean / 0.9) <= 1.2.) With larger partitions, the
# loads end where no move or exchange between two workers reduces their difference any further.
#
# Measured rates vary, so moves have a hysteresis: they begin at one ratio and continue to a lower one (``SETTLED``), and no
# move is made that merely reverses the difference. A small imbalance (below ``COARSE``) is corrected only if the caller passes
# ``fine``, which it does rarely.


EACH_BYTES_PER_S = 10_000.0  # constant load of a partition besides its bytes: requests, reports, lease
MOST_MOVED = 0.1  # share of all partitions that may move per call
BALANCED = 1.2  # balanced while a worker has at most this multiple of another worker's load
COARSE = 1.5  # the same, for calls without ``fine``
SETTLED = 1.1  # partitions that begin to move continue to do so until this multiple is reached
COMPARED = 100  # of thousands of partitions with the same load, about so many are compared
OVERSHOOT = 0.9  # of the difference of two workers: a partition with more load does not move, since it would nearly reverse it


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWorker:
    """A running copy worker, to which partitions can be assigned."""

    worker_id: str
    host: str = ""
    draining: bool = False  # gets no new partitions, and its partitions move to other workers


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """A partition that is to be copied, with its worker and the load that it causes."""

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
    partition: PartitionLoad
    back: PartitionLoad | None = None

    @property
    def partitions(self) -> int:
        """Number of partitions that move."""
        return 1 if self.back is None else 2

    def rest(self, difference: float) -> float:
        """Return the difference of the two workers' loads after the shift."""
        return abs(difference - 2 * (self.partition.load - (self.back.load if self.back else 0.0)))


def assign(partitions: Iterable[PartitionLoad], workers: Collection[PoolWorker], *, fine: bool = False) -> dict[str, str]:
    """Return the new worker of each partition that moves, by partition key. Deterministic.

    Nothing is assigned while all workers drain; partitions without a worker then wait. ``fine``: correct small imbalances, too.
    """
    ordered = sorted(partitions, key=lambda partition: (-partition.load, partition.key))
    table = _Placement(ordered, workers)
    if not table.available:
        return {}
    for partition in table.unplaced:
        table.move(partition, table.best_for(partition))
    remaining = tenth(len(ordered))  # moves
    for partition in table.draining()[:remaining]:
        table.move(partition, table.best_for(partition))
        remaining -= 1
    ratio, most = (BALANCED if fine else COARSE), remaining
    while remaining > 0 and (shift := table.shift(ratio)) is not None:
        if shift.partitions > remaining < most:  # an exchange needs two moves; the first one may exceed the limit by one
            break
        table.apply(shift)
        remaining, ratio = remaining - shift.partitions, SETTLED
    return table.moved


def moves_nothing(loads: Mapping[str, float], workers: Collection[PoolWorker], *, fine: bool = False) -> bool:
    """Return whether ``assign`` surely moves nothing; ``loads``: the load of each worker that has partitions, by worker id.

    It needs sums only, so that thousands of partitions need not be read to learn that all of them stay where they are.
    """
    available = {worker.worker_id for worker in workers if not worker.draining}
    if not available:
        return True
    if not loads.keys() <= available:
        return False
    known = [loads.get(name, 0.0) for name in available]
    return max(known) <= (BALANCED if fine else COARSE) * min(known)


class _Placement:
    """Partitions and load per worker while ``assign`` decides."""

    def __init__(self, partitions: list[PartitionLoad], workers: Collection[PoolWorker]) -> None:
        """Take the partitions in descending order of load."""
        ordered = sorted(workers, key=lambda worker: worker.worker_id)
        self.available = {worker.worker_id: worker for worker in ordered if not worker.draining}
        self._draining = [worker.worker_id for worker in ordered if worker.draining]
        self.moved: dict[str, str] = {}
        # partitions that have not moved in this call, per worker in ascending order of ``_order``
        self._staying: dict[str, list[PartitionLoad]] = {worker: [] for worker in (*self.available, *self._draining)}
        self._load: dict[str, float] = defaultdict(float)
        self._links: dict[str, Counter[str]] = defaultdict(Counter)
        self.unplaced = [partition for partition in partitions if partition.worker_id not in self._staying]
        for partition in sorted(partitions, key=_order):
            if partition.worker_id in self._staying:
                self._staying[partition.worker_id].append(partition)
                self._count(partition, partition.worker_id, 1)

    def draining(self) -> list[PartitionLoad]:
        """List the partitions of draining workers, taken from each worker in turn so that all of them shrink."""
        rows = [self._staying[worker][::-1] for worker in self._draining]
        return [row[number] for number in range(max(map(len, rows), default=0)) for row in rows if number < len(row)]

    def best_for(self, partition: PartitionLoad) -> str:
        """Return the available worker with the lowest rank for a partition."""
        return min(self.available, key=lambda worker: (*self._rank(worker, partition), worker))

    def move(self, partition: PartitionLoad, worker: str) -> None:
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

    def _count(self, partition: PartitionLoad, worker: str, by: int) -> None:
        self._load[worker] += by * partition.load
        self._links[worker][partition.link_id] += by

    def _rank(self, worker: str, partition: PartitionLoad) -> tuple[float, int, float]:
        host = self.available[worker].host
        host_load = sum(self._load[name] for name, other in self.available.items() if host and other.host == host)
        return (round(self._load[worker], 3), self._links[worker][partition.link_id], host_load)


def _order(partition: PartitionLoad) -> tuple[float, str]:
    return partition.load, partition.key


def _load_of(partition: PartitionLoad) -> float:
    return partition.load


def _nearest(partitions: list[PartitionLoad], load: float) -> list[PartitionLoad]:
    """Return the partitions next to ``load`` in their ascending order: the last below it and the first above it."""
    above = bisect_left(partitions, load, key=_load_of)
    return partitions[max(0, above - 1) : above + 1]


def tenth(count: int) -> int:
    """Return how many of ``count`` partitions may move per call, besides those without a worker."""
    return max(1, int(count * MOST_MOVED))


# --- leases --------------------------------------------------------------------------------------------------------------
# A lease decides which copy worker *should* write a mirror partition. Its generation gives the coordinator epoch of every
# marker (``producers``), by which the destination's broker decides which worker *can*. Losing a lease is therefore always safe:
# the lease saves work, and the broker's epochs and conditional appends keep the mirror correct. ``coordination.lease``
# implements it.


FIRST_GENERATION = 1  # of a mirror's first owner, or of the first owner after Redis lost its data

# How long ``seen`` is trusted: without an owner, nothing notices that the source was restored. A planned move takes a second, a
# pause or an outage takes longer.
SEEN_TRUSTED_MS = 60_000


class CoordinationUnavailableError(Exception):
    """Redis did not respond in time. It says nothing about the lease: write until its deadline, then stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An owner's lease of a partition, as it was acquired."""

    key: str  # names the mirror partition
    generation: int  # grows with every acquire, outlives the lease; the coordinator epoch of markers is derived from it
    clean: bool  # the previous owner released it, or there was none; False: it expired, and late requests may be in flight
    valid_until: float  # local monotonic seconds as of the acquire; the current deadline is kept by the lease
    markers_announced: bool = False  # only if not clean: markers of an earlier owner, not only data, may be in flight
    # of a clean hand-over: the source's leader epoch under which everything below the mirror's end was read, and that end
    seen: tuple[int, int] | None = None
    # the same of the previous owner if it released; ``clean`` may be False, as markers of an earlier owner may be in flight
    last_release: tuple[int, int] | None = None
    rested_ms: int = 0  # of a clean hand-over: for how long the partition had no owner

    @property
    def trusted_seen(self) -> tuple[int, int] | None:
        """``seen``, while it is recent; after a longer time the source may have been restored and its epochs started anew."""
        return self.seen if self.rested_ms <= SEEN_TRUSTED_MS else None

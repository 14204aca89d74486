"""In-memory ports of a copy worker: lease, assignments and progress that keep their contracts within a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from linkengine.domain.plans import CopyPlan, PartitionPhase, PartitionProgress
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.workers import Grant, Heartbeat, WorkerAssignments


class MemoryLease:
    """The lease's contract within a process: clean hand-over, expiry, growing generations."""

    def __init__(self, *, ttl_s: float = 4.0) -> None:
        self.ttl_s = ttl_s
        self._lock = threading.Lock()
        self._holds: dict[str, tuple[int, float]] = {}  # generation, expiry
        self.generations: dict[str, int] = {}
        self.seen: dict[str, tuple[int, int] | None] = {}  # with which the last owner released cleanly, by key
        self.markers_announced: set[str] = set()
        self.rested_ms = 0  # ``rested_ms`` of the next grants

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        return [grant for key in keys if (grant := self._acquire(key)) is not None]

    def _acquire(self, key: str) -> Grant | None:
        with self._lock:
            now = time.monotonic()
            hold = self._holds.get(key)
            if hold is not None and hold[1] > now:
                return None
            generation = self.generations[key] = self.generations.get(key, 0) + 1
            self._holds[key] = (generation, now + self.ttl_s)
            deadline, seen = now + self.ttl_s * 0.9, self.seen.get(key) if hold is None else None
            markers_announced = hold is not None and key in self.markers_announced
            return Grant(
                key=key,
                generation=generation,
                clean=hold is None,
                valid_until=deadline,
                seen=seen,
                markers_announced=markers_announced,
                rested_ms=self.rested_ms,
            )

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        with self._lock:
            held = {grant.key for grant in grants if self._holds.get(grant.key, (0, 0.0))[0] == grant.generation}
            for key in held:
                self._holds[key] = (self._holds[key][0], time.monotonic() + self.ttl_s)
            return held

    def announce_markers(self, grants: Iterable[Grant]) -> set[str]:
        with self._lock:
            keys = {grant.key for grant in grants if self._holds.get(grant.key, (0, 0.0))[0] == grant.generation}
            self.markers_announced |= keys
            return keys

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        with self._lock:
            if self._holds.get(grant.key, (0, 0.0))[0] != grant.generation:
                return
            if clean:
                del self._holds[grant.key]
                self.seen[grant.key] = seen
                self.markers_announced.discard(grant.key)
            else:
                self._holds[grant.key] = (grant.generation, 0.0)  # as if it had expired

    def raise_generation(self, key: str, at_least: int) -> int:
        with self._lock:
            if self.generations.get(key, 0) < at_least:
                self.generations[key] = at_least
                self.markers_announced.add(key)
            return self.generations[key]

    def deadline(self, grant: Grant) -> float:
        hold = self._holds.get(grant.key)
        return hold[1] - self.ttl_s * 0.1 if hold and hold[0] == grant.generation else float("-inf")


class NoLease(MemoryLease):
    """A lease that does not exclude: every owner gets every partition."""

    def _acquire(self, key: str) -> Grant | None:
        with self._lock:
            self._holds[key] = (1, float("inf"))
            return Grant(key=key, generation=1, clean=True, valid_until=float("inf"))


class MemoryAssignments:
    """Assignments that a test sets, and the heartbeats received."""

    def __init__(self, *plans: CopyPlan) -> None:
        self.beats: list[Heartbeat] = []
        self.assigned = WorkerAssignments(plans={}, numbers={})
        self.assign(*plans)

    def assign(self, *plans: CopyPlan) -> None:
        """Replace the plans of these links."""
        changed = {plan.link_id: plan for plan in plans}
        numbers = {plan.link_id: self.assigned.numbers.get(plan.link_id, 0) + 1 for plan in plans}
        self.assigned = replace(
            self.assigned, plans={**self.assigned.plans, **changed}, numbers={**self.assigned.numbers, **numbers}
        )

    def end(self) -> None:
        self.assigned = replace(self.assigned, ends=True)

    def read(self) -> WorkerAssignments:
        return self.assigned

    def beat(self, heartbeat: Heartbeat) -> None:
        self.beats.append(heartbeat)

    @property
    def errors(self) -> list[str]:
        return [share.error for beat in self.beats for share in beat.links.values() if share.error]


class MemoryProgress:
    """All reports: the newest by key, the persistent reports, losses, and the phases of each partition."""

    def __init__(self) -> None:
        self.latest: dict[str, PartitionProgress] = {}
        self.kept: list[PartitionProgress] = []
        self.lost: list[tuple[str, OffsetRange]] = []
        self.history: list[tuple[str, PartitionPhase, str]] = []
        self.times_ms: list[tuple[str, int]] = []  # key and time of each report

    def report_loss(self, link_id: str, loss: tuple[str, OffsetRange]) -> None:
        self.lost.append(loss)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        self.kept.append(observation)

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        for observation in observations:
            entry = (observation.key, observation.phase, observation.error_code)
            if entry not in self.history[-8:]:
                self.history.append(entry)
            self.latest[observation.key] = observation
            self.times_ms.append((observation.key, observation.observed_at_ms))

    def last_of(self, key: str) -> PartitionProgress:
        """Return the last observation of a partition, with all gaps filled since its lease was granted."""
        last = self.latest[key]
        kept = [
            observation for observation in self.kept if (observation.key, observation.copy_run_id) == (key, last.copy_run_id)
        ]
        return replace(last, gaps=kept[-1].gaps) if kept else last

"""The interfaces between the copy loop and its environment, as Protocols. ``linkengine.coordination`` implements them in Redis.

Methods raise CoordinationUnavailableError, where their docstrings state it, if Redis did not respond in time. Leases then
expire at their local deadlines unless Redis is back before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.workers import Grant, Heartbeat, WorkerAssignments


class Lease(Protocol):
    """The leases of mirror partitions. All methods but ``deadline`` may raise CoordinationUnavailableError."""

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        """Acquire the leases of those partitions that are free; return their grants. Does not wait for the others."""

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        """Extend leases; return the keys still held."""

    def announce_markers(self, grants: Iterable[Grant]) -> set[str]:
        """Record that the owners may send markers from now on; return the keys for which that is recorded."""

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        """Release a lease with nothing in flight; ``clean`` and, if so, ``seen`` are passed to the next owner (``Grant``)."""

    def raise_generation(self, key: str, at_least: int) -> int:
        """Raise the generation counter to what the destination has already; return the generation to use."""

    def deadline(self, grant: Grant) -> float:
        """Return until when the owner may write (monotonic seconds); in the past if the lease is lost. Never blocks."""


class Assignments(Protocol):
    """The worker's assignments and heartbeat. Calls may raise CoordinationUnavailableError."""

    def read(self) -> WorkerAssignments:
        """Return the current assignments; the same object while they do not change."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Publish a heartbeat."""


class Allowances(Protocol):
    """The bandwidth limits of links, each shared by all copy workers."""

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count ``size`` fetched bytes; return the seconds to pause. May raise CoordinationUnavailableError."""


class ProgressSink(Protocol):
    """Publishes observations of partitions."""

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link."""

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Publish an observation that is stored until the reconciler has processed it."""

    def report_loss(self, link_id: str, loss: tuple[str, OffsetRange]) -> None:
        """Store a range of lost offsets of a partition (by key). May raise CoordinationUnavailableError."""


class Clock(Protocol):
    """A source of time that tests can replace."""

    def monotonic(self) -> float:
        """Return seconds that never go back, of the same clock as the lease's deadlines."""

    def now_ms(self) -> int:
        """Return Unix milliseconds."""


class SystemClock:
    """The system clocks. ``now_ms`` follows the monotonic clock, so a later change of the system time does not affect ages."""

    def __init__(self) -> None:
        """Read the system time once."""
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._ahead_ns) // 1_000_000

"""What the copy loop needs from outside, as Protocols. ``linkengine.coordination`` implements them over Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from linkengine.domain.leases import Grant
from linkengine.domain.plans import CopyPlan, PartitionProgress
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.workers import Heartbeat


class Lease(Protocol):
    """Who should write which partition. Calls may raise CoordinationUnavailableError; the deadlines then come closer."""

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        """Take those partitions that nobody has; never waits for any."""

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        """Prolong; answer the keys still held."""

    def arm(self, grants: Iterable[Grant]) -> set[str]:
        """Note that markers may be on their way from now on; answer the keys for which it is noted."""

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        """Give back with nothing in flight: the next owner is told ``clean`` and, if so, what was ``seen`` (``Grant``)."""

    def raise_generation(self, key: str, at_least: int) -> int:
        """Lift the counter, for a destination that knows of a later generation; answer the one to use."""

    def deadline(self, grant: Grant) -> float:
        """Until when (monotonic seconds) the owner may write; in the past once the lease is lost. Cheap, never waits."""


class Told(Protocol):
    """What a worker has been told so far."""

    @property
    def plans(self) -> Mapping[str, CopyPlan]:
        """What to copy, by link; a plan without partitions: let go of the link."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """Which assignment that is, by link."""

    @property
    def refused(self) -> Mapping[str, str]:
        """What cannot be followed, by link, and why."""

    @property
    def ends(self) -> bool:
        """Let go of everything and end."""


class Assignments(Protocol):
    """The worker's connection to those who say what it copies. Calls may raise CoordinationUnavailableError."""

    def read(self) -> Told:
        """Answer what was told so far: the same object while there is no news."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Show life."""


class Allowances(Protocol):
    """The bandwidth limits that all workers of a link share."""

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count fetched bytes; answer for how many seconds to fetch nothing. May raise CoordinationUnavailableError."""


class ProgressSink(Protocol):
    """Where observations go."""

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link."""

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Publish an observation that is kept until somebody has taken it in."""

    def lose(self, link_id: str, loss: tuple[str, OffsetRange]) -> None:
        """Keep which offsets of a partition (by key) are gone for good. May raise CoordinationUnavailableError."""


class Clock(Protocol):
    """Time, as an argument."""

    def monotonic(self) -> float:
        """Seconds that never go back; the same clock as the lease's deadlines."""

    def now_ms(self) -> int:
        """Unix milliseconds."""


class SystemClock:
    """The machine's clock. A wall clock that is set later does not reach those who have begun: ages stay right."""

    def __init__(self) -> None:
        """Look at the wall clock once."""
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._ahead_ns) // 1_000_000

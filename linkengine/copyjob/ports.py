"""What the copy loop needs from outside, as Protocols. ``linkengine.coordination`` implements them over Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from linkengine.domain.leases import Grant, OrdersSnapshot
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import OffsetRange


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


class Orders(Protocol):
    """What people want right now."""

    def read(self) -> OrdersSnapshot | None:
        """Answer the orders of the link, None where none are recorded (carry on)."""


class Allowance(Protocol):
    """The bandwidth limit that all tasks of a link share."""

    def spend(self, size: int) -> float:
        """Count fetched bytes; answer for how many seconds to fetch nothing. May raise CoordinationUnavailableError."""


class ProgressSink(Protocol):
    """Where observations go."""

    def report(self, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations."""

    def lose(self, loss: tuple[str, OffsetRange]) -> None:
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

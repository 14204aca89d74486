"""The interface of the system under test: inject faults, wait until it is in sync, promote and fail over mirrors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from chaos.effects import InjectedFault
from chaos.judge import Finding
from chaos.schedule import ScheduledFault


class Engine(Protocol):
    """A system that copies all topics."""

    def inject(self, fault: ScheduledFault) -> InjectedFault | None:
        """Inject a fault; return how to repair it, None if it had no target."""

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        """Wait until the mirrors have all records of their sources; raise TimeoutError with the ends otherwise."""

    def fail_over(self, topic: str) -> None:
        """Start to make a mirror writable, whatever state the source is in; ``stopped`` shows when it is done."""

    def promote_during_move(self, topic: str, *, wait_until_drained: Callable[[], object]) -> InjectedFault | None:
        """Start to promote a mirror, and move all partitions before its lag is zero.

        It cannot be zero before ``wait_until_drained`` is called. Effective if the mirror's partition was handed over before
        that. ``stopped`` shows when the promotion is done.
        """

    def promote(self, topics: Collection[str], *, timeout_s: float) -> None:
        """Promote the mirrors and wait until they are stopped."""

    def stopped(self, topic: str) -> dict[int, int]:
        """Return the recorded ends of a stopped mirror, by partition; empty while it is not stopped."""

    def failures(self) -> Iterator[Finding]:
        """Yield mirrors that have FAILED, which no fault of a storm justifies. Called before mirrors are stopped."""

    def crashes(self) -> Iterator[Finding]:
        """Yield unexpected exceptions in logs, and programs that have ended."""

    def log_tails(self) -> str:
        """Return the ends of logs, which may explain a failure."""

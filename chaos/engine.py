"""What the storm is about, as the harness sees it: something that copies the topics and can be hit, settled and promoted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from chaos.effects import Blow
from chaos.judge import Finding
from chaos.schedule import Fault, Strike


class Engine(Protocol):
    """A copier of all topics, with everything that belongs to it."""

    @property
    def faults(self) -> Collection[Fault]:
        """What it can be hit by."""

    def strike(self, strike: Strike) -> Blow | None:
        """Do what the fault says; answer how to mend it, None where there is nothing to break."""

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        """Wait until the mirrors hold what the sources hold; raise TimeoutError with what is known otherwise."""

    def fail_over(self, topic: str) -> None:
        """Make a mirror writable, whatever the source does; may be answered later (``stopped``)."""

    def promote(self, topics: Collection[str], *, timeout_s: float) -> None:
        """Promote the mirrors and wait until they are stopped."""

    def stopped(self, topic: str) -> dict[int, int]:
        """Answer where a stopped mirror ended, by partition, as the engine recorded it; empty while it is not stopped."""

    def failures(self) -> Iterator[Finding]:
        """Find the mirrors that were given up: no fault of a storm is a reason for that. Asked before mirrors are stopped."""

    def crashes(self) -> Iterator[Finding]:
        """Find the unexpected exceptions in logs, and programs that have ended."""

    def story(self) -> str:
        """Tell what may explain a failure: the ends of logs."""

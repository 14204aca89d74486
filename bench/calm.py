"""How much of this machine its host gave to others (steal time), and which takes were left in peace.

A virtual machine with busy neighbours stands still for milliseconds at a time, which no engine on it can help. Takes are chosen
by that alone, whatever they measured, and in the same way for every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import psutil

CALM = 0.02  # of the machine
STALLS = 2  # of one take, until it is given up


class Take(Protocol):
    """Anything measured once."""

    @property
    def stolen(self) -> float: ...


_T = TypeVar("_T", bound=Take)


class Takes(NamedTuple):
    """How many takes count, and how often is tried at most where the host does not leave them in peace."""

    wanted: int
    most: int
    calm: float = CALM  # a take while more was stolen is disturbed

    def __str__(self) -> str:
        return f"{self.wanted} of at most {self.most}"


class Stolen:
    """What the host takes away from now on."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        """Answer it as a share of all processor time since the beginning; 0 where no host tells."""
        now = psutil.cpu_times()
        passed = sum(now) - sum(self._before)
        return (getattr(now, "steal", 0.0) - getattr(self._before, "steal", 0.0)) / passed if passed else 0.0


def calm_takes(take: Callable[[], _T], takes: Takes) -> list[_T]:
    """Measure until enough takes were left in peace; answer as many as are wanted, those or the calmest."""
    found: list[_T] = []
    while len(found) < takes.most and sum(one.stolen <= takes.calm for one in found) < takes.wanted:
        found.append(take())
    return sorted(found, key=lambda one: one.stolen)[: takes.wanted]


def unstalled(take: Callable[[], _T]) -> _T:
    """Measure again where an engine stands still in the middle (TimeoutError): that says nothing of its rate."""
    for _ in range(STALLS):
        try:
            return take()
        except TimeoutError as error:
            print(f"  Measured again: {error}", flush=True)
    return take()

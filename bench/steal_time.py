"""Steal time of this machine (processor time that its host gave to others), and the choice of undisturbed takes.

A virtual machine with busy neighbours stalls for milliseconds at a time, independent of the engine on it. Takes are chosen only
by steal time, never by their results, and in the same way for every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import psutil

MAX_STOLEN = 0.02  # highest steal time of an undisturbed take, as a share of the machine
STALLS = 2  # retries of a take that stalls, before it fails


class Measurement(Protocol):
    """A single measurement."""

    @property
    def stolen(self) -> float: ...


_T = TypeVar("_T", bound=Measurement)
_Measured = TypeVar("_Measured")


class Takes(NamedTuple):
    """The number of takes that count, and the maximum number of attempts if the host disturbs them."""

    wanted: int
    most: int
    max_stolen: float = MAX_STOLEN  # a take with a higher steal time is disturbed

    def __str__(self) -> str:
        return f"{self.wanted} of at most {self.most}"


class Stolen:
    """Steal time since the creation of this object."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float:
        """Return the steal time as a share of all processor time; 0 if the host does not report it."""
        now = psutil.cpu_times()
        passed = sum(now) - sum(self._before)
        return (getattr(now, "steal", 0.0) - getattr(self._before, "steal", 0.0)) / passed if passed else 0.0


def undisturbed_takes(take: Callable[[], _T], takes: Takes) -> list[_T]:
    """Measure until enough takes are undisturbed; return the wanted number of takes with the least steal time."""
    found: list[_T] = []
    while len(found) < takes.most and sum(measured.stolen <= takes.max_stolen for measured in found) < takes.wanted:
        found.append(take())
    return sorted(found, key=lambda measured: measured.stolen)[: takes.wanted]


def unstalled(take: Callable[[], _Measured]) -> _Measured:
    """Measure, and retry after a TimeoutError: the rate of an engine that stalled is not comparable."""
    for _ in range(STALLS):
        try:
            return take()
        except TimeoutError as error:
            print(f"  Measured again: {error}", flush=True)
    return take()

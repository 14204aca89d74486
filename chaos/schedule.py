"""The schedule of faults: kind, time and duration. A pure function of the seed, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

FIRST_S = 2.0  # before the first fault
GAP_S = (2.0, 6.0)  # between two faults, at random
QUIET_END_S = 3.0  # at the end of a storm, without new faults
# The seed of the suite's storm: with it no stop begins while the destination is broken, and no move while Redis is.
SHORT_SEED, SHORT_S, SHORT_GAP_S = 156_428, 66.0, (1.5, 2.9)


class Fault(StrEnum):
    """A kind of fault. ``schedule`` sorts the kinds by these texts, so a changed text changes the faults of every seed."""

    KILL_COPIER = "kill -9 of a Python worker that copies"
    STOP_COPIER = "SIGSTOP of all copiers for longer than the lease"
    KILL_CONNECT = "kill -9 of the Spark Connect server"
    STOP_CONNECT = "SIGSTOP of the Spark Connect server"
    KILL_WORKER = "kill -9 of the Celery worker"
    KILL_REDIS = "kill -9 of Redis, its data stays"
    LOSE_REDIS = "kill -9 of Redis, its data is lost"
    FLUSH_REDIS = "Redis forgets everything while it runs"
    KILL_SOURCE = "kill -9 of a source broker"
    KILL_DESTINATION = "kill -9 of a destination broker"
    STOP_SOURCE = "SIGSTOP of a source broker"
    STOP_DESTINATION = "SIGSTOP of a destination broker"
    FILL_SOURCE = "the disk of a source broker is full"
    FILL_DESTINATION = "the disk of a destination broker is full"
    CUT_SOURCE = "the network to the source is cut"
    CUT_DESTINATION = "the network to the destination is cut"
    HOLD_SOURCE = "what is on its way from and to the source arrives late"
    HOLD_DESTINATION = "what is on its way from and to the destination arrives late"
    SLOW_SOURCE = "the network to the source is slow"
    SLOW_DESTINATION = "the network to the destination is slow"
    SECOND_COPIER = "a second copier with the same plan"
    SECOND_OWNER = "a second copier whose lease runs beside the first one's"
    CLOCK_FORWARD = "the lease ends early: Redis's clock jumps forward"
    CLOCK_BACK = "the lease lasts for long: Redis's clock jumps back"
    FAILOVER = "a mirror is failed over"
    DRAIN = "a copy worker is replaced by another one"
    REBALANCE = "all partitions change places"
    REBALANCE_PROMOTION = "all partitions change places after the promotion of a mirror has begun, before its lag is zero"
    TWO_ASSIGNERS = "two assigners publish different assignments of the same link in turn"
    CUT_REDIS = "a copy worker is cut off from Redis, and from nothing else"
    STALE_ASSIGNMENT = "an older assignment is published again"
    KILL_MASTER = "kill -9 of the Spark master"


_LASTS_S: dict[Fault, tuple[float, float]] = {
    Fault.KILL_COPIER: (0.2, 3.0),
    Fault.STOP_COPIER: (5.0, 8.0),
    Fault.KILL_CONNECT: (0.5, 4.0),
    Fault.STOP_CONNECT: (2.0, 12.0),
    Fault.KILL_WORKER: (0.5, 6.0),
    Fault.KILL_REDIS: (0.2, 6.0),
    Fault.LOSE_REDIS: (0.2, 6.0),
    Fault.KILL_SOURCE: (4.5, 8.0),  # a broker may register again only when its old session is over
    Fault.KILL_DESTINATION: (4.5, 8.0),
    Fault.STOP_SOURCE: (1.0, 7.0),
    Fault.STOP_DESTINATION: (1.0, 7.0),
    Fault.FILL_SOURCE: (5.0, 8.0),  # the broker shuts down only at its next write
    Fault.FILL_DESTINATION: (5.0, 8.0),
    Fault.CUT_SOURCE: (0.5, 6.0),
    Fault.CUT_DESTINATION: (0.5, 6.0),
    Fault.HOLD_SOURCE: (1.0, 12.0),
    Fault.HOLD_DESTINATION: (1.0, 12.0),
    Fault.SLOW_SOURCE: (2.0, 6.0),
    Fault.SLOW_DESTINATION: (2.0, 6.0),
    Fault.SECOND_COPIER: (6.0, 10.0),
    Fault.SECOND_OWNER: (6.0, 10.0),
    Fault.TWO_ASSIGNERS: (2.0, 5.0),
    Fault.CUT_REDIS: (5.0, 8.0),  # until the lease has expired and another copy worker has taken over
    Fault.KILL_MASTER: (2.0, 8.0),
}
# the effects of the other faults end without a repair
REPAIRED = frozenset(_LASTS_S) - {
    Fault.KILL_COPIER, Fault.SECOND_COPIER, Fault.SECOND_OWNER, Fault.TWO_ASSIGNERS, Fault.CUT_REDIS
}  # fmt: skip
_OF_THE_PRODUCT = {Fault.KILL_CONNECT, Fault.STOP_CONNECT, Fault.KILL_WORKER, Fault.KILL_MASTER}
PRODUCT_FAULTS = tuple(fault for fault in Fault if fault is not Fault.KILL_MASTER)  # without a Spark standalone cluster
ENGINE_FAULTS = tuple(fault for fault in Fault if fault not in _OF_THE_PRODUCT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault of a storm, with its time."""

    at_s: float  # since the storm began
    kind: Fault
    lasts_s: float  # until it is repaired; 0 for kinds that need no repair
    pick: float  # from 0 up to 1: which broker, process or partition


def schedule(
    *, seed: int, seconds: float, faults: Collection[Fault] = tuple(Fault), gap_s: tuple[float, float] = GAP_S
) -> tuple[ScheduledFault, ...]:
    """Return the faults of a storm in order; every kind is used once before any is repeated."""
    chance = random.Random(seed)
    return tuple(_scheduled(chance, seconds=seconds, faults=sorted(faults), gap_s=gap_s))


def short_storm() -> tuple[ScheduledFault, ...]:
    """Return the suite's storm: each fault of the copy loop once, and none while its component is broken already."""
    return schedule(seed=SHORT_SEED, seconds=SHORT_S, faults=ENGINE_FAULTS, gap_s=SHORT_GAP_S)


def _scheduled(
    chance: random.Random, *, seconds: float, faults: list[Fault], gap_s: tuple[float, float]
) -> Iterator[ScheduledFault]:
    deck: list[Fault] = []
    at_s = FIRST_S
    while at_s < seconds - QUIET_END_S:
        if not deck:
            deck = chance.sample(faults, len(faults))
        fault = deck.pop()
        low, high = _LASTS_S.get(fault, (0.0, 0.0))
        yield ScheduledFault(at_s=at_s, kind=fault, lasts_s=chance.uniform(low, high), pick=chance.random())
        at_s += chance.uniform(*gap_s)

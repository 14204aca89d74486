"""What a fault did: a blow knows how to mend what was broken, and proves that something was.

A fault that meets nobody tests nothing. Who holds the partitions is read where the copiers themselves agree on it, in Redis; a
proof that cannot be read is none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import psutil
import redis

Mend = Callable[[], object]
POLL_S = 0.05
END_TRIES = 6
LEASE_MS = 4_000  # of a copier, by default
OWNERS_TIMEOUT_S = 10.0  # until somebody holds a partition, after a fault that came before
CHANGE_TIMEOUT_S = LEASE_MS / 1000 + 4.0  # until a lease has run out, and the next copier has heard of it
RAN_OUT_MS = 400  # a lease that was last seen with less was not given back


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault that was dealt; ``proof`` is asked before ``mend``, and may wait for what it wants to see."""

    mend: Mend = _always
    proof: Callable[[], bool] = _always


class Holding(NamedTuple):
    """One lease as it was seen."""

    token: str  # the worker, and which life of it
    left_ms: int


class Owners:
    """Who holds which partition at this moment."""

    def __init__(self, url: str) -> None:
        """Ask nothing yet."""
        self._redis = redis.Redis.from_url(url, socket_timeout=2.0, decode_responses=True)

    def seen(self) -> dict[str, Holding]:
        """Answer the leases by name; none while Redis does not answer."""
        with suppress(redis.RedisError):
            names = list(self._redis.scan_iter("lease:*", count=1_000))
            asked = self._redis.pipeline(transaction=False)
            for name in names:
                asked.get(name)
                asked.pttl(name)
            answers = asked.execute()
            return {
                name: Holding(token, left)
                for name, token, left in zip(names, answers[::2], answers[1::2], strict=True)
                if token is not None
            }
        return {}

    def tokens(self) -> dict[str, str]:
        """Answer who holds each lease."""
        return {name: one.token for name, one in self.seen().items()}

    def awaited(self) -> dict[str, str]:
        """Answer who holds each lease once somebody does; none if nobody comes."""
        until(lambda: bool(self.seen()), OWNERS_TIMEOUT_S)
        return self.tokens()

    def set_expiry(self, names: Collection[str], after_ms: int) -> int:
        """Let leases end after so many milliseconds; answer how many there were."""
        with suppress(redis.RedisError):
            return sum(bool(self._redis.pexpire(name, after_ms)) for name in names)
        return 0

    def forget_all(self) -> bool:
        """Let Redis lose everything while it runs; tell whether it did."""
        with suppress(redis.RedisError):
            return bool(self._redis.flushall())
        return False

    def taken_over(self, before: Mapping[str, str], *, timeout_s: float = CHANGE_TIMEOUT_S) -> bool:
        """Tell whether within the time a partition has another owner than it had."""
        return until(lambda: _changed(before, self.tokens()), timeout_s)

    def beside(self, pid: int, worker_id: str, ports: Collection[int]) -> bool:
        """Tell whether a copier soon works, connected to brokers, while somebody else holds partitions."""

        def look() -> bool:
            others = {token for token in self.tokens().values() if worker_of(token) != worker_id}
            return bool(others and connected([pid], ports))

        return until(look, CHANGE_TIMEOUT_S)

    def end_leases(self) -> bool:
        """End leases under their owners' feet until one has another owner; tell whether it came to that."""
        for _ in range(END_TRIES):
            before = self.awaited()
            if not before:
                return False
            self.set_expiry(before, 1)
            if self.taken_over(before, timeout_s=LEASE_MS / 4000):
                return True
        return False

    def died(self, before: Mapping[str, str], *, timeout_s: float = CHANGE_TIMEOUT_S) -> bool:
        """Tell whether within the time a lease runs out: its owner neither renews it nor gives it back."""
        left_ms: dict[str, int] = {}
        return until(lambda: _ran_out(left_ms, before, self.seen()), timeout_s)


def worker_of(token: str) -> str:
    """Answer the copy worker that holds a lease."""
    return token.partition("#")[0]


def until(look: Callable[[], bool], timeout_s: float) -> bool:
    """Look again and again; tell whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def connected(pids: Collection[int], ports: Collection[int]) -> list[int]:
    """Answer which processes have an open connection to one of these ports."""
    return sorted(pid for pid in pids if _ports_of(pid) & set(ports))


def _ports_of(pid: int) -> set[int]:
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("tcp")
        return {one.raddr.port for one in connections if one.raddr and one.status == psutil.CONN_ESTABLISHED}
    return set()


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return any(now.get(name, token) != token for name, token in before.items())


def _ran_out(left_ms: dict[str, int], before: Mapping[str, str], now: Mapping[str, Holding]) -> bool:
    """Note how long each lease of before still runs; tell whether one is gone that was about to end."""
    if any(name not in now or now[name].token != before[name] for name, left in left_ms.items() if left <= RAN_OUT_MS):
        return True
    held = {name: now[name].left_ms for name, token in before.items() if name in now and now[name].token == token}
    left_ms.clear()
    left_ms.update(held)
    return False

"""Effects of faults: each fault returns how to repair what was broken, and a check that it broke something.

A fault without an effect tests nothing. The owners of partitions are read from the leases in Redis, by which the copy workers
themselves coordinate. A check that cannot be made counts as no effect.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import redis

from linkengine.domain.workers import NUMBER_DIGITS

Repair = Callable[[], object]
Trails = Mapping[str, list[str]]  # the successive owners of each lease
POLL_S = 0.05
END_TRIES = 6
LEASE_MS = 4_000  # default lease of a copy worker
OWNERS_TIMEOUT_S = 10.0  # until a partition has an owner, after an earlier fault
CHANGE_TIMEOUT_S = LEASE_MS / 1000 + 4.0  # until a lease has expired and the next copy worker has the partition
RAN_OUT_MS = 400  # a lease that was last seen with less remaining time was not released


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault that was injected. ``proof`` returns whether it had an effect; called before ``repair``, and may wait."""

    repair: Repair = _always
    proof: Callable[[], bool] = _always


class Holding(NamedTuple):
    """A lease as it was read."""

    token: str  # the worker's id and the identity of its lease
    left_ms: int


class Owners:
    """The current owners of partitions."""

    def __init__(self, url: str) -> None:
        """Prepare the client; nothing is read yet."""
        self._redis = redis.Redis.from_url(url, socket_timeout=2.0, decode_responses=True)

    def seen(self) -> dict[str, Holding]:
        """Return the leases by name; empty while Redis does not respond."""
        with suppress(redis.RedisError):
            names = list(self._redis.scan_iter("lease:*", count=1_000))
            pipeline = self._redis.pipeline(transaction=False)
            for name in names:
                pipeline.get(name)
                pipeline.pttl(name)
            replies = pipeline.execute()
            return {
                name: Holding(token, left)
                for name, token, left in zip(names, replies[::2], replies[1::2], strict=True)
                if token is not None
            }
        return {}

    def tokens(self) -> dict[str, str]:
        """Return the owner of each lease."""
        return {name: lease.token for name, lease in self.seen().items()}

    def awaited(self) -> dict[str, str]:
        """Return the owner of each lease, after waiting for the first owner; empty after OWNERS_TIMEOUT_S without any."""
        until(lambda: bool(self.seen()), OWNERS_TIMEOUT_S)
        return self.tokens()

    def set_expiry(self, names: Collection[str], after_ms: int) -> int:
        """Set the remaining time of leases in milliseconds; return how many there were."""
        with suppress(redis.RedisError):
            return sum(bool(self._redis.pexpire(name, after_ms)) for name in names)
        return 0

    def forget_all(self) -> bool:
        """Delete all data of the running Redis; return whether it succeeded."""
        with suppress(redis.RedisError):
            return bool(self._redis.flushall())
        return False

    def taken_over(self, before: Mapping[str, str], *, timeout_s: float = CHANGE_TIMEOUT_S) -> bool:
        """Return whether a partition gets another owner within the time."""
        return until(lambda: _changed(before, self.tokens()), timeout_s)

    @contextmanager
    def followed(self) -> Iterator[Trails]:
        """Record the successive owners of each lease within the block. An owner for less than ``POLL_S`` may be missed."""
        trails: dict[str, list[str]] = {}
        over = threading.Event()

        def record() -> None:
            for name, token in self.tokens().items():
                trail = trails.setdefault(name, [])
                if trail[-1:] != [token]:
                    trail.append(token)

        def record_repeatedly() -> None:
            while not over.wait(POLL_S):
                record()

        record()
        thread = threading.Thread(target=record_repeatedly, name="followed", daemon=True)
        thread.start()
        try:
            yield trails
        finally:
            over.set()
            thread.join()

    def beside(self, pid: int, worker_id: str, ports: Collection[int]) -> bool:
        """Return whether a copy worker gets connected to brokers while another worker owns partitions."""

        def is_beside() -> bool:
            others = {token for token in self.tokens().values() if worker_of(token) != worker_id}
            return bool(others and connected([pid], ports))

        return until(is_beside, CHANGE_TIMEOUT_S)

    def end_leases(self) -> bool:
        """Expire leases while their owners run until any lease has another owner; return whether that happened."""
        for _ in range(END_TRIES):
            before = self.awaited()
            if not before:
                return False
            self.set_expiry(before, 1)
            if self.taken_over(before, timeout_s=LEASE_MS / 4000):
                return True
        return False

    def expired(self, before: Mapping[str, str], *, timeout_s: float = CHANGE_TIMEOUT_S) -> bool:
        """Return whether a lease expires within the time: its owner neither renews nor releases it."""
        left_ms: dict[str, int] = {}
        return until(lambda: _ran_out(left_ms, before, self.seen()), timeout_s)


def worker_of(token: str) -> str:
    """Return the id of the copy worker that holds a lease."""
    return token.partition("#")[0]


def came_back(trails: Trails) -> bool:
    """Return whether a lease had an owner, then another owner, and then the first owner again."""
    return any(len(trail) > len(set(trail)) for trail in list(trails.values()))


def changed_workers(trails: Trails, names: Collection[str]) -> bool:
    """Return whether any of these leases was held by two copy workers. A stop, which takes leases too, is none."""
    return any(len({worker for token in trails.get(name, ()) if is_worker(worker := worker_of(token))}) > 1 for name in names)


def is_worker(owner: str) -> bool:
    """Return whether the owner of a lease is a copy worker, by its id."""
    return owner[:NUMBER_DIGITS].isdigit() and owner[NUMBER_DIGITS:].startswith("-")


def lease_name(key: str) -> str:
    """Return the name of a partition's lease in Redis, as in the keys of ``Owners.tokens``."""
    return f"lease:{{{key}}}"


def mentions(logs: Iterable[Path], text: str) -> int:
    """Return how often a text occurs in logs."""
    return sum(log.read_bytes().count(text.encode()) for log in logs if log.exists())


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll a condition; return whether it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def connected(pids: Collection[int], ports: Collection[int]) -> list[int]:
    """Return the processes that have an open connection to any of these ports."""
    return sorted(pid for pid in pids if _ports_of(pid) & set(ports))


def local_ports(pid: int) -> set[int]:
    """Return the local ports of a process's connections."""
    with suppress(psutil.Error):
        return {connection.laddr.port for connection in psutil.Process(pid).net_connections("tcp") if connection.laddr}
    return set()


def _ports_of(pid: int) -> set[int]:
    with suppress(psutil.Error):
        connections = psutil.Process(pid).net_connections("tcp")
        established = (c for c in connections if c.status == psutil.CONN_ESTABLISHED)
        return {c.raddr.port for c in established if c.raddr}
    return set()


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return any(now.get(name, token) != token for name, token in before.items())


def _ran_out(left_ms: dict[str, int], before: Mapping[str, str], now: Mapping[str, Holding]) -> bool:
    """Store the remaining time of each lease of ``before``; return whether a lease that was about to expire is gone."""
    if any(name not in now or now[name].token != before[name] for name, left in left_ms.items() if left <= RAN_OUT_MS):
        return True
    held = {name: now[name].left_ms for name, token in before.items() if name in now and now[name].token == token}
    left_ms.clear()
    left_ms.update(held)
    return False

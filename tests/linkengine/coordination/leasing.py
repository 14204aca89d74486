"""Helpers for tests of the partition lease."""

from __future__ import annotations

import time

import redis

from linkengine.coordination.lease import RedisLease
from linkengine.domain.workers import Grant

TTL_MS = 60_000  # does not expire during a test
SHORT_MS = 150  # only where it does not matter that the lease expires early
DEADLINE_S = 60.0


class Clock:
    """A monotonic clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def taken(lease: RedisLease, key: str, owner: str = "worker") -> Grant:
    (grant,) = lease.acquire_all([key], owner)
    return grant


def taken_in_time(lease: RedisLease, key: str, *, timeout_s: float = DEADLINE_S) -> Grant:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if grants := lease.acquire_all([key], "patient"):
            return grants[0]
        time.sleep(0.01)
    raise AssertionError("the lease did not become free in time")


def wait_for_expiry(url: str, key: str) -> None:
    with redis.Redis.from_url(url) as client:
        deadline = time.monotonic() + DEADLINE_S
        while client.exists(f"lease:{{{key}}}"):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def expire(url: str, key: str) -> None:
    """End a lease as its time to live would."""
    with redis.Redis.from_url(url) as client:
        assert client.delete(f"lease:{{{key}}}") == 1

"""Locks and claims in Redis, by which processes avoid doing the same work twice.

    ====================================  ======================================  ===========================================
    functions                             key                                     expires
    ====================================  ======================================  ===========================================
    ``lock``, ``is_locked``               ``console:lock:NAME`` (owner token)     ``LOCK_TTL_S`` after the last renewal
    ``is_abandoned``                      ``console:unlocked:NAME`` (since, ms)   a minute after the last check
    ``claim``, ``prolong_claim``          ``console:claim:NAME``                  after the ``ttl_ms`` of the last call
    ``request_recheck``, ``pop_recheck``  ``console:recheck:NAME``                after ``LOCK_TTL_S``
    ``run_or_request``                    lock and recheck of NAME                as these
    ====================================  ======================================  ===========================================

A lock is exclusive as long as its owner renews it. It only avoids duplicate work: a process that is suspended for longer than
``LOCK_TTL_S`` loses its lock without noticing, so every step that matters is a compare-and-swap in the database or at the
broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

import redis
import structlog

from console.redis import redis_client

_log = structlog.get_logger(__name__)
LOCK_TTL_S = 5.0  # time to live of a lock: after a crash, another worker can take over the work this much later
_RENEWALS = 3  # per LOCK_TTL_S
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# Renews a lock also if it is missing: Redis may have lost its data, or was unreachable for longer than LOCK_TTL_S.
_RENEW = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# KEYS: the lock; since when (ms) it has been free. ARGV: a lock's time to live; how long to keep the second key.
_IS_ABANDONED = """
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('DEL', KEYS[2]) return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local since = tonumber(redis.call('GET', KEYS[2]) or now)
redis.call('SET', KEYS[2], string.format('%.0f', since), 'PX', ARGV[2])
return now - since >= tonumber(ARGV[1]) and 1 or 0
"""
_MISSED_FOR_MS = 60_000  # callers check every second; after a longer pause the measurement starts anew


@contextmanager
def lock(name: str) -> Iterator[bool]:
    """Hold an exclusive lock inside the block; yields whether it was acquired. Never waits.

    A thread renews the lock until the block ends. The lock only avoids duplicate work: every step that matters is a
    compare-and-swap of its own.
    """
    owned = _Lock(name)
    if not owned.take():
        yield False
        return
    Thread(target=owned.keep, name=f"lock-{name}", daemon=True).start()
    try:
        yield True
    finally:
        owned.release()


def is_locked(name: str) -> bool:
    """Return whether a process holds the lock."""
    return bool(redis_client().exists(f"console:lock:{name}"))


def is_abandoned(name: str) -> bool:
    """Return whether the lock was free at every call for ``LOCK_TTL_S``, within which a live owner would have renewed it.

    A single check is not enough, since Redis may have lost its data. Call this about every second.
    """
    keys = (f"console:lock:{name}", f"console:unlocked:{name}")
    return bool(redis_client().eval(_IS_ABANDONED, 2, *keys, str(int(LOCK_TTL_S * 1000)), str(_MISSED_FOR_MS)))


def claim(name: str, *, ttl_ms: int) -> bool:
    """Return True at most once per ``ttl_ms``, and False for the rest of that time."""
    return bool(redis_client().set(f"console:claim:{name}", "1", nx=True, px=ttl_ms))


def prolong_claim(name: str, *, ttl_ms: int) -> bool:
    """Make a claim last for ``ttl_ms`` from now; return False if there is none."""
    return bool(redis_client().pexpire(f"console:claim:{name}", ttl_ms))


def release_claim(name: str) -> None:
    """Remove a claim, so that it can be made again at once."""
    redis_client().delete(f"console:claim:{name}")


def request_recheck(name: str) -> None:
    """Request that the owner of a lock checks once more before it releases the lock."""
    redis_client().set(f"console:recheck:{name}", "1", px=int(LOCK_TTL_S * 1000))


def pop_recheck(name: str) -> bool:
    """Return and clear whether another check was requested."""
    return bool(redis_client().delete(f"console:recheck:{name}"))


def run_or_request(name: str, work: Callable[[], None], *, rounds: int) -> None:
    """Run ``work`` under a lock. If another task runs it at this moment, that task runs it once more instead.

    The request is made before the lock is tried, so that the owner sees it after it has released the lock. ``rounds`` limits
    how often ``work`` runs for the requests of other tasks.
    """
    request_recheck(name)
    for _round in range(rounds):
        with lock(name) as acquired:
            if not acquired:
                return
            if pop_recheck(name):
                work()
        if not redis_client().exists(f"console:recheck:{name}"):
            return


class _Lock:
    """A lock of this process. Renewals and the release exclude each other, so that a released lock is never renewed."""

    def __init__(self, name: str) -> None:
        self._key, self._token = f"console:lock:{name}", uuid.uuid4().hex
        self._done, self._exclusive = Event(), Lock()

    def take(self) -> bool:
        return bool(redis_client().set(self._key, self._token, nx=True, px=int(LOCK_TTL_S * 1000)))

    def keep(self) -> None:
        while not self._done.wait(LOCK_TTL_S / _RENEWALS):
            with self._exclusive:
                if not self._done.is_set():
                    _eval_quietly(_RENEW, self._key, self._token, int(LOCK_TTL_S * 1000))

    def release(self) -> None:
        with self._exclusive:  # a renewal in flight has returned
            self._done.set()
            _eval_quietly(_RELEASE, self._key, self._token)


def _eval_quietly(script: str, key: str, *values: str | int) -> None:
    try:
        redis_client().eval(script, 1, key, *(str(value) for value in values))
    except redis.RedisError as error:  # the lock expires
        _log.warning("locks.unavailable", error=str(error))

"""Short-lived state of the console in Redis: worker heartbeat, replies to waiting callers, locks, claims, rate limits.

Nothing here needs to survive a loss of Redis's data. The functions use these keys:

    =================================  ====================================  ===============================================
    functions                          key                                   expires
    =================================  ====================================  ===============================================
    ``note_worker``                    ``console:worker-seen``               after an hour
    ``give_answer``                    the reply's own name (a list)         after a minute
    ``hold``, ``is_held``              ``console:hold:NAME`` (owner token)   ``HOLD_S`` after the last renewal
    ``is_abandoned``                   ``console:unheld:NAME`` (since, ms)   a minute after the last check
    ``claim``, ``is_claimed``          ``console:claim:NAME``                after the ``ttl_ms`` of the claim
    ``take_turn``                      ``console:turn:NAME`` (GCRA)          when the bucket is empty again
    ``ask_again``, ``was_asked_again`` ``console:again:NAME``                after ``HOLD_S``
    =================================  ====================================  ===============================================

A lock is exclusive as long as its owner renews it. It only avoids duplicate work: a process that is suspended for longer than
``HOLD_S`` loses its lock without noticing, so every step that matters is a compare-and-swap in the database or at the broker.

Redis stores expiries as points of time. If its host's clock is set back, keys live longer by that much. The scripts therefore
shorten a time to live that is longer than it can be, as leases do (``linkengine.coordination.lease``).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Event, Lock, Thread
from typing import Any, cast

import redis
import structlog
from django.conf import settings

from console.config import signing_keys
from linkengine.domain.moments import AHEAD_MS
from linkengine.domain.signatures import REFUSED_COUNTS
from linkengine.redisaddress import connect

_log = structlog.get_logger(__name__)
_WORKER_SEEN = "console:worker-seen"
_SEEN_EXPIRY_S = 3600
_ANSWER_EXPIRY_S = 60  # longer than any caller waits
_REPLY = "reply"
HOLD_S = 5.0  # time to live of a lock: after a crash, another worker can take over the work this much later
_RENEWALS = 3  # per HOLD_S
_SHORTEN = "if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end "
_TAKE = f"if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then return 1 end {_SHORTEN} return 0"
_EXISTS = f"{_SHORTEN} return redis.call('EXISTS', KEYS[1])"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# Renews a lock also if it is missing: Redis may have lost its data, or was unreachable for longer than HOLD_S.
_RENEW = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# KEYS: the lock; since when (ms) it has been free. ARGV: a lock's time to live; how long to keep the second key.
_IS_ABANDONED = f"""
{_SHORTEN}
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('DEL', KEYS[2]) return 0 end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local since = tonumber(redis.call('GET', KEYS[2]) or now)
if since > now then since = now end  -- the clock was set back
redis.call('SET', KEYS[2], string.format('%.0f', since), 'PX', ARGV[2])
return now - since >= tonumber(ARGV[1]) and 1 or 0
"""
_MISSED_FOR_MS = 60_000  # callers check every second; after a longer pause the measurement starts anew
_POLL_S = 0.5  # below the socket's timeout
# GCRA: the key holds the time (microseconds) at which the bucket is empty again. Returns 0, or how long to wait.
_TAKE_TURN = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local empty_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or '0'))
if empty_at > now + ARGV[1] * ARGV[2] then empty_at = now end  -- beyond a full bucket: the clock was set back
local wait = empty_at + ARGV[1] - now - ARGV[1] * ARGV[2]
if wait > 0 then return math.ceil(wait) end
local after = empty_at + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000) + 1)
return 0
"""
TIMEOUT_S = 1.0  # a health check or a page waits no longer than this


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return connect(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, decode_responses=True)


def client() -> redis.Redis:
    """Return this process's client. It is thread-safe."""
    return _client(settings.REDIS_URL)


def note_worker() -> None:
    """Store that a Celery worker has just done something."""
    client().set(_WORKER_SEEN, int(time.time() * 1000), ex=_SEEN_EXPIRY_S)


def worker_silence_ms() -> int | None:
    """Return the age of the last worker heartbeat, None if unknown. Raises redis.RedisError if Redis is not available."""
    return silence_ms(cast("str | None", client().get(_WORKER_SEEN)))


def silence_ms(seen: str | None) -> int | None:
    """Return the age of a heartbeat (``seen``: Unix ms), None if unknown."""
    if seen is None:
        return None
    passed_ms = int(time.time() * 1000) - int(seen)
    return None if passed_ms < -AHEAD_MS else max(0, passed_ms)  # in the future: a clock was set back


def give_answer(reply_to: str, answer: dict[str, Any]) -> None:
    """Send a signed reply to the process that waits for this name.

    The signature covers the name, so it is valid for no other.
    """
    text = json.dumps(answer)
    signature = signing_keys.reply_signer().sign(_REPLY, reply_to, text)
    pipeline = client().pipeline()
    pipeline.rpush(reply_to, json.dumps({"answer": text, "signature": signature}))
    pipeline.expire(reply_to, _ANSWER_EXPIRY_S)
    pipeline.execute()


def wait_for_answer(reply_to: str, *, timeout_s: float) -> dict[str, Any] | None:
    """Return the reply, or None if none arrives in time. Raises redis.RedisError if Redis is not available.

    A reply that was not signed with the credentials key for this name is dropped, and the wait continues.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        found = cast("tuple[str, str] | None", client().blpop([reply_to], timeout=min(_POLL_S, max(0.01, left))))
        if found is not None and (answer := _verified(reply_to, found[1])) is not None:
            return answer
    return None


def _verified(reply_to: str, text: str) -> dict[str, Any] | None:
    try:
        envelope = json.loads(text)
        answer, signature = envelope["answer"], envelope["signature"]
        valid = signing_keys.reply_signer().verifies(signature, _REPLY, reply_to, answer)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        valid = False
    if not valid:
        _log.error("store.reply_refused", reply_to=reply_to)
        count_refused("reply")
        return None
    found: dict[str, Any] = json.loads(answer)
    return found


def count_refused(kind: str) -> None:
    """Count a message with an invalid signature, for Prometheus. Does nothing while Redis is not available."""
    with suppress(redis.RedisError):
        client().hincrby(REFUSED_COUNTS, kind, 1)


def refused_counts() -> dict[str, int]:
    """Return the number of refused messages by kind. Raises redis.RedisError if Redis is not available."""
    found = cast("dict[str, str]", client().hgetall(REFUSED_COUNTS))
    return {kind: int(count) for kind, count in found.items() if count.isdecimal()}


@contextmanager
def hold(name: str) -> Iterator[bool]:
    """Hold an exclusive lock inside the block; yields whether it was acquired. Never waits.

    A thread renews the lock until the block ends. The lock only avoids duplicate work: every step that matters is a
    compare-and-swap of its own.
    """
    lock = _Hold(name)
    if not lock.take():
        yield False
        return
    Thread(target=lock.keep, name=f"hold-{name}", daemon=True).start()
    try:
        yield True
    finally:
        lock.release()


def is_held(name: str) -> bool:
    """Return whether a process holds the lock."""
    return bool(client().eval(_EXISTS, 1, f"console:hold:{name}", str(int(HOLD_S * 1000))))


def is_abandoned(name: str) -> bool:
    """Return whether the lock was free at every call for ``HOLD_S``, within which a live owner would have renewed it.

    A single check is not enough, since Redis may have lost its data. Call this about every second.
    """
    keys = (f"console:hold:{name}", f"console:unheld:{name}")
    return bool(client().eval(_IS_ABANDONED, 2, *keys, str(int(HOLD_S * 1000)), str(_MISSED_FOR_MS)))


def claim(name: str, *, ttl_ms: int) -> bool:
    """Return True at most once per ``ttl_ms``, and False for the rest of that time."""
    return bool(client().eval(_TAKE, 1, f"console:claim:{name}", str(ttl_ms), "1"))


def is_claimed(name: str) -> bool:
    """Return whether a claim was made and has not expired."""
    return bool(client().exists(f"console:claim:{name}"))


def unclaim(name: str) -> None:
    """Remove a claim, so that it can be made again at once."""
    client().delete(f"console:claim:{name}")


def take_turn(name: str, *, per_s: float, burst: int) -> float:
    """Count an event under a limit of ``burst`` at once and ``per_s`` on average.

    Returns 0 if counted, else the seconds to wait.
    """
    wait_us = cast("int", client().eval(_TAKE_TURN, 1, f"console:turn:{name}", str(1_000_000 / per_s), str(burst)))
    return wait_us / 1_000_000


def forget_turns(name: str) -> None:
    """Reset a rate limit."""
    client().delete(f"console:turn:{name}")


def ask_again(name: str) -> None:
    """Request that the owner of a lock checks once more before it releases the lock."""
    client().set(f"console:again:{name}", "1", px=int(HOLD_S * 1000))


def was_asked_again(name: str) -> bool:
    """Return and clear whether another check was requested."""
    return bool(client().delete(f"console:again:{name}"))


class _Hold:
    """A lock of this process. Renewals and the release exclude each other, so that a released lock is never renewed."""

    def __init__(self, name: str) -> None:
        self._key, self._token = f"console:hold:{name}", uuid.uuid4().hex
        self._done, self._exclusive = Event(), Lock()

    def take(self) -> bool:
        return bool(client().eval(_TAKE, 1, self._key, str(int(HOLD_S * 1000)), self._token))

    def keep(self) -> None:
        while not self._done.wait(HOLD_S / _RENEWALS):
            with self._exclusive:
                if not self._done.is_set():
                    _eval_quietly(_RENEW, self._key, self._token, int(HOLD_S * 1000))

    def release(self) -> None:
        with self._exclusive:  # a renewal in flight has returned
            self._done.set()
            _eval_quietly(_RELEASE, self._key, self._token)


def _eval_quietly(script: str, key: str, *values: str | int) -> None:
    try:
        client().eval(script, 1, key, *(str(value) for value in values))
    except redis.RedisError as error:  # the lock expires
        _log.warning("store.unavailable", error=str(error))

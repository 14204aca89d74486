"""The console's own view of Redis: is it there, when did a worker last show life, answers to waiting callers, request rates.

Nothing here is worth keeping. Redis keeps what expires for as much longer as its host's clock is set back. So whoever meets
something that lasts longer than it may has it end in time, as it is done with leases (``linkengine.coordination.lease``).
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

from console import keys
from linkengine.domain.moments import AHEAD_MS
from linkengine.domain.signatures import REFUSED_COUNTS
from linkengine.redisaddress import connect

_log = structlog.get_logger(__name__)
_WORKER_SEEN = "console:worker-seen"
_SEEN_EXPIRY_S = 3600
_ANSWER_EXPIRY_S = 60  # the caller has left long before
_REPLY = "reply"
HOLD_S = 5.0  # after a worker was killed: how long until another may go on with its work
_RENEWALS = 3  # per HOLD_S
_SHORTEN = "if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end "
_TAKE = f"if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then return 1 end {_SHORTEN} return 0"
_IS_THERE = f"{_SHORTEN} return redis.call('EXISTS', KEYS[1])"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# Redis may have lost its data, or nobody reached it for so long that the hold ran out: what is nobody's is still ours
_RENEW = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# KEYS: the hold, and the moment (ms) since which nobody has it; ARGV: how long a hold lasts, and how long the moment is kept
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
_MISSED_FOR_MS = 60_000  # whoever asks does so every second; one who comes later begins anew
_POLL_S = 0.5  # below the socket's timeout
# GCRA: the key holds the moment (microseconds) at which the bucket would be empty again. Answers 0, or how long to wait.
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
    """Answer this process's client; thread-safe."""
    return _client(settings.REDIS_URL)


def note_worker() -> None:
    """Say that a worker has just done something."""
    client().set(_WORKER_SEEN, int(time.time() * 1000), ex=_SEEN_EXPIRY_S)


def worker_silence_ms() -> int | None:
    """Answer how long ago a worker showed life, None if nobody knows; raise redis.RedisError where Redis does not answer."""
    return silence_ms(cast("str | None", client().get(_WORKER_SEEN)))


def silence_ms(seen: str | None) -> int | None:
    """Answer how long ago that was (Unix ms), None if nobody knows."""
    if seen is None:
        return None
    passed_ms = int(time.time() * 1000) - int(seen)
    return None if passed_ms < -AHEAD_MS else max(0, passed_ms)  # ahead of now: a clock was set back


def give_answer(reply_to: str, answer: dict[str, Any]) -> None:
    """Send a reply to the process that waits under this name, signed for the name: it is of no use for another question."""
    text = json.dumps(answer)
    signature = keys.reply_signer().sign(_REPLY, reply_to, text)
    pipeline = client().pipeline()
    pipeline.rpush(reply_to, json.dumps({"answer": text, "signature": signature}))
    pipeline.expire(reply_to, _ANSWER_EXPIRY_S)
    pipeline.execute()


def wait_for_answer(reply_to: str, *, timeout_s: float) -> dict[str, Any] | None:
    """Return the reply, None if none came in time; raise redis.RedisError where Redis does not answer.

    A reply that no process with the credentials key has signed for this name is dropped, and the wait continues.
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
        valid = keys.reply_signer().verifies(signature, _REPLY, reply_to, answer)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        valid = False
    if not valid:
        _log.error("store.reply_refused", reply_to=reply_to)
        count_refused("reply")
        return None
    found: dict[str, Any] = json.loads(answer)
    return found


def count_refused(kind: str) -> None:
    """Count a message that was refused for its signature, for Prometheus; an outage of Redis is no error here."""
    with suppress(redis.RedisError):
        client().hincrby(REFUSED_COUNTS, kind, 1)


def refused_counts() -> dict[str, int]:
    """Return the number of refused messages by kind; raise redis.RedisError where Redis does not answer."""
    found = cast("dict[str, str]", client().hgetall(REFUSED_COUNTS))
    return {kind: int(count) for kind, count in found.items() if count.isdecimal()}


@contextmanager
def hold(name: str) -> Iterator[bool]:
    """Do something that nobody else does at the same time; tells whether we are the one. Never waits.

    Saves double work only: every step that matters is a compare-and-swap of its own.
    """
    one = _Hold(name)
    if not one.take():
        yield False
        return
    Thread(target=one.keep, name=f"hold-{name}", daemon=True).start()
    try:
        yield True
    finally:
        one.release()


def is_held(name: str) -> bool:
    """Tell whether somebody is at it now."""
    return bool(client().eval(_IS_THERE, 1, f"console:hold:{name}", str(int(HOLD_S * 1000))))


def is_abandoned(name: str) -> bool:
    """Tell whether nobody was at it each time this was asked, for as long as a hold lasts: who lives has renewed it by then.

    Once is not enough: Redis may have lost its data a moment ago. Ask about every second.
    """
    keys = (f"console:hold:{name}", f"console:unheld:{name}")
    return bool(client().eval(_IS_ABANDONED, 2, *keys, str(int(HOLD_S * 1000)), str(_MISSED_FOR_MS)))


def claim(name: str, *, ttl_ms: int) -> bool:
    """Say once per ``ttl_ms`` that something is to be done; answers False for the rest of that time."""
    return bool(client().eval(_TAKE, 1, f"console:claim:{name}", str(ttl_ms), "1"))


def is_claimed(name: str) -> bool:
    """Tell whether that was said lately."""
    return bool(client().exists(f"console:claim:{name}"))


def unclaim(name: str) -> None:
    """Let it be said again at once: what it was about has begun."""
    client().delete(f"console:claim:{name}")


def take_turn(name: str, *, per_s: float, burst: int) -> float:
    """Count one of at most ``burst`` at once and ``per_s`` in the long run; answer 0, or the seconds to wait uncounted."""
    wait_us = cast("int", client().eval(_TAKE_TURN, 1, f"console:turn:{name}", str(1_000_000 / per_s), str(burst)))
    return wait_us / 1_000_000


def forget_turns(name: str) -> None:
    """Count from the beginning again."""
    client().delete(f"console:turn:{name}")


def ask_again(name: str) -> None:
    """Leave a note for whoever is at it: look once more before you stop."""
    client().set(f"console:again:{name}", "1", px=int(HOLD_S * 1000))


def was_asked_again(name: str) -> bool:
    """Answer, and forget, whether there was such a note."""
    return bool(client().delete(f"console:again:{name}"))


class _Hold:
    """One thing that somebody is at. It is renewed or released, never renewed once it was released."""

    def __init__(self, name: str) -> None:
        self._key, self._token = f"console:hold:{name}", uuid.uuid4().hex
        self._done, self._turn = Event(), Lock()

    def take(self) -> bool:
        return bool(client().eval(_TAKE, 1, self._key, str(int(HOLD_S * 1000)), self._token))

    def keep(self) -> None:
        while not self._done.wait(HOLD_S / _RENEWALS):
            with self._turn:
                if not self._done.is_set():
                    _tell(_RENEW, self._key, self._token, int(HOLD_S * 1000))

    def release(self) -> None:
        with self._turn:  # a renewal on its way has come back
            self._done.set()
            _tell(_RELEASE, self._key, self._token)


def _tell(script: str, key: str, *values: str | int) -> None:
    try:
        client().eval(script, 1, key, *(str(value) for value in values))
    except redis.RedisError as error:  # the hold runs out by itself
        _log.warning("store.unavailable", error=str(error))

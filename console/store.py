"""The console's own view of Redis: is it there, when did a worker last show life, answers to waiting callers.

Nothing here is worth keeping.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Any, cast

import redis
from django.conf import settings

_WORKER_SEEN = "console:worker-seen"
_SEEN_EXPIRY_S = 3600
_ANSWER_EXPIRY_S = 60  # the caller has left long before
_POLL_S = 0.5  # below the socket's timeout
TIMEOUT_S = 1.0  # a health check or a page waits no longer than this


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, decode_responses=True)


def client() -> redis.Redis:
    """Answer this process's client; thread-safe."""
    return _client(settings.REDIS_URL)


def note_worker() -> None:
    """Say that a worker has just done something."""
    client().set(_WORKER_SEEN, int(time.time() * 1000), ex=_SEEN_EXPIRY_S)


def worker_silence_ms() -> int | None:
    """Answer how long ago a worker showed life, None if none did; raise redis.RedisError where Redis does not answer."""
    seen = cast("str | None", client().get(_WORKER_SEEN))
    return None if seen is None else max(0, int(time.time() * 1000) - int(seen))


def give_answer(reply_to: str, answer: dict[str, Any]) -> None:
    """Hand an answer to whoever waits under this name."""
    pipeline = client().pipeline()
    pipeline.rpush(reply_to, json.dumps(answer))
    pipeline.expire(reply_to, _ANSWER_EXPIRY_S)
    pipeline.execute()


def wait_for_answer(reply_to: str, *, timeout_s: float) -> dict[str, Any] | None:
    """Answer what was given, None if nothing came in time; raise redis.RedisError where Redis does not answer."""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        found = cast("tuple[str, str] | None", client().blpop([reply_to], timeout=min(_POLL_S, max(0.01, left))))
        if found is not None:
            answer: dict[str, Any] = json.loads(found[1])
            return answer
    return None

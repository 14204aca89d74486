"""Signed replies of workers to waiting processes, and the number of messages that were refused for their signature."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any, cast

import redis
import structlog

from console.config import signing_keys
from console.redis.client import redis_client
from linkengine.domain.signatures import REFUSED_COUNTS

_EXPIRY_S = 60  # longer than any caller waits
_POLL_S = 0.5  # below the socket's timeout
_PURPOSE = "reply"
_log = structlog.get_logger(__name__)


def send_reply(reply_to: str, reply: dict[str, Any]) -> None:
    """Send a signed reply to the process that waits for this name.

    The signature covers the name, so it is valid for no other.
    """
    text = json.dumps(reply)
    signature = signing_keys.reply_signer().sign(_PURPOSE, reply_to, text)
    pipeline = redis_client().pipeline()
    pipeline.rpush(reply_to, json.dumps({"reply": text, "signature": signature}))
    pipeline.expire(reply_to, _EXPIRY_S)
    pipeline.execute()


def wait_for_reply(reply_to: str, *, timeout_s: float) -> dict[str, Any] | None:
    """Return the reply, or None if none arrives in time. Raises redis.RedisError if Redis is not available.

    A reply that was not signed with the credentials key for this name is dropped, and the wait continues.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        found = cast("tuple[str, str] | None", redis_client().blpop([reply_to], timeout=min(_POLL_S, max(0.01, left))))
        if found is not None and (reply := _verified(reply_to, found[1])) is not None:
            return reply
    return None


def _verified(reply_to: str, text: str) -> dict[str, Any] | None:
    try:
        envelope = json.loads(text)
        reply, signature = envelope["reply"], envelope["signature"]
        valid = signing_keys.reply_signer().verifies(signature, _PURPOSE, reply_to, reply)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        valid = False
    if not valid:
        _log.error("replies.refused", reply_to=reply_to)
        count_refused("reply")
        return None
    found: dict[str, Any] = json.loads(reply)
    return found


def count_refused(kind: str) -> None:
    """Count a message with an invalid signature, for Prometheus. Does nothing while Redis is not available."""
    with suppress(redis.RedisError):
        redis_client().hincrby(REFUSED_COUNTS, kind, 1)


def refused_counts() -> dict[str, int]:
    """Return the number of refused messages by kind. Raises redis.RedisError if Redis is not available."""
    found = cast("dict[str, str]", redis_client().hgetall(REFUSED_COUNTS))
    return {kind: int(count) for kind, count in found.items() if count.isdecimal()}

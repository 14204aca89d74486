"""Publishes older assignments again, with their seals and digests, as a replica of Redis does that lagged when it took over.

An attacker with write access to Redis can do the same. A copy worker has to refuse an assignment whose number is not above that
of its present one, and the reconciler has to notice that Redis no longer holds what it wrote.
"""

from __future__ import annotations

import uuid
from typing import Any

import redis

REFUSED = "assignment.stale"  # the copy worker's log message
_ASSIGNMENT, _DIGEST, _STAMP = "copy-assignment:", "copy-digest:", "stamp"


class FormerAssignments:
    """The assignments of all copy workers as they are in Redis now."""

    def __init__(self, client: redis.Redis) -> None:
        """Read them; raise redis.RedisError in an outage."""
        untyped: Any = client  # its type hints allow bytes, which decode_responses excludes
        self._client = untyped
        names = list(client.scan_iter(f"{_ASSIGNMENT}*"))
        self._tokens: dict[str, dict[str, str]] = {name: untyped.hgetall(name) for name in names}
        self._digests: dict[str, dict[str, str]] = {name: untyped.hgetall(_digests_of(name)) for name in names}

    def publish(self) -> int:
        """Write those that have been replaced since; return their number. Raises redis.RedisError in an outage."""
        return sum(self._publish(name) for name in self._tokens)

    def _publish(self, name: str) -> int:
        now: dict[str, str] = self._client.hgetall(_digests_of(name))
        former = self._digests[name]
        replaced = [link for link in self._tokens[name] if link in now and link in former and now[link] != former[link]]
        if replaced:
            with self._client.pipeline() as pipeline:
                pipeline.hset(name, mapping={link: self._tokens[name][link] for link in replaced})
                digests = {link: former[link] for link in replaced}
                pipeline.hset(_digests_of(name), mapping={**digests, _STAMP: uuid.uuid4().hex})  # the worker reads them
                pipeline.execute()
        return len(replaced)


def _digests_of(name: str) -> str:
    return name.replace(_ASSIGNMENT, _DIGEST, 1)

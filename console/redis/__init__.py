"""The Redis client of this process, and short-lived state. Nothing in Redis needs to survive a loss of its data."""

from __future__ import annotations

from functools import lru_cache

import redis
from django.conf import settings

from linkengine.redisaddress import connect

TIMEOUT_S = 1.0  # a health check or a page waits no longer than this


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return connect(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, decode_responses=True)


def redis_client() -> redis.Redis:
    """Return this process's client. It is thread-safe."""
    return _client(settings.REDIS_URL)

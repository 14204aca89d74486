"""The heartbeat of the Celery workers, and the age of any heartbeat."""

from __future__ import annotations

import time
from typing import cast

from console.redis.client import redis_client
from linkengine.domain.moments import AHEAD_MS

_WORKER_SEEN, _KEPT_S = "console:worker-seen", 3600


def note_worker() -> None:
    """Store that a Celery worker has just done something."""
    redis_client().set(_WORKER_SEEN, int(time.time() * 1000), ex=_KEPT_S)


def heartbeat_age_ms() -> int | None:
    """Return the age of the last worker heartbeat, None if unknown. Raises redis.RedisError if Redis is not available."""
    return age_ms(cast("str | None", redis_client().get(_WORKER_SEEN)))


def age_ms(seen: str | None) -> int | None:
    """Return the age of a heartbeat (``seen``: Unix ms), None if unknown."""
    if seen is None:
        return None
    passed_ms = int(time.time() * 1000) - int(seen)
    return None if passed_ms < -AHEAD_MS else max(0, passed_ms)  # in the future: a clock was set back

"""Rate limit of REST requests per API key: a steady rate with a burst, counted in Redis for all web processes.

The algorithm is GCRA (a leaky bucket that stores a timestamp per key). The limit protects the service from a client in a
loop; it does not protect the Kafka clusters. If Redis is unavailable, requests are allowed, because a failover must not depend
on it.
"""

from __future__ import annotations

import math

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from console.redis import rate_limit


class KeyThrottle(BaseThrottle):
    """Refuses requests of an API key or a session above its rate with 429."""

    def __init__(self) -> None:
        """Create a throttle without a wait."""
        self._wait_s = 0.0

    def allow_request(self, request: Request, _view: APIView) -> bool:
        """Count the request; return whether it is within the rate."""
        if settings.API_RATE_PER_S <= 0:
            return True
        client = f"key:{request.auth}" if request.auth else f"user:{request.user.pk}"
        self._wait_s = rate_limit.take(client, per_s=settings.API_RATE_PER_S, burst=settings.API_RATE_BURST)
        return self._wait_s == 0

    def wait(self) -> float:
        """Return the seconds until the next request is allowed, for ``Retry-After``."""
        return math.ceil(self._wait_s)

"""How many requests an API key may send: a steady rate with a burst, counted in Redis for all web processes together.

The algorithm is GCRA (a leaky bucket that stores one moment per key). The rate protects the service from a client that loops,
not the clusters from anybody; where Redis does not answer, requests pass, because a failover must not wait for a counter.
"""

from __future__ import annotations

import math

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from console import turns


class KeyThrottle(BaseThrottle):
    """Refuses (429) what a key, or a person's session, sends beyond its rate."""

    def __init__(self) -> None:
        """Nothing to wait for yet."""
        self._wait_s = 0.0

    def allow_request(self, request: Request, _view: APIView) -> bool:
        """Count the request; true where it may pass."""
        if settings.API_RATE_PER_S <= 0:
            return True
        who = f"key:{request.auth}" if request.auth else f"user:{request.user.pk}"
        self._wait_s = turns.take(who, per_s=settings.API_RATE_PER_S, burst=settings.API_RATE_BURST)
        return self._wait_s == 0

    def wait(self) -> float:
        """Answer the seconds until the next request passes, for Retry-After."""
        return math.ceil(self._wait_s)

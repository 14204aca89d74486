"""The bandwidth limit of a link, shared by all copy workers: after each fetch a worker gets the time to pause.

One key per link and limit holds the time (microseconds of Redis' clock) up to which the limit is used up. Each fetch moves it
forward by the cost of its bytes, and the worker pauses until then. Concurrent workers queue up behind each other, so their sum
keeps to the limit whatever their shares. After data loss the time starts from now. A new limit has a new key and also starts
from now; bytes fetched under the previous limit do not count.
"""

from __future__ import annotations

from typing import Any

from linkengine.coordination.client import client_for, redis_answers

LONGEST_S = 600  # longer debts are the effect of a clock that jumped

_SPEND = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
if used < now or used > now + tonumber(ARGV[2]) then used = now end
used = used + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.0f', used), 'PX', math.ceil((used - now) / 1000) + 1000)
return string.format('%.0f', used - now)
"""


class RedisAllowances:
    """The remaining bandwidth of links."""

    def __init__(self, url: str) -> None:
        """Prepare the connection; nothing is counted yet."""
        self._redis = client_for(url)

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count bytes and return the pause in seconds; raise CoordinationUnavailableError in an outage.

        The limit is above 0.
        """
        cost_us = size * 1_000_000 // bytes_per_s
        with redis_answers("count bandwidth"):
            reply: Any = self._redis.eval(_SPEND, 1, f"allowance:{link_id}:{bytes_per_s}", cost_us, LONGEST_S * 1_000_000)
        return int(reply) / 1e6

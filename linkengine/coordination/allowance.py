"""The bandwidth limit of a link, shared by all copy workers: whoever has fetched something is told how long to pause.

One key per link and limit holds the moment (microseconds of Redis' clock) up to which the limit is used up. Each spending moves
it on by what the bytes cost and answers how far ahead it lies. Workers that come together queue up behind each other, so the
link's sum keeps to the limit whatever their shares. Lost data only means that the pause begins from now; so does a new limit,
under which nobody pays what bytes cost before.
"""

from __future__ import annotations

from typing import Any

from linkengine.coordination.client import client_for, redis_answers

LONGEST_S = 600  # a debt beyond that is a clock that jumped

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
    """The budgets of links."""

    def __init__(self, url: str) -> None:
        """Spend nothing yet."""
        self._redis = client_for(url)

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count bytes and answer the pause in seconds; raise CoordinationUnavailableError in an outage.

        The limit is above 0.
        """
        cost_us = size * 1_000_000 // bytes_per_s
        with redis_answers("count bandwidth"):
            answer: Any = self._redis.eval(_SPEND, 1, f"allowance:{link_id}:{bytes_per_s}", cost_us, LONGEST_S * 1_000_000)
        return int(answer) / 1e6

"""Replies, heartbeats and rate limits in a real Redis."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from console.queue import dispatch
from console.redis import heartbeats as redis_health
from console.redis import rate_limit, redis_client


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/6"
    redis_client().flushdb()


def test_rate_limit_admits_a_burst_and_then_waits() -> None:
    assert [rate_limit.take_token("person", per_s=0.1, burst=2) for _ in range(2)] == [0, 0]
    assert 9 < rate_limit.take_token("person", per_s=0.1, burst=2) <= 10


def test_reply_reaches_the_waiting_caller() -> None:
    Thread(target=dispatch.send_reply, args=("reply", {"result": 1})).start()

    assert dispatch.wait_for_reply("reply", timeout_s=5) == {"result": 1}
    assert dispatch.wait_for_reply("reply", timeout_s=0.05) is None


def test_age_of_the_worker_heartbeat_is_measured() -> None:
    assert redis_health.heartbeat_age_ms() is None
    redis_health.note_worker()
    silence = redis_health.heartbeat_age_ms()
    assert silence is not None
    assert silence < 5000

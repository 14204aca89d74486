"""Locks and claims in a real Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from console.redis import locks, redis_client

DEADLINE_S = 60.0
CLOCK_S = 0.01  # Redis measures in whole milliseconds, by its own clock


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/6"
    redis_client().flushdb()


def test_lock_is_exclusive() -> None:
    with locks.lock("thing") as first, locks.lock("thing") as second, locks.lock("other") as other:
        assert (first, second, other) == (True, False, True)
    with locks.lock("thing") as again:
        assert again


def test_lock_is_renewed_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 60.0)
    monkeypatch.setattr(locks, "_RENEWALS", 600)
    with locks.lock("thing"):
        for _ in range(3):
            redis_client().pexpire("console:lock:thing", 30_000)
            until(lambda: redis_client().pttl("console:lock:thing") > 30_000)
        with locks.lock("thing") as acquired:
            assert not acquired
    assert not locks.is_locked("thing")


def test_lock_of_a_crashed_owner_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client().set("console:lock:thing", "dead", px=50)
    time.sleep(0.1)
    with locks.lock("thing") as acquired:
        assert acquired


def test_lock_of_another_owner_is_not_released() -> None:
    with locks.lock("thing"):
        redis_client().set("console:lock:thing", "taken over")
    assert redis_client().get("console:lock:thing") == "taken over"


def until(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lock_that_redis_has_lost_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 0.3)
    with locks.lock("thing"):
        redis_client().flushdb()
        until(lambda: locks.is_locked("thing"))
    assert not locks.is_locked("thing")


def test_lock_that_another_owner_has_taken_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 0.3)
    with locks.lock("thing"):
        redis_client().set("console:lock:thing", "theirs")
        time.sleep(0.4)
        assert redis_client().get("console:lock:thing") == "theirs"


def test_released_lock_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, real = Event(), locks._eval_quietly

    def slow(script: str, *values: Any) -> None:
        if script == locks._RENEW:
            under_way.set()
            time.sleep(0.2)
        real(script, *values)

    monkeypatch.setattr(locks, "LOCK_TTL_S", 0.3)
    monkeypatch.setattr(locks, "_eval_quietly", slow)
    with locks.lock("thing"):
        assert under_way.wait(DEADLINE_S)
    time.sleep(0.3)

    assert not locks.is_locked("thing")


def test_lock_is_not_abandoned_right_after_redis_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 1.5)  # the lock is renewed every half second
    with locks.lock("thing"):
        redis_client().flushdb()
        assert not locks.is_abandoned("thing")
        until(lambda: not locks.is_abandoned("thing") and locks.is_locked("thing"))
        assert not locks.is_abandoned("thing")
    released_at = time.monotonic()
    assert not locks.is_abandoned("thing")
    until(lambda: locks.is_abandoned("thing"))
    assert time.monotonic() - released_at >= locks.LOCK_TTL_S - CLOCK_S


def test_claim_succeeds_once_per_ttl() -> None:
    assert locks.claim("chore", ttl_ms=3_600_000)
    assert not locks.claim("chore", ttl_ms=3_600_000)
    redis_client().pexpire("console:claim:chore", 1)
    until(lambda: locks.claim("chore", ttl_ms=80))
    until(lambda: locks.claim("chore", ttl_ms=80))


def test_request_for_another_check_is_read_once() -> None:
    assert not locks.pop_recheck("link")
    locks.request_recheck("link")
    assert locks.pop_recheck("link")
    assert not locks.pop_recheck("link")

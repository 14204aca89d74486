"""Locks, claims, rate limits and replies in a real Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, cast

import pytest

from console.redis import store


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/6"
    store.client().flushdb()


def test_lock_is_exclusive() -> None:
    with store.hold("thing") as first, store.hold("thing") as second, store.hold("other") as other:
        assert (first, second, other) == (True, False, True)
    with store.hold("thing") as again:
        assert again


def test_lock_is_renewed_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.3)
    with store.hold("thing"):
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            with store.hold("thing") as acquired:
                assert not acquired
            time.sleep(0.05)


def test_lock_of_a_crashed_owner_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    store.client().set("console:hold:thing", "dead", px=50)
    time.sleep(0.1)
    with store.hold("thing") as acquired:
        assert acquired


def test_lock_of_another_owner_is_not_released() -> None:
    with store.hold("thing"):
        store.client().set("console:hold:thing", "taken over")
    assert store.client().get("console:hold:thing") == "taken over"


def until(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 5
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lock_that_redis_has_lost_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.3)
    with store.hold("thing"):
        store.client().flushdb()
        until(lambda: store.is_held("thing"))
    assert not store.is_held("thing")


def test_lock_that_another_owner_has_taken_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.3)
    with store.hold("thing"):
        store.client().set("console:hold:thing", "theirs")
        time.sleep(0.4)
        assert store.client().get("console:hold:thing") == "theirs"


def test_released_lock_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, real = Event(), store._eval_quietly

    def slow(script: str, *values: Any) -> None:
        if script == store._RENEW:
            under_way.set()
            time.sleep(0.2)
        real(script, *values)

    monkeypatch.setattr(store, "HOLD_S", 0.3)
    monkeypatch.setattr(store, "_eval_quietly", slow)
    with store.hold("thing"):
        assert under_way.wait(5)
    time.sleep(0.3)

    assert not store.is_held("thing")


def test_lock_is_not_abandoned_right_after_redis_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.3)
    with store.hold("thing"):
        store.client().flushdb()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            assert not store.is_abandoned("thing")
            time.sleep(0.02)
    until(lambda: store.is_abandoned("thing"))


def test_lock_is_not_abandoned_at_once_after_a_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.2)
    store.client().set("console:unheld:thing", int(time.time() * 1000) + HOUR_MS)

    assert not store.is_abandoned("thing")
    until(lambda: store.is_abandoned("thing"))


def test_claim_succeeds_once_per_ttl() -> None:
    assert store.claim("chore", ttl_ms=80)
    assert not store.claim("chore", ttl_ms=80)
    time.sleep(0.12)
    assert store.claim("chore", ttl_ms=80)


HOUR_MS = 3_600_000  # a time to live after a clock was set back by that much


def test_claim_lasts_no_longer_after_a_clock_was_set_back() -> None:
    store.client().set("console:claim:chore", "1", px=HOUR_MS)

    assert not store.claim("chore", ttl_ms=80)
    time.sleep(0.12)
    assert store.claim("chore", ttl_ms=80)


@pytest.mark.parametrize("asking", [True, False])
def test_lock_of_a_crashed_owner_lasts_no_longer_after_a_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch, asking: bool
) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.08)
    store.client().set("console:hold:thing", "dead", px=HOUR_MS)

    if asking:
        assert store.is_held("thing")
    else:
        with store.hold("thing") as acquired:
            assert not acquired
    time.sleep(0.12)
    assert not store.is_held("thing")
    with store.hold("thing") as acquired:
        assert acquired


def test_rate_limit_waits_no_longer_after_a_clock_was_set_back() -> None:
    seconds, micros = cast("tuple[int, int]", store.client().time())
    store.client().set("console:turn:person", str((seconds * 1000 + HOUR_MS) * 1000 + micros), px=HOUR_MS)

    assert [store.take_turn("person", per_s=0.1, burst=2) for _ in range(2)] == [0, 0]
    assert 9 < store.take_turn("person", per_s=0.1, burst=2) <= 10


def test_request_for_another_check_is_read_once() -> None:
    assert not store.was_asked_again("link")
    store.ask_again("link")
    assert store.was_asked_again("link")
    assert not store.was_asked_again("link")


def test_reply_reaches_the_waiting_caller() -> None:
    Thread(target=store.give_answer, args=("reply", {"result": 1})).start()

    assert store.wait_for_answer("reply", timeout_s=5) == {"result": 1}
    assert store.wait_for_answer("reply", timeout_s=0.05) is None


def test_age_of_the_worker_heartbeat_is_measured() -> None:
    assert store.worker_silence_ms() is None
    store.note_worker()
    silence = store.worker_silence_ms()
    assert silence is not None
    assert silence < 5000

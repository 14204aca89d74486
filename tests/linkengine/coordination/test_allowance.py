"""The bandwidth limit of a link, with a real Redis: all workers together keep to it."""

from __future__ import annotations

import secrets

import pytest

from linkengine.coordination.client import RedisAllowances, client_for
from linkengine.domain.workers import CoordinationUnavailableError


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_workers_of_a_link_share_its_limit(redis_url: str, link_id: str) -> None:
    first, second = RedisAllowances(redis_url), RedisAllowances(redis_url)

    pauses = [
        worker.spend(link_id, size, bytes_per_s=1_000)
        for worker, size in ((first, 100_000), (second, 100_000), (first, 50_000))
    ]

    assert [round(pause, -1) for pause in pauses] == [100, 200, 250]


def test_links_have_separate_limits(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 500, bytes_per_s=1)

    assert RedisAllowances(redis_url).spend(f"{link_id}-other", 10_000, bytes_per_s=1_000) == pytest.approx(10, abs=0.1)


def test_a_new_limit_applies_to_the_next_bytes(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 1, bytes_per_s=1_000_000)

    assert RedisAllowances(redis_url).spend(link_id, 60_000, bytes_per_s=1_000) == pytest.approx(60, abs=1)


def test_bytes_counted_under_a_lower_limit_do_not_delay_a_higher_one(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 500_000, bytes_per_s=1_000)

    assert RedisAllowances(redis_url).spend(link_id, 1_000, bytes_per_s=100_000_000) < 1


def test_a_clock_that_jumped_back_does_not_stop_the_link(redis_url: str, link_id: str) -> None:
    client_for(redis_url).set(f"allowance:{link_id}:1000", str(10**18))

    assert RedisAllowances(redis_url).spend(link_id, 1_000, bytes_per_s=1_000) == pytest.approx(1.0, abs=0.1)


@pytest.mark.network
def test_an_outage_raises_coordination_unavailable() -> None:
    with pytest.raises(CoordinationUnavailableError):
        RedisAllowances("redis://127.0.0.1:1/0").spend("link", 1, bytes_per_s=1)

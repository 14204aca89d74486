"""The bandwidth limit of a link through a real Redis: all workers together keep to it."""

from __future__ import annotations

import secrets

import pytest

from linkengine.coordination.allowance import RedisAllowances
from linkengine.coordination.client import client_for
from linkengine.domain.leases import CoordinationUnavailableError


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_workers_of_one_link_queue_up_behind_each_other(redis_url: str, link_id: str) -> None:
    first, second = RedisAllowances(redis_url), RedisAllowances(redis_url)

    pauses = [
        one.spend(link_id, size, bytes_per_s=1_000) for one, size in ((first, 100_000), (second, 100_000), (first, 50_000))
    ]

    assert [round(one, -1) for one in pauses] == [100, 200, 250]


def test_links_do_not_pay_for_each_other(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 500, bytes_per_s=1)

    assert RedisAllowances(redis_url).spend(f"{link_id}-other", 10_000, bytes_per_s=1_000) == pytest.approx(10, abs=0.1)


def test_a_new_limit_counts_from_the_next_bytes_on(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 1, bytes_per_s=1_000_000)

    assert RedisAllowances(redis_url).spend(link_id, 60_000, bytes_per_s=1_000) == pytest.approx(60, abs=1)


def test_what_was_spent_under_a_lower_limit_does_not_hold_up_a_higher_one(redis_url: str, link_id: str) -> None:
    RedisAllowances(redis_url).spend(link_id, 500_000, bytes_per_s=1_000)

    assert RedisAllowances(redis_url).spend(link_id, 1_000, bytes_per_s=100_000_000) < 1


def test_a_clock_that_jumped_back_does_not_stop_the_link(redis_url: str, link_id: str) -> None:
    client_for(redis_url).set(f"allowance:{link_id}:1000", str(10**18))

    assert RedisAllowances(redis_url).spend(link_id, 1_000, bytes_per_s=1_000) == pytest.approx(1.0, abs=0.1)


def test_an_outage_is_said() -> None:
    with pytest.raises(CoordinationUnavailableError):
        RedisAllowances("redis://127.0.0.1:1/0").spend("link", 1, bytes_per_s=1)

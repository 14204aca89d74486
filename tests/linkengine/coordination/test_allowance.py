"""The bandwidth limit of a link through a real Redis: all tasks together keep to it."""

from __future__ import annotations

import secrets

import pytest

from linkengine.coordination.allowance import RedisAllowance
from linkengine.coordination.client import client_for
from linkengine.domain.leases import CoordinationUnavailableError


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def test_tasks_of_one_link_queue_up_behind_each_other(redis_url: str, link_id: str) -> None:
    first, second = (RedisAllowance(redis_url, link_id, bytes_per_s=1_000) for _ in range(2))

    pauses = [first.spend(100_000), second.spend(100_000), first.spend(50_000)]

    assert [round(one, -1) for one in pauses] == [100, 200, 250]


def test_links_do_not_pay_for_each_other(redis_url: str, link_id: str) -> None:
    RedisAllowance(redis_url, link_id, bytes_per_s=1).spend(500)

    assert RedisAllowance(redis_url, f"{link_id}-other", bytes_per_s=1_000).spend(10_000) == pytest.approx(10, abs=0.1)


def test_a_new_limit_counts_from_the_next_bytes_on(redis_url: str, link_id: str) -> None:
    RedisAllowance(redis_url, link_id, bytes_per_s=1_000_000).spend(1)

    assert RedisAllowance(redis_url, link_id, bytes_per_s=1_000).spend(60_000) == pytest.approx(60, abs=1)


def test_what_was_spent_under_a_lower_limit_does_not_hold_up_a_higher_one(redis_url: str, link_id: str) -> None:
    RedisAllowance(redis_url, link_id, bytes_per_s=1_000).spend(500_000)

    assert RedisAllowance(redis_url, link_id, bytes_per_s=100_000_000).spend(1_000) < 1


def test_a_clock_that_jumped_back_does_not_stop_the_link(redis_url: str, link_id: str) -> None:
    client_for(redis_url).set(f"allowance:{link_id}:1000", str(10**18))

    assert RedisAllowance(redis_url, link_id, bytes_per_s=1_000).spend(1_000) == pytest.approx(1.0, abs=0.1)


def test_an_outage_is_said() -> None:
    with pytest.raises(CoordinationUnavailableError):
        RedisAllowance("redis://127.0.0.1:1/0", "link", bytes_per_s=1).spend(1)

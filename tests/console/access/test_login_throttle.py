"""Throttling: which attempts are counted together, and the absence of a limit."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory

from console.access import credentials
from console.redis import rate_limit


def attempts(address: str, name: str = "amelia") -> str:
    return credentials.attempts_at("sign-in", name, RequestFactory(REMOTE_ADDR=address).get("/"))


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "", True),
        ("a socket", "another socket", False),
    ],
)
def test_ipv6_addresses_of_the_same_network_count_together(first: str, other: str, *, same: bool) -> None:
    assert (attempts(first) == attempts(other)) is same


def test_attempts_are_not_throttled_without_a_limit(redis_url: str, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE = 0

    assert {credentials.count_attempt("unlimited") for _ in range(30)} == {0}


def test_redis_is_not_tried_again_at_once_after_an_error(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert credentials.count_attempt("during-an-outage") == 0
    assert rate_limit.RedisOutage.until_s > 0

    settings.REDIS_URL, settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = redis_url, 1, 1_000

    assert {credentials.count_attempt("during-an-outage") for _ in range(3)} == {0}
    rate_limit.RedisOutage.until_s = 0.0
    assert [credentials.count_attempt("during-an-outage") > 0 for _ in range(3)] == [False, True, True]

"""The rate limit of an API key: a burst, then a steady rate, counted in Redis; no limit while Redis is unavailable."""

from typing import Any

import pytest

from tests.console.api.actors import Rest, make_client

pytestmark = pytest.mark.django_db
CLUSTERS = "/kafka/v3/clusters"


@pytest.fixture(autouse=True)
def rate(no_rate: None, settings: Any) -> None:
    """A burst of three requests, then a request every ten seconds."""
    settings.API_RATE_PER_S, settings.API_RATE_BURST = 0.1, 3


def test_requests_above_the_rate_get_429_with_retry_after(owner: Rest, redis_url: str) -> None:
    assert [owner.get(CLUSTERS).status_code for _ in range(3)] == [200] * 3

    response = owner.get(CLUSTERS)

    assert response.status_code == 429
    assert response["Content-Type"] == "application/json"
    assert response.json()["error_code"] == 42901
    assert 1 <= int(response["Retry-After"]) <= 10


def test_keys_are_counted_separately(owner: Rest, redis_url: str) -> None:
    other = make_client(None, name="other", role="")

    for _ in range(4):
        owner.get(CLUSTERS)

    assert other.get(CLUSTERS).status_code == 200


def test_refused_requests_do_not_lengthen_the_wait(owner: Rest, redis_url: str) -> None:
    waits = [int(owner.get(CLUSTERS).headers.get("Retry-After", 0)) for _ in range(10)]

    assert max(waits) <= 10


def test_unauthenticated_requests_are_not_counted(redis_url: str) -> None:
    stranger = Rest("nobody", "nothing")

    assert {stranger.get(CLUSTERS).status_code for _ in range(5)} == {401}


def test_requests_of_unknown_endpoints_are_counted(owner: Rest, redis_url: str) -> None:
    assert [owner.get("/v3/nothing").status_code for _ in range(4)] == [404, 404, 404, 429]


def test_requests_are_not_limited_while_redis_is_unavailable(owner: Rest, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert {owner.get(CLUSTERS).status_code for _ in range(6)} == {200}


def test_a_rate_of_0_disables_the_limit(owner: Rest, settings: Any, redis_url: str) -> None:
    settings.API_RATE_PER_S = 0

    assert {owner.get(CLUSTERS).status_code for _ in range(6)} == {200}

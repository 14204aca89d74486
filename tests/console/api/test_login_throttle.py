"""Failed API key attempts are throttled per key and address; correct secrets are always accepted."""

from typing import Any

import pytest
from django.test import Client

from console.access.credentials import NOT_SIGNED_IN
from console.models import AuditEvent
from tests.console.api.actors import DESTINATION, Rest, make_client

pytestmark = pytest.mark.django_db
SURFACES = ["/kafka/v3/clusters", "/v3/clusters", f"/api/v1/clusters/{DESTINATION}/links/from-source/tasks"]
AT_ONCE = 3


@pytest.fixture(autouse=True)
def limit(no_rate: None, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = AT_ONCE, 1_000


def statuses(key: str, secret: str, address: str, *, times: int = 1, path: str = SURFACES[0]) -> list[int]:
    client = client_at(key, secret, address)
    return [client.get(path).status_code for _ in range(times)]


def client_at(key: str, secret: str, address: str) -> Client:
    return Client(headers={"authorization": Rest(key, secret).authorization}, REMOTE_ADDR=address)


@pytest.mark.parametrize("number", range(len(SURFACES)))
def test_failed_attempts_are_throttled_with_retry_after(owner: Rest, redis_url: str, number: int) -> None:
    path, address = SURFACES[number], f"192.0.2.3{number}"
    assert statuses(owner.key, "guess", address, times=AT_ONCE, path=path) == [401] * AT_ONCE

    response = client_at(owner.key, "guess", address).get(path)

    assert (response.status_code, response["Content-Type"]) == (429, "application/json")
    assert response.json()["error_code"] == 42901
    assert "too many attempts with API keys failed" in response.json()["message"]
    assert set(response.json()) == {"error_code", "message"}
    assert 900 < int(response["Retry-After"]) <= 1_000
    assert "WWW-Authenticate" not in response


def test_a_correct_secret_is_accepted_after_many_failed_attempts(owner: Rest, redis_url: str) -> None:
    statuses(owner.key, "guess", "192.0.2.40", times=AT_ONCE + 2)

    assert statuses(owner.key, owner.secret, "192.0.2.40") == [200]
    assert statuses(owner.key, "guess", "192.0.2.40") == [429]


def test_other_addresses_and_other_keys_are_not_throttled(owner: Rest, redis_url: str) -> None:
    other = make_client(None, name="other", role="")
    statuses(owner.key, "guess", "192.0.2.41", times=AT_ONCE + 2)

    assert statuses(owner.key, owner.secret, "192.0.2.42") == [200]
    assert statuses(other.key, other.secret, "192.0.2.41") == [200]


def test_failed_attempts_with_many_keys_of_an_address_are_throttled(owner: Rest, redis_url: str) -> None:
    tried = [statuses(f"KEY{number}", "guess", "192.0.2.43")[0] for number in range(10 * AT_ONCE + 4)]

    assert tried == [401] * 10 * AT_ONCE + [429] * 4
    assert statuses(owner.key, owner.secret, "192.0.2.43") == [200]


def test_correct_secrets_are_not_counted(owner: Rest, redis_url: str) -> None:
    assert statuses(owner.key, owner.secret, "192.0.2.44", times=4 * AT_ONCE) == [200] * 4 * AT_ONCE


def test_throttling_of_an_address_is_audited_once(owner: Rest, redis_url: str) -> None:
    statuses(owner.key, "guess", "192.0.2.45", times=AT_ONCE)
    assert not AuditEvent.objects.filter(action="ThrottleApiKey").exists()

    statuses(owner.key, "guess", "192.0.2.45", times=5)
    statuses("ANOTHER", "guess", "192.0.2.45", times=AT_ONCE + 5)

    (event,) = AuditEvent.objects.filter(action="ThrottleApiKey")
    values = (event.actor, event.resource, event.result, event.client_address, len(event.request_id))
    assert values == (NOT_SIGNED_IN, f"api-key/{owner.key}", "DENIED", "192.0.2.45", 32)


def test_nothing_is_throttled_while_redis_is_unavailable(owner: Rest, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert statuses(owner.key, "guess", "192.0.2.46", times=AT_ONCE + 2) == [401] * (AT_ONCE + 2)
    assert statuses(owner.key, owner.secret, "192.0.2.46") == [200]
    assert not AuditEvent.objects.filter(action="ThrottleApiKey").exists()


def test_tokens_are_not_throttled_by_failed_api_key_attempts(owner: Rest, redis_url: str) -> None:
    token = owner.post("/api/v1/tokens", {}).json()["access_token"]
    statuses(owner.key, "guess", "192.0.2.47", times=AT_ONCE + 2)

    bearer = Client(headers={"authorization": f"Bearer {token}"}, REMOTE_ADDR="192.0.2.47")

    assert bearer.get(SURFACES[0]).status_code == 200

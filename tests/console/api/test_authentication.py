"""Authentication with an API key (HTTP Basic), a bearer token, and the console's session."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.access.queries import valid_key
from console.models import ApiKey, AuditEvent
from tests.console.api.actors import NOW, Rest, make_key

pytestmark = pytest.mark.django_db
CLUSTERS = "/kafka/v3/clusters"
TOKENS = "/api/v1/tokens"
REFUSED = {"error_code": 40101, "message": "Authentication failed"}


def refused_with(authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}

    response = Client(headers=headers).get(CLUSTERS)

    assert response.status_code == 401
    assert response.json() == REFUSED
    assert response["WWW-Authenticate"] == 'Basic realm="Clusterlink", charset="UTF-8", Bearer realm="Clusterlink"'
    assert response["Content-Type"] == "application/json"


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_an_api_key_with_its_secret_is_accepted(owner: Rest) -> None:
    assert owner.get(CLUSTERS).status_code == 200


def test_a_request_without_credentials_is_refused() -> None:
    refused_with(None)


@pytest.mark.parametrize(
    "authorization",
    [
        basic("nobody:secret"),
        basic("nobody"),
        basic(""),
        basic("no\0body:secret"),
        "Basic",
        "Basic ***",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Bearer",
        "Bearer abc",
        "Bearer eyJrZXkiOiJBIn0.c2lnbmF0dXJl",
        "Digest abc",
    ],
)
def test_malformed_credentials_are_refused(authorization: str) -> None:
    refused_with(authorization)


def test_a_wrong_secret_is_refused(owner: Rest) -> None:
    refused_with(basic(f"{owner.key}:wrong"))


def test_an_expired_key_is_refused() -> None:
    api_key, secret = make_key(User.objects.create_user("late"), expires_at=timezone.now() - timedelta(seconds=1))

    refused_with(basic(f"{api_key.key}:{secret}"))


def test_a_key_that_has_not_expired_is_accepted() -> None:
    api_key, secret = make_key(User.objects.create_user("early"), expires_at=timezone.now() + timedelta(hours=1))

    assert Rest(api_key.key, secret).get(CLUSTERS).status_code == 200


def test_the_key_of_a_deactivated_user_is_refused(owner: Rest) -> None:
    User.objects.filter(username="owner").update(is_active=False)

    assert owner.get(CLUSTERS).json() == REFUSED


def test_the_last_use_of_a_key_is_stored_at_most_once_a_minute() -> None:
    api_key, secret = make_key(User.objects.create_user("busy"))

    for seconds in (0, 30, 59, 61):
        valid_key(key=api_key.key, secret=secret, now=NOW + timedelta(seconds=seconds))
        api_key.refresh_from_db()
        assert api_key.last_used_at == NOW + timedelta(seconds=61 if seconds == 61 else 0)


def test_a_refused_use_of_a_key_is_not_stored(owner: Rest) -> None:
    valid_key(key=owner.key, secret="wrong", now=NOW)

    assert ApiKey.objects.get(key=owner.key).last_used_at is None


def test_a_session_of_the_console_may_read(owner: Rest) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="owner"))

    assert browser.get(CLUSTERS).status_code == 200


def test_changes_with_a_session_need_the_csrf_token(owner: Rest, base: str) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(username="owner"))

    response = browser.post(f"{base}/links?link_name=a", data={}, content_type="application/json")

    assert response.status_code == 403
    assert response.json()["error_code"] == 40301
    assert "CSRF" in response.json()["message"]


def test_every_response_has_a_request_id(owner: Rest) -> None:
    assert owner.get(CLUSTERS)["X-Request-ID"]
    assert owner.client.get(CLUSTERS, headers={"x-request-id": "abc-12345678"})["X-Request-ID"] == "abc-12345678"


class TestBearerTokens:
    """Bearer tokens of an API key."""

    def test_a_token_acts_as_its_api_key(self, owner: Rest, base: str) -> None:
        made = owner.post(TOKENS, {})
        assert made.status_code == 201
        assert made["Cache-Control"] == "no-store"
        response = bearer(made.json()["access_token"]).post(f"{base}/links?link_name=new&validate_link=false", {"configs": []})
        assert response.status_code == 400  # authenticated; the body is refused
        assert made.json() == {"access_token": made.json()["access_token"], "token_type": "Bearer", "expires_in": 3600}
        event = AuditEvent.objects.get(action="CreateAccessToken")
        assert (event.actor, event.detail) == (f"owner (API key {owner.key})", {"life_s": 3600})
        assert made.json()["access_token"] not in str(event.__dict__)

    def test_a_token_expires(self, owner: Rest, time_machine: Any) -> None:
        token = owner.post(TOKENS, {"expires_in_s": 60}).json()["access_token"]
        assert bearer(token).get(CLUSTERS).status_code == 200

        time_machine.move_to(timezone.now() + timedelta(seconds=61))

        assert bearer(token).get(CLUSTERS).json() == REFUSED

    def test_a_token_is_refused_after_its_key_is_deleted(self, owner: Rest) -> None:
        token = owner.post(TOKENS, {}).json()["access_token"]

        ApiKey.objects.filter(key=owner.key).delete()

        assert bearer(token).get(CLUSTERS).json() == REFUSED

    def test_a_token_is_refused_after_its_key_has_expired(self, owner: Rest) -> None:
        token = owner.post(TOKENS, {}).json()["access_token"]

        ApiKey.objects.filter(key=owner.key).update(expires_at=timezone.now())

        assert bearer(token).get(CLUSTERS).json() == REFUSED

    def test_a_token_of_a_deactivated_user_is_refused(self, owner: Rest) -> None:
        token = owner.post(TOKENS, {}).json()["access_token"]

        User.objects.filter(username="owner").update(is_active=False)

        assert bearer(token).get(CLUSTERS).json() == REFUSED

    def test_a_manipulated_token_is_refused(self, owner: Rest) -> None:
        content, _, signature = owner.post(TOKENS, {}).json()["access_token"].partition(".")

        assert bearer(f"{content[:-2]}AA.{signature}").get(CLUSTERS).json() == REFUSED

    def test_a_token_cannot_create_tokens(self, owner: Rest) -> None:
        token = owner.post(TOKENS, {}).json()["access_token"]

        assert bearer(token).post(TOKENS, {}).json() == REFUSED

    @pytest.mark.parametrize("seconds", [0, -1, 3601, 10**12])
    def test_a_validity_out_of_range_is_refused(self, owner: Rest, seconds: int) -> None:
        assert owner.post(TOKENS, {"expires_in_s": seconds}).status_code == 400


def bearer(token: str) -> Rest:
    client = Rest("", "")
    client.client = Client(headers={"authorization": f"Bearer {token}"})
    return client

"""HTTP Basic with an API key, and the console's session."""

import base64
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.models import ApiKey
from console.queries.access import user_of_key
from tests.console.api.cast import NOW, Rest, make_key

pytestmark = pytest.mark.django_db
CLUSTERS = "/kafka/v3/clusters"
REFUSED = {"error_code": 40101, "message": "Authentication failed"}


def refused_with(authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}

    answer = Client(headers=headers).get(CLUSTERS)

    assert answer.status_code == 401
    assert answer.json() == REFUSED
    assert answer["WWW-Authenticate"].startswith("Basic realm=")
    assert answer["Content-Type"] == "application/json"


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_key_with_its_secret_is_let_in(owner: Rest) -> None:
    assert owner.get(CLUSTERS).status_code == 200


def test_nobody_is_refused() -> None:
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
        "Bearer abc",
    ],
)
def test_what_is_no_key_and_secret_is_refused(authorization: str) -> None:
    refused_with(authorization)


def test_a_wrong_secret_is_refused(owner: Rest) -> None:
    refused_with(basic(f"{owner.key}:wrong"))


def test_an_expired_key_is_refused() -> None:
    api_key, secret = make_key(User.objects.create_user("late"), expires_at=timezone.now() - timedelta(seconds=1))

    refused_with(basic(f"{api_key.key}:{secret}"))


def test_a_key_that_expires_later_is_let_in() -> None:
    api_key, secret = make_key(User.objects.create_user("early"), expires_at=timezone.now() + timedelta(hours=1))

    assert Rest(api_key.key, secret).get(CLUSTERS).status_code == 200


def test_the_key_of_a_locked_person_is_refused(owner: Rest) -> None:
    User.objects.filter(username="owner").update(is_active=False)

    assert owner.get(CLUSTERS).json() == REFUSED


def test_use_is_noted_at_most_once_a_minute() -> None:
    api_key, secret = make_key(User.objects.create_user("busy"))

    for seconds in (0, 30, 59, 61):
        user_of_key(key=api_key.key, secret=secret, now=NOW + timedelta(seconds=seconds))
        api_key.refresh_from_db()
        assert api_key.last_used_at == NOW + timedelta(seconds=61 if seconds == 61 else 0)


def test_a_refused_use_is_not_noted(owner: Rest) -> None:
    user_of_key(key=owner.key, secret="wrong", now=NOW)

    assert ApiKey.objects.get(key=owner.key).last_used_at is None


def test_a_session_of_the_console_may_read(owner: Rest) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="owner"))

    assert browser.get(CLUSTERS).status_code == 200


def test_a_session_may_change_nothing_without_the_csrf_token(owner: Rest, base: str) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.get(username="owner"))

    answer = browser.post(f"{base}/links?link_name=a", data={}, content_type="application/json")

    assert answer.status_code == 403
    assert answer.json()["error_code"] == 40301
    assert "CSRF" in answer.json()["message"]


def test_every_answer_carries_a_request_id(owner: Rest) -> None:
    assert owner.get(CLUSTERS)["X-Request-ID"]
    assert owner.client.get(CLUSTERS, headers={"x-request-id": "abc-12345678"})["X-Request-ID"] == "abc-12345678"

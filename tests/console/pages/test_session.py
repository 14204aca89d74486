from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console.access.credentials import NOT_SIGNED_IN
from console.models import AuditEvent
from tests.browser.page_data import PASSWORD, PageData


def test_sign_in_redirects_to_the_requested_page(page_data: PageData) -> None:
    client = Client()

    response = client.post("/sign-in/", {"username": "amelia", "password": PASSWORD, "next": page_data.link_url})

    assert response["Location"] == page_data.link_url
    assert client.get(page_data.link_url).status_code == 200


def test_wrong_password_keeps_the_user_name_in_the_form(page_data: PageData) -> None:
    response = Client().post("/sign-in/", {"username": "amelia", "password": "guess"})

    assert response.status_code == 422
    text = response.content.decode()
    assert "The user name or password is incorrect." in text
    assert 'value="amelia"' in text
    assert "guess" not in text


@pytest.mark.parametrize(
    ("sent_from", "back"),
    [("http://testserver{page}?q=1", "{page}%3Fq%3D1"), ("http://elsewhere.example/x", "/"), ("", "/")],
)
def test_post_without_a_session_redirects_to_sign_in_and_back(page_data: PageData, sent_from: str, back: str) -> None:
    client, page = Client(), page_data.mirror_url("flights")

    response = client.post(f"{page}verify/", headers={"Referer": sent_from.format(page=page)} if sent_from else {})

    assert response["Location"] == f"/sign-in/?next={back.format(page=page)}"
    assert "Your session has ended. Nothing was changed." in client.get(response["Location"]).content.decode()


AT_ONCE = 10  # as in .env.example


def attempts(client: Client, *passwords: str, name: str = "amelia") -> list[int]:
    return [client.post("/sign-in/", {"username": name, "password": password}).status_code for password in passwords]


def test_failed_sign_ins_are_throttled(page_data: PageData, redis_url: str, settings: Any) -> None:
    settings.ATTEMPT_EVERY_S = 1_000  # hashing is slow on a loaded machine
    stranger = Client(REMOTE_ADDR="192.0.2.1")
    assert attempts(stranger, *["guess"] * AT_ONCE) == [422] * AT_ONCE

    response = stranger.post("/sign-in/", {"username": "amelia", "password": PASSWORD})

    assert response.status_code == 429
    assert 1 <= int(response["Retry-After"]) <= settings.ATTEMPT_EVERY_S
    assert "Too many failed sign-ins with this user name." in response.content.decode()
    assert "_auth_user_id" not in stranger.session
    assert attempts(stranger, "guess", name="bessie") == [422]  # other names, and other addresses, are not throttled
    assert attempts(Client(REMOTE_ADDR="192.0.2.2"), PASSWORD) == [302]


def test_throttled_address_is_audited_once(page_data: PageData, redis_url: str, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = 2, 1_000
    first, second = Client(REMOTE_ADDR="192.0.2.21"), Client(REMOTE_ADDR="192.0.2.22")
    assert attempts(first, *["guess"] * 2) == [422, 422]
    assert not AuditEvent.objects.filter(action="ThrottleSignIn").exists()

    assert attempts(first, *["guess"] * 5) == [429] * 5
    assert attempts(first, *["guess"] * 4, name="bessie") == [422, 422, 429, 429]
    (event,) = AuditEvent.objects.filter(action="ThrottleSignIn")
    assert attempts(second, *["guess"] * 4) == [422, 422, 429, 429]

    fields = (event.actor, event.resource, event.result, event.client_address, len(event.request_id))
    assert fields == (NOT_SIGNED_IN, "user/amelia", "DENIED", "192.0.2.21", 32)
    assert AuditEvent.objects.filter(action="ThrottleSignIn").count() == 2


def test_successful_sign_in_resets_the_throttle(page_data: PageData, redis_url: str) -> None:
    client, wrong = Client(REMOTE_ADDR="192.0.2.3"), ["gues"] * (AT_ONCE - 1)

    assert attempts(client, *wrong, PASSWORD, *wrong) == [*[422] * len(wrong), 302, *[422] * len(wrong)]


def test_sign_in_is_not_throttled_without_redis(page_data: PageData, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert attempts(Client(), *["guess"] * (AT_ONCE + 2), PASSWORD) == [*[422] * (AT_ONCE + 2), 302]


@pytest.mark.parametrize("wanted", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)", ""])
def test_sign_in_does_not_redirect_to_other_hosts(page_data: PageData, wanted: str) -> None:
    response = Client().post("/sign-in/", {"username": "amelia", "password": PASSWORD, "next": wanted})

    assert response["Location"] == "/"


def test_sign_out_ends_the_session(admin: Client) -> None:
    admin.post("/sign-out/")

    assert admin.get("/links/")["Location"].startswith("/sign-in/")


def test_sign_out_requires_post(admin: Client) -> None:
    assert admin.get("/sign-out/").status_code == 405


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_is_stored(admin: Client, theme: str) -> None:
    response = admin.post("/settings/theme/", {"theme": theme, "next": "/links/?q=x"})

    assert response["Location"] == "/links/?q=x"
    assert f'data-bs-theme="{theme}"' in admin.get("/links/").content.decode()


def test_theme_is_reset_to_the_system(admin: Client) -> None:
    admin.post("/settings/theme/", {"theme": "dark"})

    admin.post("/settings/theme/", {"theme": ""})

    assert "data-bs-theme=" not in admin.get("/links/").content.decode().split(">", 2)[1]


def test_content_security_policy_has_no_unsafe_sources(admin: Client) -> None:
    policy = admin.get("/links/")["Content-Security-Policy"]

    assert "unsafe" not in policy
    assert "http" not in policy


NEW = "a new passphrase 4711"


def change(client: Client, **values: str) -> Any:
    return client.post("/access/password/", {"password": PASSWORD, "new_password": NEW, "repeated": NEW} | values)


def signed_in(name: str) -> Client:
    client = Client()
    assert client.post("/sign-in/", {"username": name, "password": PASSWORD}).status_code == 302
    return client


def test_password_change_ends_the_other_sessions(page_data: PageData) -> None:
    here, elsewhere = signed_in("bessie"), signed_in("bessie")
    assert "/access/password/" in here.get("/environments/").content.decode()
    assert here.get("/access/password/").status_code == 200

    response = change(here)

    assert (response.status_code, response["Location"]) == (302, "/access/me/")
    assert here.get("/environments/").status_code == 200
    assert elsewhere.get("/environments/")["Location"].startswith("/sign-in/")
    assert attempts(Client(), PASSWORD, NEW, name="bessie") == [422, 302]
    event = AuditEvent.objects.get(action="ChangePassword")
    assert (event.actor, event.resource, event.result) == ("bessie", "user/bessie", "SUCCESS")
    assert NEW not in str(event.detail)


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"password": "guess"}, "password", "current password is incorrect"),
        ({"password": ""}, "password", "required"),
        ({"repeated": "another"}, "repeated", "Enter the same new password"),
        ({"new_password": "short", "repeated": "short"}, "new_password", "too short"),
        ({"new_password": "bessiebess", "repeated": "bessiebess"}, "new_password", "too similar"),
        ({"new_password": "password123", "repeated": "password123"}, "new_password", "too common"),
    ],
)
def test_invalid_password_change_is_reported_at_the_field(
    page_data: PageData, values: dict[str, str], field: str, words: str
) -> None:
    User.objects.filter(username="bessie").update(email="x@example.test")
    here, elsewhere = signed_in("bessie"), signed_in("bessie")

    response = change(here, **values)

    text = response.content.decode()
    assert (response.status_code, words in text.split(f'id="{field}_error"')[1].split("</div>")[0]) == (422, True)
    assert not any(value and f'value="{value}"' in text for value in values.values())
    assert elsewhere.get("/environments/").status_code == 200
    assert User.objects.get(username="bessie").check_password(PASSWORD)


def test_password_change_is_throttled_like_a_sign_in(page_data: PageData, redis_url: str, settings: Any) -> None:
    settings.ATTEMPT_EVERY_S = 1_000
    client = Client(REMOTE_ADDR="192.0.2.77")
    client.force_login(page_data.reader)
    tried = [change(client, password="guess").status_code for _ in range(AT_ONCE)]

    response = change(client)

    assert (tried, response.status_code) == ([422] * AT_ONCE, 429)
    assert int(response["Retry-After"]) >= 1
    assert User.objects.get(username="bessie").check_password(PASSWORD)
    assert AuditEvent.objects.filter(action="ThrottlePasswordChange", result="DENIED").count() == 1


def test_password_page_requires_a_session(page_data: PageData) -> None:
    assert Client().get("/access/password/")["Location"].startswith("/sign-in/")
    assert change(Client()).status_code == 302
    assert User.objects.get(username="bessie").check_password(PASSWORD)

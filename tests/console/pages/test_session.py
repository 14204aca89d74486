from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console.guessing import NOBODY
from console.models import AuditEvent
from tests.browser.scene import PASSWORD, Scene


def test_the_right_password_leads_to_the_page_that_was_wanted(scene: Scene) -> None:
    client = Client()

    response = client.post("/sign-in/", {"username": "amelia", "password": PASSWORD, "next": scene.link_url})

    assert response["Location"] == scene.link_url
    assert client.get(scene.link_url).status_code == 200


def test_a_wrong_password_is_told_in_place_and_the_name_is_kept(scene: Scene) -> None:
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
def test_who_was_signed_out_meanwhile_comes_back_to_the_page_and_is_told(scene: Scene, sent_from: str, back: str) -> None:
    client, page = Client(), scene.mirror_url("flights")

    answer = client.post(f"{page}verify/", headers={"Referer": sent_from.format(page=page)} if sent_from else {})

    assert answer["Location"] == f"/sign-in/?next={back.format(page=page)}"
    assert "Your session has ended. Nothing was changed." in client.get(answer["Location"]).content.decode()


AT_ONCE = 10  # as .env.example has it


def attempts(client: Client, *passwords: str, name: str = "amelia") -> list[int]:
    return [client.post("/sign-in/", {"username": name, "password": one}).status_code for one in passwords]


def test_whoever_guesses_has_to_wait(scene: Scene, redis_url: str, settings: Any) -> None:
    settings.ATTEMPT_EVERY_S = 1_000  # looking at passwords takes long on a loaded machine
    stranger = Client(REMOTE_ADDR="192.0.2.1")
    assert attempts(stranger, *["guess"] * AT_ONCE) == [422] * AT_ONCE

    response = stranger.post("/sign-in/", {"username": "amelia", "password": PASSWORD})

    assert response.status_code == 429
    assert 1 <= int(response["Retry-After"]) <= settings.ATTEMPT_EVERY_S
    assert "Too many failed sign-ins with this user name." in response.content.decode()
    assert "_auth_user_id" not in stranger.session
    assert attempts(stranger, "guess", name="bessie") == [422]  # other names, and the same from elsewhere, do not wait
    assert attempts(Client(REMOTE_ADDR="192.0.2.2"), PASSWORD) == [302]


def test_an_address_that_begins_to_wait_is_in_the_audit_once(scene: Scene, redis_url: str, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = 2, 1_000
    one, other = Client(REMOTE_ADDR="192.0.2.21"), Client(REMOTE_ADDR="192.0.2.22")
    assert attempts(one, *["guess"] * 2) == [422, 422]
    assert not AuditEvent.objects.filter(action="ThrottleSignIn").exists()

    assert attempts(one, *["guess"] * 5) == [429] * 5
    assert attempts(one, *["guess"] * 4, name="bessie") == [422, 422, 429, 429]
    (event,) = AuditEvent.objects.filter(action="ThrottleSignIn")
    assert attempts(other, *["guess"] * 4) == [422, 422, 429, 429]

    told = (event.actor, event.resource, event.result, event.client_address, len(event.request_id))
    assert told == (NOBODY, "user/amelia", "DENIED", "192.0.2.21", 32)
    assert AuditEvent.objects.filter(action="ThrottleSignIn").count() == 2


def test_who_signs_in_has_all_attempts_again(scene: Scene, redis_url: str) -> None:
    somebody, wrong = Client(REMOTE_ADDR="192.0.2.3"), ["gues"] * (AT_ONCE - 1)

    assert attempts(somebody, *wrong, PASSWORD, *wrong) == [*[422] * len(wrong), 302, *[422] * len(wrong)]


def test_nobody_waits_while_redis_is_away(scene: Scene, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    assert attempts(Client(), *["guess"] * (AT_ONCE + 2), PASSWORD) == [*[422] * (AT_ONCE + 2), 302]


@pytest.mark.parametrize("wanted", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)", ""])
def test_nobody_is_led_away_from_the_host(scene: Scene, wanted: str) -> None:
    response = Client().post("/sign-in/", {"username": "amelia", "password": PASSWORD, "next": wanted})

    assert response["Location"] == "/"


def test_signing_out_ends_the_session(admin: Client) -> None:
    admin.post("/sign-out/")

    assert admin.get("/links/")["Location"].startswith("/sign-in/")


def test_signing_out_is_a_post(admin: Client) -> None:
    assert admin.get("/sign-out/").status_code == 405


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_remembered(admin: Client, theme: str) -> None:
    response = admin.post("/settings/theme/", {"theme": theme, "next": "/links/?q=x"})

    assert response["Location"] == "/links/?q=x"
    assert f'data-bs-theme="{theme}"' in admin.get("/links/").content.decode()


def test_the_theme_goes_back_to_the_systems(admin: Client) -> None:
    admin.post("/settings/theme/", {"theme": "dark"})

    admin.post("/settings/theme/", {"theme": ""})

    assert "data-bs-theme=" not in admin.get("/links/").content.decode().split(">", 2)[1]


def test_pages_are_protected_by_a_content_policy_without_exceptions(admin: Client) -> None:
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


def test_a_user_without_staff_rights_changes_the_password_and_ends_the_other_sessions(scene: Scene) -> None:
    here, elsewhere = signed_in("bessie"), signed_in("bessie")
    assert "/access/password/" in here.get("/environments/").content.decode()
    assert here.get("/access/password/").status_code == 200

    answer = change(here)

    assert (answer.status_code, answer["Location"]) == (302, "/access/me/")
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
def test_a_password_that_cannot_be_changed_is_told_beside_its_field(
    scene: Scene, values: dict[str, str], field: str, words: str
) -> None:
    User.objects.filter(username="bessie").update(email="x@example.test")
    here, elsewhere = signed_in("bessie"), signed_in("bessie")

    answer = change(here, **values)

    text = answer.content.decode()
    assert (answer.status_code, words in text.split(f'id="{field}_error"')[1].split("</div>")[0]) == (422, True)
    assert not any(value and f'value="{value}"' in text for value in values.values())
    assert elsewhere.get("/environments/").status_code == 200
    assert User.objects.get(username="bessie").check_password(PASSWORD)


def test_the_current_password_cannot_be_guessed_with_a_session_of_somebody_else(
    scene: Scene, redis_url: str, settings: Any
) -> None:
    settings.ATTEMPT_EVERY_S = 1_000
    client = Client(REMOTE_ADDR="192.0.2.77")
    client.force_login(scene.reader)
    tried = [change(client, password="guess").status_code for _ in range(AT_ONCE)]

    answer = change(client)

    assert (tried, answer.status_code) == ([422] * AT_ONCE, 429)
    assert int(answer["Retry-After"]) >= 1
    assert User.objects.get(username="bessie").check_password(PASSWORD)
    assert AuditEvent.objects.filter(action="ThrottlePasswordChange", result="DENIED").count() == 1


def test_the_password_page_needs_a_session(scene: Scene) -> None:
    assert Client().get("/access/password/")["Location"].startswith("/sign-in/")
    assert change(Client()).status_code == 302
    assert User.objects.get(username="bessie").check_password(PASSWORD)

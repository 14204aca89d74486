"""Pages in Japanese; REST, stored texts and the audit log stay English."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.test import Client
from django.utils import timezone, translation
from django.utils.translation import gettext, trans_real

from console.access.actions import create_api_key
from console.actors import SYSTEM, Actor
from console.clusters.topic_actions import alter_topic_configs, create_topic, grow_topic
from console.errors import ConsoleError
from console.http.middleware import LANGUAGE, PageLanguageMiddleware
from console.models import Account, AuditEvent, GateRun
from console.verification.report_pdf import JAPANESE_FONT
from console.web.request_handling import problem_of
from tests.browser.addresses import PAGES, REFUSALS
from tests.browser.page_data import EAST, PASSWORD, PageData
from tests.browser.page_fixtures import APPROVAL, REPORT
from tests.console.pages.conftest import client_of, htmx, post_form

IN_JAPANESE = {"Accept-Language": "ja,en;q=0.5"}
JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
PROFILE = "/settings/profile/"
CATALOG = Path(settings.BASE_DIR) / "locale/ja/LC_MESSAGES/django.po"


@pytest.fixture(autouse=True)
def english_afterwards() -> Iterator[None]:
    """A request of the test client leaves its language active in the thread of the tests."""
    compiled = CATALOG.with_suffix(".mo")
    assert compiled.exists(), "The catalog is not compiled. Run `make locale/ja/LC_MESSAGES/django.mo`."
    assert compiled.stat().st_mtime >= CATALOG.stat().st_mtime, "The compiled catalog is old. Run `make setup`."
    yield
    translation.deactivate()


def in_japanese(text: str) -> str:
    """Return the translation of a text of the pages; fail if there is none."""
    with translation.override("ja"):
        found = gettext(text)
    assert JAPANESE.search(found), text
    return found


def language_in(response: Any) -> str:
    """Return the language that a page states; header, attribute and heading have to agree."""
    text = response.content.decode()
    (stated,) = re.findall(r'<html lang="([^"]*)"', text)
    assert response["Content-Language"] == stated
    assert {"Accept-Language", "Cookie"} <= {name.strip() for name in response["Vary"].split(",")}
    return str(stated)


def japanese_user(page_data: PageData, **more: str) -> Client:
    """Return a client of Amelia, whose profile says Japanese."""
    client = client_of(page_data.admin)
    assert client.post(PROFILE, {"time_zone": "", "language": "ja", "density": "comfortable"} | more).status_code == 302
    client.cookies.pop(settings.LANGUAGE_COOKIE_NAME)
    return client


class TestPages:
    """Profile, cookie, browser: the first of these that names a language decides."""

    @pytest.mark.parametrize(
        ("accepted", "shown"),
        [("ja", "ja"), ("ja-JP,ja;q=0.9", "ja"), ("en,ja;q=0.5", "en"), ("fr,ja;q=0.5", "ja"), ("fr", "en"), ("", "en")],
    )
    def test_a_page_has_the_language_of_the_browser(self, admin: Client, accepted: str, shown: str) -> None:
        response = admin.get(PROFILE, headers={"Accept-Language": accepted})

        assert language_in(response) == shown
        assert (in_japanese("Save profile") in response.content.decode()) == (shown == "ja")

    def test_the_sign_in_page_has_the_language_of_the_cookie(self, db: None) -> None:
        guest = Client(headers={"Accept-Language": "en"})
        assert language_in(guest.get("/sign-in/")) == "en"

        guest.cookies[settings.LANGUAGE_COOKIE_NAME] = "ja"

        assert language_in(guest.get("/sign-in/")) == "ja"
        guest.cookies[settings.LANGUAGE_COOKIE_NAME] = "xx"
        assert language_in(guest.get("/sign-in/")) == "en"

    def test_the_profile_takes_precedence_over_cookie_and_browser(self, page_data: PageData) -> None:
        client = japanese_user(page_data)
        client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"

        assert language_in(client.get("/audit/", headers={"Accept-Language": "en"})) == "ja"

    def test_the_profile_is_applied_at_once_at_the_next_sign_in_and_by_a_cookie(self, page_data: PageData) -> None:
        here, there = client_of(page_data.admin), Client()
        saved = here.post(PROFILE, {"time_zone": "", "language": "ja", "density": "compact"}, follow=True)
        there.post("/sign-in/", {"username": "amelia", "password": PASSWORD})

        assert in_japanese("Profile saved.") in saved.content.decode()
        assert Account.objects.get(user=page_data.admin).language == "ja"
        assert language_in(there.get("/audit/")) == "ja"
        cookie = here.cookies[settings.LANGUAGE_COOKIE_NAME]
        assert (cookie.value, cookie["samesite"], bool(cookie["httponly"])) == ("ja", "Lax", True)

        here.post("/sign-out/")
        assert language_in(here.get("/sign-in/", headers={"Accept-Language": "en"})) == "ja"

    def test_an_empty_language_follows_the_browser_again(self, page_data: PageData) -> None:
        client = client_of(page_data.admin)
        for language in ("ja", ""):
            client.post(PROFILE, {"time_zone": "", "language": language, "density": "compact"})

        assert language_in(client.get(PROFILE, headers={"Accept-Language": "en"})) == "en"
        assert language_in(client.get(PROFILE, headers=IN_JAPANESE)) == "ja"

    def test_an_unknown_language_is_refused(self, admin: Client) -> None:
        response = admin.post(PROFILE, {"time_zone": "", "language": "xx", "density": "compact"})

        assert response.status_code == 422
        assert not Account.objects.filter(density="compact").exists()

    def test_a_language_that_is_no_longer_offered_is_that_of_the_browser(self, admin: Client) -> None:
        session = admin.session
        session[LANGUAGE] = "xx"
        session.save()

        assert language_in(admin.get(PROFILE, headers=IN_JAPANESE)) == "ja"

    def test_errors_of_forms_are_in_the_language_of_the_page(self, page_data: PageData) -> None:
        values = {"password": "wrong", "new_password": "a", "repeated": "b"}
        text = japanese_user(page_data).post("/access/password/", values).content.decode()

        assert in_japanese("The passwords do not match. Enter the same new password in both fields.") in text

    def test_a_fragment_has_the_language_of_its_reader(self, page_data: PageData, admin: Client) -> None:
        english = admin.get(page_data.link_url, **htmx("live"))
        japanese = admin.get(page_data.link_url, **htmx("live", **IN_JAPANESE))

        assert (english["Content-Language"], japanese["Content-Language"]) == ("en", "ja")
        assert len(JAPANESE.findall(japanese.content.decode())) > 20
        assert not JAPANESE.search(english.content.decode())

    @pytest.mark.parametrize("path", ["", "tasks/", "failover/", "drills/", "mirrors/flights/", "mirrors/flights/lineage/"])
    def test_a_poll_in_another_language_gets_the_page(self, page_data: PageData, admin: Client, path: str) -> None:
        address = f"{page_data.link_url}{path}"
        found = re.search(r'name="seen" value="([^"]+)"', admin.get(address).content.decode())
        assert found is not None

        unchanged = admin.get(address, {"seen": found[1]}, **htmx("live"))
        other = admin.get(address, {"seen": found[1]}, **htmx("live", **IN_JAPANESE))

        assert (unchanged.status_code, other.status_code) == (204, 200)
        assert JAPANESE.search(other.content.decode())

    def test_refusals_give_their_reason_in_the_language_of_the_page(self, page_data: PageData) -> None:
        client, link = japanese_user(page_data), page_data.link
        post_form(client, f"{page_data.link_url}pause/", {"paused": "true"})

        refused = client.post(f"{page_data.link_url}tasks/TopicConfigsSync/run/")
        denied = client_of(page_data.reader).post(f"{page_data.link_url}tasks/TopicConfigsSync/run/", headers=IN_JAPANESE)

        reason = in_japanese("Cluster link '%(link)s' is paused. Set cluster.link.paused to false first.")
        assert reason % {"link": link.name} in html.unescape(refused.content.decode())
        assert denied.status_code == 403
        assert 'での権限「<span lang="en">manage links</span>」がありません。' in html.unescape(denied.content.decode())
        reasons = AuditEvent.objects.filter(action="MANAGE_LINK").values_list("detail", flat=True)
        assert any("You do not have the permission to manage links" in str(detail) for detail in reasons)

    def test_pages_are_english_without_the_compiled_catalog(
        self, page_data: PageData, admin: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(settings, "LOCALE_PATHS", [])
        monkeypatch.setattr(trans_real, "_translations", {})
        monkeypatch.setattr(trans_real, "_default", None)

        response = admin.get(PROFILE, headers=IN_JAPANESE)

        assert response.status_code == 200
        assert "Save profile" in response.content.decode()


class EnglishFinder(HTMLParser):
    """Collects English in a page: three words in lower case, outside of elements and attributes in which it is expected."""

    WORDS = re.compile("[A-Za-z']+(?: [a-z']{2,}){2,}")
    EXPECTED = ("code", "pre", "script", "style", "textarea")
    VOID = ("br", "hr", "img", "input", "link", "meta", "path", "use")
    ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[tuple[str, bool]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._collect(" | ".join(values.get(name) or "" for name in self.ATTRIBUTES))
        if tag not in self.VOID:
            inside = bool(self._open) and self._open[-1][1]
            self._open.append((tag, inside or tag in self.EXPECTED or values.get("lang") == "en"))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1][1]):
            self._collect(data)

    def _collect(self, text: str) -> None:
        self.found += [" ".join(text.split()) for _ in self.WORDS.findall(text)]


class TestEnglishOnPages:
    """A page in Japanese has no English sentence, except stored ones and those of the engine, which are marked as English."""

    def test_pages_have_no_english_that_is_not_marked(self, page_data: PageData) -> None:
        client = japanese_user(page_data)

        pages = {address: client.get(address).content.decode() for address in (*PAGES, *(name for name, _ in REFUSALS))}

        assert {address: found for address, page in pages.items() if (found := EnglishFinder(page).found)} == {}
        assert all('<html lang="ja"' in page for page in pages.values())
        assert sum('<span lang="en">' in page for page in pages.values()) > 5

    def test_the_finder_finds_english(self) -> None:
        page = '<p lang="en">It is marked as English.</p><p>これは Here it is not 文です。</p><br><img alt="a text for it">'

        assert EnglishFinder(page).found == ["これは Here it is not 文です。", "a text for it | | |"]

    def test_the_readiness_is_translated(self, page_data: PageData) -> None:
        page = japanese_user(page_data).get(f"{page_data.link_url}readiness/").content.decode()

        assert "12 件のミラートピックをフェイルオーバーする準備ができていません: " in page
        assert "最後のフェイルオーバー訓練は" in page

    def test_details_of_the_gate_are_translated_and_stored_in_english(self, page_data: PageData) -> None:
        page = japanese_user(page_data).get(f"{page_data.mirror_url('flights')}migration-gate/").content.decode()

        assert "送信元は、17 個のオフセットをコピーされる前に削除しました。" in page
        stored = {check["name"]: check["detail"] for check in GateRun.objects.get().checks}
        assert stored["NOTHING_LOST"] == "The source deleted 17 offsets before they were copied."

    def test_checks_of_a_source_topic_are_translated(self, page_data: PageData) -> None:
        page = japanese_user(page_data).get(f"{page_data.link_url}topics/no-such-topic/").content.decode()

        assert in_japanese("No EXCLUDE filter matches.") in page
        assert in_japanese("Check the name, or grant the link's user DESCRIBE and READ on the topic.") in page

    def test_refused_topic_changes_are_english_for_programs_and_translated_for_pages(self, page_data: PageData) -> None:
        by = Actor(name="amelia", user=page_data.admin)
        about: dict[str, Any] = {"cluster": page_data.east, "topic": "flights", "by": by, "now": page_data.now}
        changes: tuple[tuple[Callable[..., object], dict[str, Any]], ...] = (
            (create_topic, {"partitions": 1, "replication_factor": None, "configs": {}}),
            (grow_topic, {"partitions": 9}),
            (alter_topic_configs, {"values": {"retention.ms": "1"}, "deletions": ()}),
        )
        refused: list[ConsoleError] = []
        for action, values in changes:
            with translation.override("ja"), pytest.raises(ConsoleError) as raised:
                action(**about, **values)
            refused.append(raised.value)

        for error in refused:
            with translation.override("ja"):
                shown = problem_of(error)["message"]
            assert not JAPANESE.search(error.message)
            assert JAPANESE.search(shown)
            assert EnglishFinder(f"<p>{shown}</p>").found == []
            assert "'flights'" in shown

    def test_the_reason_of_a_button_names_no_operations_in_any_language(self, page_data: PageData) -> None:
        """The sentence about allowed operations also names those that only bidirectional links have."""
        address = page_data.mirror_url("flights")
        english, japanese = client_of(page_data.admin).get(address), japanese_user(page_data).get(address)

        assert "Cannot resume a mirror topic in state ACTIVE.</dd>" in english.content.decode()
        assert "ステートが ACTIVE のミラートピックには resume を実行できません。</dd>" in japanese.content.decode()

    def test_wrong_values_of_forms_are_refused_in_japanese(self, page_data: PageData) -> None:
        address = f"{page_data.link_url}configuration/set/topic.config.sync.ms/"

        refused = post_form(japanese_user(page_data), address, {"value": "soon"})

        assert refused.status_code == 422
        assert "topic.config.sync.ms は整数にしてください。" in refused.content.decode()

    def test_the_pdf_of_a_report_has_the_language_of_its_reader(self, page_data: PageData) -> None:
        pytest.importorskip("reportlab")
        address = f"/failover-reports/{REPORT}/report.pdf"

        english, japanese = client_of(page_data.admin).get(address), japanese_user(page_data).get(address)

        assert JAPANESE_FONT.encode() in japanese.content
        assert JAPANESE_FONT.encode() not in english.content
        assert japanese["Content-Disposition"] == english["Content-Disposition"]


class TestEnglish:
    """Programs read English, whatever a browser or a profile says."""

    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            ({}, 422, "required"),  # a message of Django REST framework, which has a Japanese translation
            (
                {"operation": "failover", "mirror_topic_names": ["nothing"], "reason": "The source is down."},
                400,
                "Topic 'nothing' is not a mirror topic",  # a message that pages show in Japanese
            ),
        ],
    )
    def test_rest_is_english(self, page_data: PageData, body: dict[str, Any], status: int, words: str) -> None:
        page_data.environment.approval_operations = ["failover"]
        page_data.environment.save()
        key, secret = create_api_key(user=page_data.admin, description="", by=SYSTEM, now=timezone.now())
        basic = base64.b64encode(f"{key.key}:{secret}".encode()).decode()
        client = japanese_user(page_data)
        client.cookies[settings.LANGUAGE_COOKIE_NAME] = "ja"
        address = f"/api/v1/clusters/{EAST}/links/{page_data.link.name}/approval-requests"

        response = client.post(
            address, body, content_type="application/json", headers={"Authorization": f"Basic {basic}", **IN_JAPANESE}
        )

        assert response.status_code == status
        assert words in response.content.decode()
        assert not JAPANESE.search(json.dumps(response.json(), ensure_ascii=False))

    @pytest.mark.parametrize(
        "address", ["/kafka/v3/clusters", "/v3/clusters", "/kafka/v3", "/api/v1/nothing", "/api/schema", "/healthz", "/metrics"]
    )
    def test_paths_of_programs_are_the_same_in_every_language(self, db: None, address: str) -> None:
        client = Client()
        english = client.get(address)
        client.cookies[settings.LANGUAGE_COOKIE_NAME] = "ja"
        japanese = client.get(address, headers=IN_JAPANESE)

        assert japanese.status_code == english.status_code
        assert "Content-Language" not in japanese.headers
        assert not JAPANESE.search(japanese.content.decode())

    def test_actions_of_a_japanese_reader_are_stored_in_english(self, page_data: PageData) -> None:
        """All rows of the console are read after actions that succeed, that are refused and that are denied."""
        client, link = japanese_user(page_data), page_data.link_url
        done = (
            post_form(client, f"{page_data.mirror_url('flights')}pause/", {}),
            client.post(f"{link}tasks/TopicConfigsSync/run/"),
            post_form(client, f"{link}pause/", {"paused": "true"}),
            client.post("/access/users/invite/", {"name": "dorothy", "organization": str(page_data.organization.pk)}),
        )
        refused = client.post(f"{link}tasks/TopicConfigsSync/run/")  # of a link that is paused
        decide = f"/access/approvals/{APPROVAL}/approve/"  # a request of Bessie
        denied = client_of(page_data.reader).post(decide, {"lasts": "1"}, headers=IN_JAPANESE)

        assert [response.status_code for response in done] == [302, 302, 302, 201]
        assert (refused.status_code, refused["Content-Language"]) == (409, "ja")
        assert (denied.status_code, denied["Content-Language"]) == (403, "ja")
        reason = AuditEvent.objects.get(action="DecideApproval", actor="bessie").detail["reason"]
        assert reason.startswith("You cannot decide about this request.")
        assert html.escape(in_japanese(reason)) in denied.content.decode()
        for model in apps.get_app_config("console").get_models():
            for row in model.objects.values():  # type: ignore[attr-defined]
                stored = json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False, default=str)
                assert not JAPANESE.search(stored), f"{model.__name__}: {stored}"

    def test_a_process_without_requests_is_english(self) -> None:
        translation.deactivate()

        assert translation.get_language() == "en"
        assert gettext("Save profile") == "Save profile"

    def test_the_language_of_a_request_does_not_stay_for_the_next(self, page_data: PageData, admin: Client) -> None:
        admin.get(PROFILE, headers=IN_JAPANESE)

        assert "Content-Language" not in admin.get("/api/v1/nothing").headers
        assert translation.get_language() == "en"

    def test_the_middleware_follows_the_session(self) -> None:
        order = [name.rsplit(".", 1)[-1] for name in settings.MIDDLEWARE]

        assert (
            order.index("SessionMiddleware") < order.index(PageLanguageMiddleware.__name__) < order.index("CsrfViewMiddleware")
        )

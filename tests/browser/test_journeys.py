"""User journeys in a real browser: with and without JavaScript, by keyboard, and with live updates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from playwright.sync_api import Page, expect

from console.actors import ENGINE
from console.errors import UnavailableError
from console.mirrors import transitions
from console.models import Cluster, ClusterLink, LinkConfig, MirrorTopic, StateTransitionError
from console.queue import dispatch
from linkengine.domain.connectionchecks import CheckStatus, ConnectionCheck, ConnectionCheckCode
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, PASSWORD, WEST, PageData
from tests.browser.page_fixtures import DRAFT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


class Engine:
    """A fake for the worker and Kafka: returns results of checks, and performs events of the engine."""

    def __init__(self) -> None:
        self.response: Any = {"cluster_id": WEST, "brokers": 3, "kafka_version": "4.3.1", "authorizer": True}

    def send(self, _task_name: str, **_kwargs: Any) -> None:
        pass

    def call(self, _task_name: str, **_kwargs: Any) -> Any:
        if isinstance(self.response, Exception):
            raise self.response
        return self.response

    def did(self, name: str, event: MirrorEvent, **changes: Any) -> None:
        mirror = MirrorTopic.objects.get(name=name)
        transitions.apply_event(mirror=mirror, event=event, by=ENGINE, now=timezone.now(), **changes)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    monkeypatch.setattr(dispatch, "send", fake.send)
    monkeypatch.setattr(dispatch, "call", fake.call)
    return fake


def sign_in(page: Page) -> None:
    page.fill("#username", "amelia")
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_user_signs_in_creates_a_link_and_promotes_a_topic(page_data: PageData, visits: Visits, engine: Engine) -> None:
    visitor = visits.start()
    page = visitor.open("/links/")
    sign_in(page)
    expect(page).to_have_url(f"{visitor.base_url}/links/")

    page.get_by_role("link", name="Create cluster link").click()
    page.get_by_role("button", name="Start").click()
    page.select_option("#other", WEST)
    page.get_by_role("button", name="Next").click()
    page.select_option("#own", EAST)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    page.fill("#name", "journey")
    page.get_by_role("button", name="Validate only").click()
    expect(page.get_by_text("Validation successful.")).to_be_visible()
    page.get_by_role("button", name="Create cluster link").click()
    expect(page.get_by_role("heading", name="journey", level=1)).to_be_visible()
    _list_topics_of("journey", page_data)

    page.locator("#add-mirror").click()
    page.locator("input[role=combobox]").click()  # the select element is a combobox, too, until the script replaces it
    expect(page.get_by_role("option", name="flights (", exact=False)).to_have_attribute("aria-disabled", "true")
    page.get_by_role("option", name="fares (").click()
    page.get_by_role("button", name="Add", exact=True).click()
    badge = page.locator(".page-head .api-state")
    expect(badge).to_have_text("State Active · setting up")

    engine.did("fares", MirrorEvent.SETUP_DONE, num_partitions=1)
    expect(badge).to_have_text("State Active")  # without a reload

    _raise_error("fares")
    expect(page.get_by_text("AUTHENTICATION_ERROR", exact=True)).to_be_visible()
    expect(page.locator("#health").get_by_text("Enter the correct credentials in the link's configuration")).to_be_visible()

    page.get_by_role("link", name="Promote").click()
    page.get_by_label("Type fares to confirm").fill("fares")
    page.get_by_role("dialog").get_by_role("button", name="Promote").click()
    expect(badge).to_have_text("State Promoting")
    engine.did("fares", MirrorEvent.FENCED)
    expect(badge).to_have_text("State Stopped · writable")
    assert visitor.errors == []


def test_live_update_keeps_focus_and_selection(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    flights, planes = page_data.mirrors["flights"], page_data.mirrors["planes"]
    page.check(f"#pick-{planes.pk}")
    page.locator(f"#open-{planes.pk}").focus()

    MirrorTopic.objects.filter(pk__in=[flights.pk, planes.pk]).update(state=MirrorState.PAUSED)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(page.locator(f"#mirror-{flights.pk} .badge-state")).to_have_text("Paused")
    expect(page.locator(f"#mirror-{planes.pk} .badge-state")).to_have_text("Paused")
    expect(page.locator(f"#open-{planes.pk}")).to_be_focused()
    expect(page.locator(f"#pick-{planes.pk}")).to_be_checked()


def test_filter_narrows_the_list_and_updates_the_url(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)

    page.locator("#filter-q").press_sequentially("fli")

    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("#filter-q")).to_be_focused()
    expect(page).to_have_url(f"{page_data_url(page)}?q=fli&state=")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_rejected_link_shows_code_meaning_and_fix_at_the_field(page_data: PageData, visits: Visits, engine: Engine) -> None:
    engine.response = LINK_ERROR
    page = visits.start(page_data.admin).open("/links/new/")
    page.get_by_role("button", name="Start").click()
    page.get_by_label("Other Apache Kafka").check()
    page.fill("#bootstrap_servers", "nowhere.example:9092")
    page.fill("#username", "link")
    page.fill("#password", "wrong")
    page.get_by_role("button", name="Next").click()
    page.select_option("#own", EAST)
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    page.fill("#name", "refused")

    page.get_by_role("button", name="Create cluster link").click()

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The source refused user 'link'.")
    expect(alert).to_contain_text("AUTHENTICATION_ERROR")
    alert.get_by_role("link", name="Go to step Source cluster").click()
    expect(page.locator("#bootstrap_servers")).to_have_value("nowhere.example:9092")
    expect(page.locator("#password")).to_have_value("")
    expect(page.locator("#field-password")).to_contain_text("Leave empty to keep it")


def test_only_the_fields_of_the_chosen_security_are_shown(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, scripts=False).open(f"/links/new/{DRAFT}/source/")

    shown = {
        ("PLAINTEXT", ""): set(),
        ("SSL", ""): {"ca_pem", "certificate_pem", "key_pem"},
        ("SASL_PLAINTEXT", "PLAIN"): {"username", "password"},
        ("SASL_SSL", "SCRAM-SHA-512"): {"username", "password", "ca_pem", "certificate_pem", "key_pem"},
        ("SASL_PLAINTEXT", "OAUTHBEARER"): {"username", "password", "token_url", "token_scope"},
    }
    names = set().union(*shown.values())
    for (protocol, mechanism), expected in shown.items():
        page.select_option("#security_protocol", protocol)
        if mechanism:
            page.select_option("#sasl_mechanism", mechanism)
        assert {name for name in names if page.locator(f"#{name}").is_visible()} == expected


def test_secrets_of_a_new_cluster_survive_failed_and_successful_tests(
    page_data: PageData, visits: Visits, engine: Engine
) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open("/environments/production/clusters/new/")
    page.fill("#bootstrap_servers", "far.example:9093")
    for name in ("username", "password", "certificate_pem", "key_pem"):
        page.fill(f"#{name}", f"entered {name}")

    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#name")).to_be_focused()  # its error is shown
    page.fill("#name", "far")
    engine.response = [asdict(ConnectionCheck(code=ConnectionCheckCode.DNS, status=CheckStatus.PASSED, finding="Fine."))]
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("#checklist")).to_be_focused()
    engine.response = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")
    page.get_by_role("button", name="Register cluster").click()
    expect(page.locator("#bootstrap_servers")).to_be_focused()

    for name in ("username", "password", "certificate_pem", "key_pem"):
        expect(page.locator(f"#{name}")).to_have_value(f"entered {name}")
    engine.response = {"cluster_id": "bmV3LWNsdXN0ZXItaWQtMQ", "brokers": 5, "kafka_version": "4.3.1", "authorizer": True}
    page.get_by_role("button", name="Register cluster").click()
    expect(page.get_by_text("Cluster far registered.")).to_be_visible()
    properties = Cluster.objects.get(name="far").properties
    assert properties["ssl.keystore.key"] == "entered key_pem"
    assert "entered password" in properties["sasl.jaas.config"]
    assert visitor.errors == [error for error in visitor.errors if "status of 422" in error]


def test_password_is_still_there_after_the_changes_were_shown(page_data: PageData, visits: Visits, engine: Engine) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}configuration/edit/")
    page.fill("#password", "another-secret")
    page.get_by_role("button", name="Show changes").click()
    expect(page.get_by_text("1 unsaved change")).to_be_visible()
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("1 change saved.")).to_be_visible()

    link = ClusterLink.objects.get(pk=page_data.link.pk)
    assert "another-secret" in link.properties["sasl.jaas.config"]
    assert visitor.errors == []


def test_form_of_a_link_that_changed_shows_the_stored_values(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.link_url}configuration/edit/")
    page.fill("#bootstrap_servers", "elsewhere.example:9092")
    LinkConfig.objects.create(link=page_data.link, name="cluster.link.paused", value="true")

    page.get_by_role("button", name="Save changes").click()

    expect(page.get_by_text("changed after you opened this form")).to_be_visible()
    expect(page.locator("#bootstrap_servers")).to_have_value(page_data.west.bootstrap_servers)
    expect(page.locator("#paused")).to_be_checked()


def test_preview_follows_the_filters_while_they_are_typed(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"/links/new/{DRAFT}/configuration/")
    expect(page.locator("#preview")).to_contain_text("Mirror topics are created for 1 of 3 source topics.")

    page.locator("#topics-1-name").press_sequentially("fresh")
    page.select_option("#topics-1-kind", "EXCLUDE")

    expect(page.locator("#preview")).to_contain_text("Mirror topics are created for 0 of 3 source topics.")
    expect(page.locator("#preview")).to_contain_text("1 excluded")
    expect(page.locator("#topics-1-name")).to_have_value("fresh")
    assert visitor.errors == []


def test_switch_shows_its_filters(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, scripts=False).open(f"/links/new/{DRAFT}/configuration/")
    expect(page.locator("#groups-0-name")).to_be_visible()

    page.locator("#sync_offsets").uncheck()

    expect(page.locator("#groups-0-name")).to_be_hidden()
    expect(page.locator("#topics-0-name")).to_be_visible()


def test_commands_are_copied_to_the_clipboard(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"/links/new/{DRAFT}/review/")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    page.locator("#command-linkctl summary").click()
    page.locator("#command-linkctl [data-copy]").click()

    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").startswith(': "${LINKCTL_API_KEY:?}"')


def test_newcomer_creates_a_link_with_at_most_twelve_inputs(page_data: PageData, visits: Visits, engine: Engine) -> None:
    """Counts every click, choice and text of the way from the list of links to the new link."""
    page, inputs = visits.start(page_data.admin).open("/links/"), 0
    steps: list[Callable[[], object]] = [
        lambda: page.get_by_role("link", name="Create cluster link").click(),
        lambda: page.locator("#preset-migrate").check(),
        lambda: page.get_by_role("button", name="Start").click(),
        lambda: page.select_option("#other", WEST),
        lambda: page.get_by_role("button", name="Next").click(),
        lambda: page.select_option("#own", EAST),
        lambda: page.get_by_role("button", name="Next").click(),
        lambda: page.get_by_role("button", name="Next").click(),
        lambda: page.fill("#name", "migration"),
        lambda: page.get_by_role("button", name="Create cluster link").click(),
    ]
    for step in steps:
        step()
        inputs += 1

    expect(page).to_have_url(re.compile(f"/links/{EAST}/migration/$"))
    assert inputs <= 12
    assert ClusterLink.objects.get(name="migration").config("consumer.offset.sync.enable") == "true"


def test_missing_worker_is_reported_and_the_form_keeps_its_values(page_data: PageData, visits: Visits, engine: Engine) -> None:
    engine.response = UnavailableError("No worker responds. Start the Celery worker.", code="WORKER_UNAVAILABLE")
    page = visits.start(page_data.admin).open(f"{page_data.link_url}mirrors/new/?topic=fares")

    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.get_by_role("alert")).to_contain_text("No worker responds.")
    expect(page.locator("#source_topic")).to_have_value("fares")


def test_changed_state_is_reported_in_the_dialog(page_data: PageData, visits: Visits, engine: Engine) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    dialog, pause = page.get_by_role("dialog"), page.get_by_role("dialog").get_by_role("button", name="Pause")
    page.get_by_role("link", name="Pause").click()
    expect(pause).to_be_visible()
    MirrorTopic.objects.filter(pk=page_data.mirrors["flights"].pk).update(state=MirrorState.FAILED)

    pause.click()

    expect(dialog.get_by_role("alert")).to_contain_text("Cannot pause a mirror topic in state FAILED")
    expect(pause).to_have_count(0)
    expect(dialog.get_by_role("button", name="Close")).to_be_visible()


def test_closing_a_dialog_restores_the_focus(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    page.locator("#do-failover").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#confirm-name")).to_be_visible()

    page.keyboard.press("Escape")

    expect(page.locator("dialog")).to_be_hidden()
    expect(page.locator("#do-failover")).to_be_focused()


def test_all_operations_work_without_javascript(page_data: PageData, visits: Visits, engine: Engine) -> None:
    visitor = visits.start(scripts=False)
    page = visitor.open(f"{page_data.link_url}mirrors/new/")
    sign_in(page)
    page.select_option("#source_topic", "fares")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".page-head .api-state")).to_have_text("State Active · setting up")
    engine.did("fares", MirrorEvent.SETUP_DONE, num_partitions=1)

    for verb, typed, state in (
        ("Pause", "", "Paused"),
        ("Resume", "", "Active"),
        ("Promote", "fares", "Promoting"),
        ("Fail over", "fares", "Failing over"),
    ):
        visitor.open(page_data.mirror_url("fares")).get_by_role("link", name=verb).click()
        if typed:
            page.get_by_label("Type fares to confirm").fill(typed)
        page.get_by_role("button", name=verb).click()
        expect(page.locator(".page-head .api-state")).to_have_text(f"State {state}")
    engine.did("fares", MirrorEvent.FENCED)
    visitor.open(page_data.mirror_url("fares")).get_by_role("link", name="Delete").click()
    page.get_by_label("Type fares to confirm").fill("fares")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("fares is being deleted.")).to_be_visible()

    visitor.open("/links/new/").get_by_label("Send topics to another cluster").check()
    page.get_by_role("button", name="Start").click()
    page.select_option("#own", EAST)
    page.get_by_role("button", name="Next").click()
    page.select_option("#other", WEST)
    page.get_by_role("button", name="Next").click()
    page.fill("#name", "pushed")
    page.get_by_role("button", name="Create cluster link").click()
    page.get_by_role("link", name="Create paired link").click()
    page.get_by_role("button", name="Start").click()
    for _ in range(3):  # source, destination and configuration are prefilled
        page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Create cluster link").click()
    expect(page).to_have_url(f"{visitor.base_url}/links/{WEST}/pushed/")
    expect(page.get_by_role("link", name="pushed on us-east")).to_be_visible()


def test_chosen_theme_is_kept(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open("/links/")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")

    page.locator(".topbar summary").last.click()
    page.get_by_role("button", name="Dark").click()

    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.goto(f"{page.url}new/")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")


def test_environment_switcher_lists_environments_when_opened(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)

    page.locator(".topbar summary").first.click()

    expect(page.locator("#switcher a")).to_have_text(["Production"])


def test_hidden_tab_does_not_poll(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(page_data.link_url)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true})")

    for _ in range(8):  # requests that were due before may still be sent
        before = len(visitor.requests)
        page.wait_for_timeout(2_500)
        if len(visitor.requests) == before:
            break

    assert len(visitor.requests) == before


LINK_ERROR = LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "The source refused user 'link'.")


def page_data_url(page: Page) -> str:
    return page.url.split("?")[0]


def _list_topics_of(link_name: str, page_data: PageData) -> None:
    """Create the rows that the refresh task creates after a link was created."""
    link = ClusterLink.objects.get(name=link_name)
    ClusterLink.objects.filter(pk=link.pk).update(topics_at=timezone.now())
    for topic in page_data.link.source_topics.all():
        link.source_topics.create(name=topic.name, partitions=topic.partitions, internal=topic.internal, seen_at=timezone.now())


def _raise_error(name: str) -> None:
    mirror = MirrorTopic.objects.get(name=name)
    now = timezone.now()
    StateTransitionError.objects.create(
        mirror=mirror, code="AUTHENTICATION_ERROR", message="The source refused user 'link'.", since=now, last_seen_at=now
    )
    ClusterLink.objects.filter(pk=mirror.link_id).update(sequence=F("sequence") + 1)

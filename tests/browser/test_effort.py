"""The effort of the main tasks: clicks to add a mirror topic, and inputs and time of a newcomer who links two clusters.

The time is not measured but computed from what a person does, with the operators of the keystroke-level model (Card, Moran and
Newell, 1983), so that it does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from console.models import Environment, Organization, RoleBinding
from console.queue import dispatch
from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, PASSWORD, WEST, PageData, make_person

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

KEY_S = 0.28  # a keystroke of an average typist
POINT_S = 1.3  # to move the pointer to something and click it
THINK_S = 1.35  # to decide on the next action
READ_S = 5.0  # to find the next step on a page
MOST_INPUTS, MOST_TIME = 10, timedelta(minutes=2, seconds=50)


@dataclass
class Person:
    """Works with mouse and keyboard, and counts what it does."""

    page: Page
    clicks: int = 0
    inputs: int = 0
    seconds: float = 0.0

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1
        self.seconds += THINK_S + POINT_S

    def open(self, link: Locator) -> None:
        """Click something that leads to another page."""
        self.click(link)
        self.page.wait_for_load_state()  # of the page that the click leads to
        self.seconds += READ_S

    def enter(self, field: str, text: str) -> None:
        """Click a field and type its value."""
        self.click(self.page.locator(field))
        self.page.locator(field).press_sequentially(text)
        self.inputs += 1
        self.seconds += KEY_S * len(text)

    def choose(self, field: str, label: str) -> None:
        """Open a list and click a value."""
        self.page.select_option(field, label=label)
        self.clicks += 2
        self.inputs += 1
        self.seconds += THINK_S + 2 * POINT_S

    def review(self, field: str, value: str) -> None:
        """Read the value that a page suggests, and keep it."""
        expect(self.page.locator(field)).to_have_value(value)
        self.seconds += THINK_S


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return what a worker returns: the clusters are registered in the order west, east, and all checks succeed."""
    probed = iter((WEST, EAST))

    def call(task_name: str, **_values: Any) -> dict[str, Any]:
        cluster_id = next(probed) if task_name == "probe_address" else WEST
        return {"cluster_id": cluster_id, "brokers": 1, "kafka_version": "4.3.1", "authorizer": True}

    monkeypatch.setattr(dispatch, "send", lambda _task_name, **_values: None)
    monkeypatch.setattr(dispatch, "call", call)


@pytest.mark.parametrize(("start", "most_clicks"), [("link", 3), ("home", 5)])
def test_mirror_topic_is_added_with_few_clicks(page_data: PageData, visits: Visits, start: str, most_clicks: int) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url if start == "link" else "/")
    person = Person(page)
    if start == "home":
        person.open(page.get_by_role("navigation", name="Main").get_by_role("link", name="Cluster links"))
        person.open(page.locator("tbody th").get_by_role("link", name="west-to-east", exact=True))

    person.open(page.locator("#add-mirror"))
    person.click(page.locator("input[role=combobox]"))
    page.keyboard.type("fares")
    expect(page.get_by_role("option")).to_have_count(1)  # the list is filtered
    page.keyboard.press("Enter")
    person.click(page.get_by_role("button", name="Add", exact=True))

    expect(page.get_by_role("heading", name="fares", level=1)).to_be_visible()
    expect(page.locator(".page-head .api-state")).to_have_text("State Active · setting up")
    assert person.clicks <= most_clicks


@pytest.fixture
def empty(base_url: str) -> Environment:
    """An environment without clusters, as an installation begins; amelia administers it."""
    now = timezone.now()
    organization = Organization.objects.create(name="Skyways", created_at=now)
    make_person("amelia", RoleBinding.Role.ORGANIZATION_ADMIN, organization, now)
    return Environment.objects.create(organization=organization, name="Production", slug="production", created_at=now)


def test_newcomer_links_two_clusters_with_few_inputs(empty: Environment, visits: Visits) -> None:
    """From the sign-in to the page of the link, without a document, following the buttons that the pages offer."""
    page = visits.start().open("/")
    person = Person(page)
    person.enter("#username", "amelia")
    person.enter("#password", PASSWORD)
    person.open(page.get_by_role("button", name="Sign in"))
    for name in ("us-west", "us-east"):
        if name == "us-west":
            person.open(page.get_by_role("navigation", name="Main").get_by_role("link", name="Environments"))
        person.open(page.locator("main").get_by_role("link", name="Production").first)
        person.open(page.get_by_role("link", name="Register cluster").first)
        person.enter("#name", name)
        person.enter("#bootstrap_servers", "127.0.0.1:9092" if name == "us-west" else "127.0.0.1:9093")
        person.choose("#security_protocol", "PLAINTEXT")
        person.open(page.get_by_role("button", name="Register cluster"))
        expect(page.get_by_text(f"Cluster {name} registered.")).to_be_visible()
    person.open(page.get_by_role("navigation", name="Main").get_by_role("link", name="Cluster links"))
    person.open(page.get_by_role("link", name="Create cluster link").first)
    person.open(page.get_by_role("button", name="Start"))
    person.choose("#other", "us-west (Production)")
    person.open(page.get_by_role("button", name="Next"))
    person.review("#own", EAST)
    person.open(page.get_by_role("button", name="Next"))
    person.open(page.get_by_role("button", name="Next"))
    person.review("#name", "us-west-to-us-east")
    person.open(page.get_by_role("button", name="Create cluster link"))

    expect(page.get_by_role("heading", name="us-west-to-us-east", level=1)).to_be_visible()
    assert person.inputs <= MOST_INPUTS
    assert timedelta(seconds=person.seconds) <= MOST_TIME

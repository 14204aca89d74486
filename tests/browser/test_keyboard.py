"""Keyboard only: each control is reached with Tab, its focus is visible, nothing traps the focus, and the main flows work."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from console.models import BulkOperation, ClusterLink
from linkengine.domain.states import MirrorEvent
from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, WEST, PageData
from tests.browser.page_fixtures import DRAFT, OPERATION
from tests.browser.test_journeys import Engine, engine

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
__all__ = ["engine"]  # a fixture

MOST_STOPS = 300
# Describes the focused element. A combobox that closes leaves the focus nowhere for a moment, and so does the end of the page.
# The combobox shows the focus at the box around its field, and takes the focus once more when it has opened: a person needs
# longer for the next key. Tab stops several times in a date.
STOP = """async () => {
  const until = performance.now() + 1000;
  while (document.activeElement === document.body && performance.now() < until)
    await new Promise((resolve) => setTimeout(resolve, 20));
  if (document.activeElement.closest(".ts-wrapper")) await new Promise((resolve) => setTimeout(resolve, 100));
  const element = document.activeElement;
  window.walked ||= new Set();
  const inside = element === window.stoppedAt;  // the browser draws the focus of a part
  const again = element === document.body || (!inside && window.walked.has(element));
  window.walked.add(element);
  window.stoppedAt = element;
  const shown = getComputedStyle(element.closest(".ts-wrapper")?.querySelector(".ts-control") ?? element);
  const outlined = shown.outlineStyle !== "none" && parseFloat(shown.outlineWidth) >= 1;
  const box = element.getBoundingClientRect();
  return {
    name: `${element.tagName} ${element.id || element.textContent.trim().slice(0, 40) || element.name}`,
    again,
    visible: inside || outlined || shown.boxShadow !== "none",
    inside: box.bottom > 0 && box.top < innerHeight,
  };
}"""
CONTROLS = """document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")"""
# Names the visible controls that were not reached. Of a group of radio buttons Tab reaches the selected one. A control that a
# poll has drawn anew since the walk began is another element, which may stand where Tab had been already.
MISSED = f"""() => [...{CONTROLS}].filter((element) => window.present.has(element))
  .filter((element) => element.tabIndex >= 0 && !element.disabled && element.type !== "hidden" && element.checkVisibility())
  .filter((element) => !window.walked.has(element) && (element.type !== "radio" || element.checked))
  .map((element) => `${{element.tagName}} ${{element.id || element.textContent.trim().slice(0, 40) || element.name}}`)"""


def walk(page: Page) -> list[str]:
    """Press Tab until the focus is back at the first control; return what is wrong."""
    page.wait_for_load_state("networkidle")  # charts replace the pictures of the server
    page.evaluate(f"() => {{ window.present = new Set({CONTROLS}); }}")
    findings: list[str] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop["again"]:
            return findings + [f"{name} is not reached" for name in page.evaluate(MISSED)]
        if not stop["visible"]:
            findings.append(f"{stop['name']} does not show the focus")
        if not stop["inside"]:
            findings.append(f"{stop['name']} is outside of the window when it has the focus")
    return [*findings, f"Tab did not come back to the first control after {MOST_STOPS} others"]


def tab_to(page: Page, control: Locator, *, key: str = "Tab") -> None:
    """Press Tab, or Shift+Tab, until a control has the focus."""
    expect(control).to_be_visible()
    for _ in range(MOST_STOPS):
        if control.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press(key)
    pytest.fail(f"{control} is not reached with {key}")


def test_tab_reaches_every_control_and_shows_the_focus(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    failover = f"{page_data.link_url}failover/"
    walks: tuple[tuple[str, ...], ...] = (
        (failover,),
        (failover, "#pick-page", "#review"),
        (page_data.link_url, "#pick-page", "#bulk-failover"),
        (f"/operations/{OPERATION}/",),
        ("/access/",),
    )
    addresses = (
        page_data.link_url,
        page_data.mirror_url("flights"),
        page_data.mirror_url("flights", "verification"),
        page_data.mirror_url("flights", "migration-gate"),
        f"{page_data.link_url}mirrors/new/",
        f"{page_data.link_url}configuration/edit/",
        "/links/new/",
        f"/links/new/{DRAFT}/configuration/",
    )

    walks += tuple((address,) for address in addresses)
    findings = [f"{steps}: {finding}" for steps in walks for finding in walk(visitor.go(*steps))]

    assert not findings, "\n".join(findings)


def skip_to_content(page: Page) -> None:
    """Move the focus of a page that was just opened behind the navigation."""
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_skip_link_moves_the_focus_behind_the_navigation(page_data: PageData, visits: Visits) -> None:
    skip_to_content(visits.start(page_data.admin).open(page_data.link_url))


def press(page: Page, key: str, control: Locator) -> None:
    """Press a key on a control that is reached with Tab."""
    tab_to(page, control)
    page.keyboard.press(key)


def write(page: Page, text: str, control: Locator) -> None:
    """Type a text into a field, or the beginning of an option into a list, in place of what it has."""
    tab_to(page, control)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def test_mirror_topic_is_added_and_promoted_by_keyboard(page_data: PageData, visits: Visits, engine: Engine) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    badge = page.locator(".page-head .api-state")

    press(page, "Enter", page.locator("#add-mirror"))
    expect(page.get_by_role("heading", name="Add mirror topic")).to_be_visible()
    tab_to(page, page.locator("input[role=combobox]"))
    page.keyboard.type("fares")
    expect(page.get_by_role("option")).to_have_count(1)  # the list is filtered
    page.keyboard.press("Enter")
    press(page, "Enter", page.get_by_role("button", name="Add", exact=True))
    expect(badge).to_have_text("State Active · setting up")
    engine.did("fares", MirrorEvent.SETUP_DONE, num_partitions=1)
    expect(badge).to_have_text("State Active")

    press(page, "Enter", page.locator("#do-promote"))
    write(page, "fares", page.locator("#confirm-name"))
    press(page, "Enter", page.locator("#confirm-button"))

    expect(badge).to_have_text("State Promoting")


def test_topics_are_failed_over_by_keyboard(page_data: PageData, visits: Visits, engine: Engine) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.link_url}failover/")
    boxes = [page.locator("[data-pick]").nth(row) for row in (0, 1)]
    names = {box.get_attribute("value") for box in boxes}

    skip_to_content(page)
    for box in boxes:
        press(page, "Space", box)
    expect(page.locator("#picked")).to_have_text("2 selected")
    tab_to(page, page.locator("#review"), key="Shift+Tab")
    page.keyboard.press("Enter")
    press(page, "Space", page.locator("#item-producers"))
    write(page, "us-west is down.", page.locator("#reason"))
    write(page, page_data.link.name, page.locator("#confirm-name"))
    press(page, "Enter", page.locator("#confirm-button"))

    expect(page.get_by_text("0 of 2 topics processed")).to_be_visible()
    operation = BulkOperation.objects.latest("requested_at")
    expect(page).to_have_url(re.compile(f"/operations/{operation.pk}/$"))
    assert (operation.operation, operation.options["reason"]) == ("failover", "us-west is down.")
    assert set(operation.topics.values_list("name", flat=True)) == names


def test_link_is_created_by_keyboard(page_data: PageData, visits: Visits, engine: Engine) -> None:
    page = visits.start(page_data.admin).open("/links/new/")
    following = page.get_by_role("button", name="Next")

    press(page, "ArrowDown", page.locator("[name=preset]:checked"))
    press(page, "Enter", page.get_by_role("button", name="Start"))
    write(page, "us-west", page.locator("#other"))
    expect(page.locator("#other")).to_have_value(WEST)
    press(page, "Enter", following)
    write(page, "us-east", page.locator("#own"))
    expect(page.locator("#own")).to_have_value(EAST)
    press(page, "Enter", following)
    before = page.locator("#sync_acls").is_checked()
    press(page, "Space", page.locator("#sync_acls"))
    press(page, "Enter", following)
    write(page, "by-keyboard", page.locator("#name"))
    press(page, "Enter", page.get_by_role("button", name="Create cluster link"))

    expect(page).to_have_url(re.compile(f"/links/{EAST}/by-keyboard/$"))
    link = ClusterLink.objects.get(name="by-keyboard")
    assert link.source_cluster_id == WEST
    assert link.config("acl.sync.enable") == ("false" if before else "true")

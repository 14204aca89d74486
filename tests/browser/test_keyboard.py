"""Keyboard only: each control is reached with Tab, its focus is visible, nothing traps the focus, and the main flows work."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from console.queue import dispatch
from linkengine.domain.states import MirrorEvent
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData
from tests.browser.page_fixtures import DRAFT, OPERATION
from tests.browser.test_journeys import Engine

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MOST_STOPS = 300
# Describes the focused element. A combobox that closes leaves the focus nowhere for a moment, and so does the end of the page.
# The combobox shows the focus at the box around its field. Tab stops several times in a date.
STOP = """async () => {
  const until = performance.now() + 1000;
  while (document.activeElement === document.body && performance.now() < until)
    await new Promise((resolve) => setTimeout(resolve, 20));
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
# Names the visible controls that were not reached. Of a group of radio buttons Tab reaches the selected one.
MISSED = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((element) => element.tabIndex >= 0 && !element.disabled && element.type !== "hidden" && element.checkVisibility())
  .filter((element) => !window.walked.has(element) && (element.type !== "radio" || element.checked))
  .map((element) => `${element.tagName} ${element.id || element.textContent.trim().slice(0, 40) || element.name}`)"""


def walk(page: Page) -> list[str]:
    """Press Tab until the focus is back at the first control; return what is wrong."""
    page.wait_for_load_state("networkidle")  # charts replace the pictures of the server
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


def tab_to(page: Page, control: Locator) -> None:
    """Press Tab until a control has the focus."""
    expect(control).to_be_visible()
    for _ in range(MOST_STOPS):
        if control.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{control} is not reached with Tab")


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


def test_skip_link_moves_the_focus_behind_the_navigation(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("#main")).to_be_focused()


def test_mirror_topic_is_added_and_promoted_by_keyboard(
    page_data: PageData, visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    monkeypatch.setattr(dispatch, "send", engine.send)
    monkeypatch.setattr(dispatch, "call", engine.call)
    page = visits.start(page_data.admin).open(page_data.link_url)
    badge = page.locator(".page-head .api-state")

    tab_to(page, page.locator("#add-mirror"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Add mirror topic")).to_be_visible()
    tab_to(page, page.locator("input[role=combobox]"))
    page.keyboard.type("fares")
    expect(page.get_by_role("option")).to_have_count(1)  # the list is filtered
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name="Add", exact=True))
    page.keyboard.press("Enter")
    expect(badge).to_have_text("State Active · setting up")
    engine.did("fares", MirrorEvent.SETUP_DONE, num_partitions=1)
    expect(badge).to_have_text("State Active")

    tab_to(page, page.locator("#do-promote"))
    page.keyboard.press("Enter")
    tab_to(page, page.locator("#confirm-name"))
    page.keyboard.type("fares")
    tab_to(page, page.locator("#confirm-button"))
    page.keyboard.press("Enter")

    expect(badge).to_have_text("State Promoting")

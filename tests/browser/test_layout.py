"""The layout as users with a mouse, a phone or a magnified page have it: scrollbars, focus of checkboxes, search and tabs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from devcluster.browser import FLAGS, browser_path
from tests.browser.addresses import TABS
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData
from tests.browser.test_accessibility import TOO_HIGH

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

# Width of a vertical scrollbar, 0 if scrollbars cover the content.
SCROLLBAR = """() => {
  const box = document.body.appendChild(document.createElement("div"));
  box.style.cssText = "width: 90px; height: 90px; overflow: scroll";
  const width = box.offsetWidth - box.clientWidth;
  box.remove();
  return width;
}"""
# Names the links of the tabs that are not wholly within the window.
CUT_OFF = """links => links.filter((link) => {
  const box = link.getBoundingClientRect();
  return !link.checkVisibility() || box.left < 0 || box.right > document.documentElement.clientWidth;
}).map(link => link.textContent)"""


# Names the control with the focus if a bar that stays in sight covers it, or if it is outside of the window.
COVERED = """() => {
  const control = document.activeElement, box = control.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  const bar = top?.closest(".bulk-bar, .topbar");
  return top && (!bar || bar.contains(control)) ? [] : [control.id || control.textContent.trim() || control.name];
}"""


@pytest.fixture
def with_scrollbars(browser: Browser, visits: Visits) -> Iterator[Visits]:
    """Windows with scrollbars that take space; headless browsers hide them otherwise."""
    chromium = browser.browser_type.launch(
        executable_path=browser_path(), args=FLAGS, ignore_default_args=["--hide-scrollbars"]
    )
    yield Visits(browser=chromium, base_url=visits.base_url)
    chromium.close()


def test_tables_have_no_inner_vertical_scrollbar(page_data: PageData, with_scrollbars: Visits) -> None:
    """In a few pages with visible scrollbars; test_accessibility measures the tables of all pages without them."""
    visitor = with_scrollbars.start(page_data.admin)
    findings = []
    for address in (
        page_data.link_url,
        page_data.mirror_url("flights"),
        page_data.mirror_url("flights", "verification"),
        f"{page_data.link_url}failover/",
        f"{page_data.link_url}groups/",
        "/audit/",
    ):
        page = visitor.open(address)
        for width in (1280, 800):
            page.set_viewport_size({"width": width, "height": 900})
            found = page.eval_on_selector_all(".table-wrap", TOO_HIGH)
            findings += [f"{address} at {width} px: {table}" for table in found]
        page.set_viewport_size({"width": 1280, "height": 900})

    assert visitor.page.evaluate(SCROLLBAR) > 5
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_focused_checkbox_has_an_outline(page_data: PageData, visits: Visits, theme: str) -> None:
    page = visits.start(page_data.admin, theme=theme).open(page_data.link_url)
    page.locator("#pick-page").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")  # back, by keyboard: only then the focus is shown

    shown = page.evaluate("() => [document.activeElement.id, getComputedStyle(document.activeElement).outline]")

    assert shown[0] == "pick-page"
    assert shown[1].endswith("solid 2px"), shown[1]


@pytest.mark.parametrize(("width", "height", "language"), [(390, 844, "en"), (320, 640, "ja"), (1280, 900, "en")])
def test_operations_stay_in_reach_of_a_selection_and_cover_no_focus(
    page_data: PageData, visits: Visits, width: int, height: int, language: str
) -> None:
    page = visits.start(page_data.admin, width=width, language=language).open(page_data.link_url)
    page.set_viewport_size({"width": width, "height": height})
    page.locator("[data-pick]").last.check()

    expect(page.locator("#bulk-pause")).to_be_in_viewport(ratio=1)
    assert page.locator(".bulk-bar").evaluate("bar => bar.offsetHeight") <= height / 4
    covered = []
    for _ in range(60):  # back to the first topics: the bar and the top bar are above
        page.keyboard.press("Shift+Tab")
        covered += page.evaluate(COVERED)
    assert covered == []
    page.locator("#bulk-pause").click()
    expect(page.locator("main h1")).to_be_visible()
    assert page.url.endswith("/bulk/")


def test_bar_does_not_stay_in_sight_where_it_would_cover_half_the_list(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    page.set_viewport_size({"width": 640, "height": 360})  # a window of 1280 x 720 at 200 % zoom
    page.locator("[data-pick]").last.check()

    expect(page.locator("#bulk-pause")).not_to_be_in_viewport()


@pytest.mark.parametrize("width", [390, 640])  # 640: a window of 1280 at 200 % zoom
def test_search_and_all_tabs_are_reachable_on_narrow_screens(page_data: PageData, visits: Visits, width: int) -> None:
    visitor = visits.start(page_data.admin, width=width)
    for tab in ("", "tasks/", "failover/"):  # a group without tabs of its own, and the two largest
        page = visitor.open(f"{page_data.link_url}{tab}")
        tabs = page.locator("nav[aria-label='Link'] a")

        assert tabs.evaluate_all(CUT_OFF) == []
        assert tabs.all_inner_texts()[:6] == ["Overview", "Topics", "Sync", "Failover", "Settings", "Activity"]
        page.get_by_role("link", name="Search", exact=True).click()
        expect(page.locator("main input[type=search]")).to_be_visible()


@pytest.mark.parametrize("width", [390, 640])
def test_all_tabs_of_a_mirror_topic_are_reachable_on_narrow_screens(page_data: PageData, visits: Visits, width: int) -> None:
    visitor = visits.start(page_data.admin, width=width)
    tabs = visitor.open(page_data.mirror_url("flights")).get_by_role("navigation", name="Mirror topic").get_by_role("link")
    assert tabs.all_inner_texts() == ["Overview", "Data", "Failover", "Configs", "History"]
    reached: set[str] = set()
    for group in tabs.evaluate_all("links => links.map(link => link.pathname)"):
        visitor.open(group)
        assert tabs.evaluate_all(CUT_OFF) == []
        reached |= set(tabs.evaluate_all("links => links.map(link => link.pathname)"))

    assert reached == {page_data.mirror_url("flights"), *(page_data.mirror_url("flights", tab) for tab in TABS)}

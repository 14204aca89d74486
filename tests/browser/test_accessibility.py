"""All pages in both languages, both themes and several widths: no axe violations, no horizontal overflow, no external requests.

Each page is opened in English and in Japanese, and its width is measured in both. Axe, which takes most of the time, runs in
the combinations of language, width and theme in ``CHECKED``; with ``EFFORT=2`` or more in all of them, and on all pages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from console.access.account_actions import invite_user
from console.actors import Actor
from tests.browser.addresses import OPEN, PAGES, REFUSALS, SAME_APPEARANCE
from tests.browser.conftest import Authenticator, Visitor, Visits
from tests.browser.page_data import PASSWORD, PageData
from tests.browser.page_fixtures import DRAFT, OPERATION
from tests.effort import EFFORT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
EVERYTHING = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}
# The theme changes only colours, so the dark theme is checked for colours only.
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}, "resultTypes": ["violations"]}
# Each language with the width, theme and rules of its runs of axe, in this order on one page.
CHECKED: dict[str, tuple[tuple[int, str, dict[str, Any]], ...]] = {
    "en": ((1280, "light", EVERYTHING),),
    "ja": ((390, "light", EVERYTHING), (390, "dark", COLOURS), (1280, "dark", COLOURS)),
}
OMITTED: frozenset[str] = SAME_APPEARANCE
if EFFORT > 1:
    CHECKED = dict.fromkeys(
        CHECKED,
        ((390, "light", EVERYTHING), (1280, "light", EVERYTHING), (1280, "dark", COLOURS), (390, "dark", COLOURS)),
    )
    OMITTED = frozenset()
ADDRESSES = tuple(page for page in (*PAGES, *(address for address, _ in REFUSALS)) if page not in OMITTED)
WIDTHS = (1280, 768, 390, 320)
BADGES = """badges => badges.map((badge) => ({
  text: badge.textContent.trim(),
  border: getComputedStyle(badge).borderTopStyle,
  icon: badge.querySelector("svg").getBoundingClientRect().width,
}))"""
# Links and buttons that a user can see.
OFFERED = """() => [...document.querySelectorAll("main a[href], main button, main summary, .sidenav a, .topbar summary")]
  .filter((element) => element.checkVisibility())
  .map((element) => element.id || element.getAttribute("href") || element.textContent.trim())"""
# Names the tables whose content is higher than their box: they would have a second scrollbar, or hide their last row.
TOO_HIGH = """boxes => boxes.filter(box => box.scrollHeight > box.clientHeight)
  .map(box => `${box.getAttribute("aria-label") ?? "table"}: ${box.scrollHeight} px in ${box.clientHeight} px`)"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("share", range(4))
def test_pages_pass_axe_fit_all_widths_and_make_no_external_requests(page_data: PageData, visits: Visits, share: int) -> None:
    windows = english, japanese = visits.start(page_data.admin), visits.start(page_data.admin, language="ja")

    findings = [finding for address in ADDRESSES[share::4] for finding in _findings(english, japanese, address)]

    assert not findings, "\n".join(findings)
    requests = [url for window in windows for url in window.requests]
    assert [url for url in requests if not url.startswith((english.base_url, "data:"))] == []
    assert [error for window in windows for error in window.errors if not _is_expected(error)] == []


def test_sign_in_and_invitation_pass_axe_and_fit_all_widths(page_data: PageData, visits: Visits) -> None:
    english, japanese = visits.start(), visits.start(language="ja")
    by = Actor(name="amelia", user=page_data.admin)
    _user, token = invite_user(name="dorothy", organization=page_data.organization, by=by, now=timezone.now())

    addresses = (*OPEN, f"/invitation/{token}/")
    findings = [finding for address in addresses for finding in _findings(english, japanese, address)]

    assert not findings, "\n".join(findings)


def test_pages_of_the_second_factor_pass_axe_and_fit_all_widths(
    page_data: PageData, visits: Visits, authenticator: Authenticator
) -> None:
    address = "/settings/second-factor/"
    windows = english, japanese = visits.start(page_data.admin), visits.start(page_data.admin, language="ja")

    findings = _findings(english, japanese, address)
    findings += _findings(english, japanese, address, turn_on)
    authenticator.is_on = True
    findings += _findings(english, japanese, address)
    for window in windows:
        window.page.context.clear_cookies()
    findings += _findings(english, japanese, "/sign-in/", enter_password)

    assert not findings, "\n".join(findings)
    assert english.page.url.endswith("/sign-in/code/")


def turn_on(page: Page) -> None:
    """Turn the second factor on; leads to the recovery codes."""
    page.fill("#password", PASSWORD)
    page.fill("#code", "123456")
    page.click("main button[type=submit]")
    expect(page.locator("pre")).to_contain_text("recovery-1")


def enter_password(page: Page) -> None:
    """Sign in with user name and password; leads to the page that requires a code."""
    page.fill("#username", "amelia")
    page.fill("#password", PASSWORD)
    page.click("main button[type=submit]")
    expect(page.locator("#code")).to_be_visible()


def test_the_administration_has_legible_colours(page_data: PageData, visits: Visits) -> None:
    User.objects.filter(pk=page_data.admin.pk).update(is_staff=True, is_superuser=True)
    visitor, guest = visits.start(page_data.admin), visits.start()
    windows = [(guest, "/admin/login/")]
    windows += [(visitor, f"/admin/{path}") for path in ("", "auth/user/", "auth/user/add/", "console/auditevent/")]

    findings = []
    for window, address in windows:
        page = window.open(address)
        for theme in ("light", "dark"):
            page.evaluate(f"document.documentElement.dataset.bsTheme = '{theme}'")
            findings += _run(page, COLOURS, f"{theme} {address}")

    assert not findings, "\n".join(findings)
    assert visitor.errors == []


@pytest.mark.parametrize(
    ("width", "language"),
    [(width, language) for language in CHECKED for width, _, rules in CHECKED[language] if rules is EVERYTHING],
)
def test_dialog_menu_and_combobox_pass_axe(page_data: PageData, visits: Visits, width: int, language: str) -> None:
    visitor = visits.start(page_data.admin, width=width, language=language)
    page = visitor.open(page_data.mirror_url("flights"))
    page.click("#do-failover")
    page.wait_for_selector("dialog[open] #confirm-name")

    findings = _in_both_themes(page, "dialog")
    page.keyboard.press("Escape")
    page.locator(".topbar summary").last.click()
    findings += _in_both_themes(page, "menu", within=".topbar")  # it covers a part of what is below
    page = visitor.open(f"{page_data.link_url}mirrors/new/")
    page.click(".ts-control")
    page.wait_for_selector(".ts-dropdown [role=option]")
    findings += _in_both_themes(page, "combobox")

    assert not findings, "\n".join(findings)


def test_states_are_legible_with_forced_colors(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    page.emulate_media(forced_colors="active")

    badges = page.eval_on_selector_all(".badge-state", BADGES)

    assert len(badges) > 5
    assert [badge for badge in badges if not (badge["text"] and badge["border"] == "solid" and badge["icon"] > 0)] == []


def test_everything_that_a_wide_window_offers_is_offered_on_a_narrow_screen(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    failover, drills = f"{page_data.link_url}failover/", f"{page_data.link_url}drills/"
    addresses = [page_data.link_url, page_data.mirror_url("flights"), page_data.mirror_url("flights", "verification")]
    addresses += ["/links/", "/environments/production/", failover, drills, "/access/", "/audit/", f"/operations/{OPERATION}/"]
    addresses += [f"/links/new/{DRAFT}/source/", f"/links/new/{DRAFT}/configuration/"]
    for steps in (*((address,) for address in addresses), (failover, "#pick-all", "#review")):
        page = visitor.go(*steps)
        if page.locator("#graphs").count():  # charts replace the pictures of the server
            expect(page.locator("#graphs figure")).to_have_count(4)
        wide = set(page.evaluate(OFFERED))
        page.set_viewport_size({"width": 320, "height": 900})
        narrow = set(page.evaluate(OFFERED))

        assert wide - narrow == set(), steps
        expect(page.get_by_role("link", name="Search", exact=True)).to_be_visible()  # instead of the field in the top bar
        page.set_viewport_size({"width": 1280, "height": 900})


def _is_expected(message: str) -> bool:
    """Return True for the console message of Chromium about the expected status of an error page."""
    return any(f"status of {status}" in message and message.endswith(address) for address, status in REFUSALS)


def _findings(english: Visitor, japanese: Visitor, address: str, do: Callable[[Page], None] | None = None) -> list[str]:
    """Return what is wrong with the page at an address, or with the page that ``do`` leads to from there."""
    findings = []
    for visitor, language in ((english, "en"), (japanese, "ja")):
        page = visitor.open(address)
        if do:
            do(page)
        if page.get_attribute("html", "lang") != language:
            findings.append(f"{address}: not in the language {language}")
        findings += _sizes(page, f"{address} in {language}")
        for width, theme, rules in CHECKED[language]:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate(f"document.documentElement.dataset.bsTheme = '{theme}'")
            findings += _run(page, rules, f"{theme} {address} in {language} at {width} px")
        page.set_viewport_size({"width": 1280, "height": 900})
    return findings


def _sizes(page: Page, where: str) -> list[str]:
    """Return what does not fit a width; leave the window as wide as it was."""
    findings = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        too_wide = page.evaluate(OVERFLOW)
        if too_wide > 0:
            findings.append(f"{where}: {too_wide} px too wide at {width} px")
        findings += [f"{where} at {width} px: {table}" for table in page.eval_on_selector_all(".table-wrap", TOO_HIGH)]
    page.set_viewport_size({"width": 1280, "height": 900})
    return findings


def _in_both_themes(page: Page, where: str, *, within: str = "html") -> list[str]:
    findings = _run(page, EVERYTHING, f"light {where}", within=within)
    page.evaluate("document.documentElement.dataset.bsTheme = 'dark'")
    findings += _run(page, COLOURS, f"dark {where}", within=within)
    page.evaluate("document.documentElement.dataset.bsTheme = 'light'")
    return findings


def _run(page: Page, options: dict[str, Any], where: str, *, within: str = "html") -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    # Only violations are transferred: what passed is a hundred times as much.
    run = "([within, options]) => axe.run(within, options).then(results => results.violations)"
    violations = page.evaluate(run, [within, options])
    return [
        f"{where}: {violation['id']} {node['target']} {node.get('failureSummary', '')[:300]}"
        for violation in violations
        for node in violation["nodes"]
    ]

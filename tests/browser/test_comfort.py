"""JavaScript helpers of the pages: the copy button and the prefixed mirror name."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, PageData

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

_PREFIXED = f"/links/{EAST}/south-archive/mirrors/new/"


@pytest.mark.parametrize("clipboard", ["missing", "forbidden"])
def test_text_is_selected_if_the_clipboard_is_not_available(page_data: PageData, visits: Visits, clipboard: str) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    broken = (
        "undefined" if clipboard == "missing" else "{writeText: () => Promise.reject(new DOMException('', 'NotAllowedError'))}"
    )
    page.evaluate(f"Object.defineProperty(navigator, 'clipboard', {{value: {broken}}})")
    page.locator("#rest summary").click()

    page.get_by_role("button", name="Copy curl command").click()

    expect(page.locator("#status")).to_contain_text("Not copied: the clipboard is not available.")
    selected = page.evaluate("getSelection().toString()")
    assert selected.strip() == page.locator("#rest pre").inner_text().strip()


def test_copy_button_writes_to_the_clipboard(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#rest summary").click()

    page.get_by_role("button", name="Copy curl command").click()

    expect(page.locator("#status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#rest pre").inner_text()


def test_prefixed_mirror_name_follows_the_typed_topic(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(_PREFIXED)
    name = page.get_by_role("status", name="Name on us-east")
    expect(name).to_have_text("south.…")

    page.locator("#source_topic").fill("orders")
    expect(name).to_have_text("south.orders")
    page.locator("#source_topic").fill("")
    expect(name).to_have_text("south.…")


def test_prefixed_mirror_name_is_correct_after_back_navigation(page_data: PageData, visits: Visits) -> None:
    type(page_data.link).objects.filter(pk=page_data.link.pk).update(prefix="west.")
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}mirrors/new/")
    page.locator("input[role=combobox]").click()
    page.get_by_role("option", name="fares (").click()
    visitor.open("/links/")

    page.go_back()

    chosen = page.locator("#source_topic").input_value()
    expect(page.locator("#mirror_name")).to_have_text(f"west.{chosen or '…'}")


def test_prefixed_mirror_name_follows_the_selected_topic(page_data: PageData, visits: Visits) -> None:
    type(page_data.link).objects.filter(pk=page_data.link.pk).update(prefix="west.")
    page = visits.start(page_data.admin).open(f"{page_data.link_url}mirrors/new/")

    page.locator("input[role=combobox]").click()
    page.get_by_role("option", name="fares (").click()

    expect(page.locator("#mirror_name")).to_have_text("west.fares")

"""Live updates change what the server has changed, and nothing that the user or the browser has changed."""

from __future__ import annotations

import pytest
from django.db.models import F
from playwright.sync_api import Page, expect

from console.models import ClusterLink, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def change(page_data: PageData, page: Page, *, gone: str = "") -> None:
    """Pause a mirror topic, and delete another if given; return when the page shows it."""
    flights = page_data.mirrors["flights"]
    MirrorTopic.objects.filter(pk=flights.pk).update(state=MirrorState.PAUSED)
    MirrorTopic.objects.filter(name=gone).delete()
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)
    expect(page.locator(f"#mirror-{flights.pk} .badge-state")).to_have_text("Paused", timeout=5_000)


def test_typed_text_and_its_caret_are_kept(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    page.evaluate("document.querySelector('form.filters').addEventListener('input', (event) => event.stopPropagation(), true)")
    field = page.locator("#filter-q")
    field.press_sequentially("not sent yet")
    field.press("Home")
    field.press("ArrowRight")

    change(page_data, page)

    expect(field).to_be_focused()
    expect(field).to_have_value("not sent yet")
    assert page.evaluate("document.activeElement.selectionStart") == 1


def test_selected_text_is_kept(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    name = f"#open-{page_data.mirrors['planes'].pk}"
    page.evaluate("(name) => getSelection().selectAllChildren(document.querySelector(name))", name)
    selected = page.evaluate("getSelection().toString()")
    assert selected

    change(page_data, page)

    assert page.evaluate("getSelection().toString()") == selected


def test_open_menu_stays_open_and_its_focus_is_kept(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    page.locator("#bulk-more summary").click()
    page.locator("#bulk-delete").focus()

    change(page_data, page)

    expect(page.locator("#bulk-more")).to_have_attribute("open", "")
    expect(page.locator("#bulk-delete")).to_be_focused()


def test_rows_are_matched_by_id(page_data: PageData, visits: Visits) -> None:
    """A selection in a row stays in the row of the same mirror topic when a row above it disappears."""
    page = visits.start(page_data.admin).open(page_data.link_url)
    rows = page.locator("tbody tr[id^=mirror-]")
    first, last = rows.first.get_attribute("id") or "", rows.last.get_attribute("id") or ""
    name = MirrorTopic.objects.get(pk=first.removeprefix("mirror-")).name
    assert name != "flights"
    page.locator(f"#{last}").evaluate("(row) => (row.marked = true)")
    page.locator(f"#{last} [data-pick]").check()
    count = rows.count()

    change(page_data, page, gone=name)

    expect(rows).to_have_count(count - 1)
    expect(page.locator(f"#{last} [data-pick]")).to_be_checked()
    assert page.locator(f"#{last}").evaluate("(row) => row.marked")
    expect(page.locator("[data-pick]:checked")).to_have_count(1)


def test_dialog_stays_open_with_its_text(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.mirror_url("flights"))
    page.locator("#do-failover").click()
    page.locator("#confirm-name").press_sequentially("fli")

    MirrorTopic.objects.filter(name="flights").update(state=MirrorState.PAUSED)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(page.locator("#do-resume")).to_be_attached(timeout=5_000)
    expect(page.locator("#dialog")).to_be_visible()
    expect(page.locator("#confirm-name")).to_have_value("fli")
    expect(page.locator("#confirm-name")).to_be_focused()


def test_typed_filter_is_kept_while_the_heading_is_updated(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.link_url}filters/")
    name = page.locator("input[name=name]").first
    name.fill("not-saved-yet")

    ClusterLink.objects.filter(pk=page_data.link.pk).update(state="PAUSED", sequence=F("sequence") + 1)

    expect(page.locator("#head .api-state")).to_contain_text("Paused", timeout=5_000)
    expect(name).to_have_value("not-saved-yet")
    expect(name).to_be_focused()


def test_result_of_a_connection_test_is_kept_while_the_cluster_is_updated(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.east.get_absolute_url())
    page.evaluate("document.getElementById('tested').textContent = 'Connection works.'")
    topics = page.locator("#main").inner_text().count("Topics")

    ClusterLink.objects.filter(pk=page_data.link.pk).update(state="PAUSED", sequence=F("sequence") + 1)

    expect(page.locator(f"#link-{page_data.link.pk} .api-state")).to_contain_text("Paused", timeout=5_000)
    expect(page.locator("#tested")).to_have_text("Connection works.")
    assert page.locator("#main").inner_text().count("Topics") == topics  # outside of the region that is polled

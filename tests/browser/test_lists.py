"""Paginated lists in a real browser: by keyboard, with filters, and with live updates."""

from __future__ import annotations

import csv
import re
from datetime import timedelta

import pytest
from django.db.models import F
from playwright.sync_api import Page, expect

from console.audit import path_of
from console.models import AuditEvent, ClusterLink, Drill, MirrorTopic, RestoreRun, StopReport
from linkengine.domain.states import MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def rows(page: Page) -> list[str]:
    return page.locator("tbody tr td:first-child + td").all_inner_texts()


def test_audit_log_is_paged_by_keyboard_and_keeps_its_filter(page_data: PageData, visits: Visits) -> None:
    AuditEvent.objects.bulk_create(
        AuditEvent(
            at=page_data.now,
            actor=f"operator-{number % 2}",
            action="PauseMirrorTopic",
            resource=path_of(page_data.link),
            result="SUCCESS",
        )
        for number in range(240)
    )
    visitor = visits.start(page_data.admin)
    page = visitor.open("/audit/")
    expect(page.get_by_text("244 events")).to_be_visible()

    page.get_by_role("searchbox", name="Actor, action or resource").fill("operator-1")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()
    page.get_by_role("link", name="Next").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("51 to 100 of 120")).to_be_visible()
    page.get_by_role("link", name="Next").press("Enter")

    expect(page.get_by_text("101 to 120 of 120")).to_be_visible()
    expect(page).to_have_url(f"{visitor.base_url}/audit/?q=operator-1&action=&result=&from=&to=&page=3")
    expect(page.locator("tbody tr")).to_have_count(20)
    assert set(rows(page)) == {"operator-1"}
    page.go_back()
    expect(page.get_by_text("51 to 100 of 120")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Actor, action or resource")).to_have_value("operator-1")
    assert visitor.errors == []


@pytest.mark.parametrize("width", [1280, 390])
def test_list_is_sorted_and_its_filter_cleared_by_keyboard_without_javascript(
    page_data: PageData, visits: Visits, width: int
) -> None:
    visitor = visits.start(page_data.admin, scripts=False, width=width)
    page = visitor.open("/access/")
    names = page.locator("tbody th")
    ascending = names.all_inner_texts()
    heading = page.get_by_role("link", name="Principal", exact=True)
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "ascending")

    heading.press("Enter")
    expect(page).to_have_url(f"{visitor.base_url}/access/?sort=-principal")
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")
    assert names.all_inner_texts() == ascending[::-1]
    page.get_by_role("searchbox", name="Principal, role, scope or resource").fill("no-such-principal")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="No matching role bindings")).to_be_visible()
    page.get_by_role("link", name="Clear filter").press("Enter")

    expect(page).to_have_url(f"{visitor.base_url}/access/?sort=-principal")
    assert names.all_inner_texts() == ascending[::-1]
    assert visitor.errors == []


def test_file_of_the_list_is_downloaded(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.link_url}?q=fl&sort=-name")

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of these mirror topics").click()

    lines = download.value.path().read_text().splitlines()
    assert download.value.suggested_filename == f"mirrors-{page_data.link.name}.csv"
    assert [line.split(",")[0] for line in lines] == ["mirror_topic", "flights"]


def test_long_file_is_complete(page_data: PageData, visits: Visits) -> None:
    """The rows are read from the database while the server sends them, in several parts."""
    AuditEvent.objects.bulk_create(
        AuditEvent(
            at=page_data.now, actor=f"{number}", action="PauseMirrorTopic", resource=path_of(page_data.link), result="SUCCESS"
        )
        for number in range(40_000)
    )
    page = visits.start(page_data.admin).open("/audit/?action=PauseMirrorTopic&sort=at")

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of these events").click()

    with download.value.path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["actor"] for row in rows] == [f"{number}" for number in range(40_000)]


def test_failover_reports_are_paged_without_javascript(page_data: PageData, visits: Visits) -> None:
    for number in range(60):
        at = page_data.now - timedelta(days=number + 1)
        StopReport.objects.create(
            mirror=page_data.mirrors["gates"],
            reason="failover",
            requested_by="amelia",
            requested_at=at,
            writable_at=at,
            rto_ms=1,
        )
    page = visits.start(page_data.admin, scripts=False).open(f"{page_data.link_url}stops/")
    expect(page.get_by_text("61 reports")).to_be_visible()

    page.get_by_role("link", name="Next").click()

    expect(page.get_by_text("51 to 61 of 61")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(11)


def test_page_of_drills_keeps_its_number_when_a_drill_is_added(page_data: PageData, visits: Visits) -> None:
    for number in range(15):
        add_drill(page_data, days=number + 1)
    page = visits.start(page_data.admin).open(f"{page_data.link_url}drills/")
    expect(page.get_by_role("heading", name=re.compile(r"^Drill \d"))).to_have_count(10)
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_text("11 to 16 of 16")).to_be_visible()
    page.get_by_role("link", name="Previous").focus()

    add_drill(page_data, days=0)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(page.get_by_text("11 to 17 of 17")).to_be_visible(timeout=5_000)
    expect(page.get_by_role("heading", name=re.compile(r"^Drill \d"))).to_have_count(7)
    expect(page.get_by_role("link", name="Previous")).to_be_focused()


def test_next_page_of_restores_scrolls_to_the_restores(page_data: PageData, visits: Visits) -> None:
    for number in range(14):
        at = page_data.now - timedelta(days=number + 1)
        RestoreRun.objects.create(mirror=page_data.mirrors["lounges"], requested_by="amelia", requested_at=at, exported_at=at)
    page = visits.start(page_data.admin).open(page_data.mirror_url("lounges", "restores"))

    page.get_by_role("navigation", name="Pages of restores").get_by_role("link", name="Next").click()

    expect(page.locator("#restores")).to_contain_text("11 to 14 of 14")
    expect(page.locator("#restores li")).to_have_count(4)
    expect(page.locator("#restores-title")).to_be_in_viewport()


@pytest.mark.parametrize("slowdown", [1, 6])
def test_charts_do_not_push_the_target_of_the_address_out_of_view(page_data: PageData, visits: Visits, slowdown: int) -> None:
    visitor = visits.start(page_data.admin)
    session = visitor.page.context.new_cdp_session(visitor.page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})

    page = visitor.open(f"{page_data.mirror_url('flights')}#partition-0")

    expect(page.locator(".uplot").first).to_be_attached(timeout=30_000)
    page.wait_for_timeout(200)
    expect(page.locator("#partition-0")).to_be_in_viewport(timeout=1_000)  # before an update of the page


def test_update_of_a_page_does_not_scroll_back_to_the_fragment_of_its_address(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.mirror_url('flights')}#rest")
    page.wait_for_load_state("networkidle")  # charts replace the pictures of the server
    expect(page.locator("#rest")).to_be_in_viewport()
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")

    MirrorTopic.objects.filter(pk=page_data.mirrors["flights"].pk).update(state=MirrorState.PAUSED)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(page.locator(".page-head .api-state")).to_have_text("State Paused", timeout=5_000)
    page.wait_for_timeout(500)  # htmx scrolls after the update
    assert page.evaluate("scrollY") == 0


def add_drill(page_data: PageData, *, days: int) -> None:
    at = page_data.now - timedelta(days=days)
    Drill.objects.create(
        link=page_data.link, status="PASSED", status_since=at, start_spec="latest", requested_by="amelia", requested_at=at
    )

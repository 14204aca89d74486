"""The verification panel in a real browser: records that were not compared are shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from playwright.sync_api import expect

from console.models import ClusterLink, VerifyRun
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
NOT_COMPARED = "not copied when the run started. Run the verification again when the mirror has caught up."


def compare(page_data: PageData, **result: Any) -> VerifyRun:
    """Create a verification run as the worker does, and update the page."""
    requested = {"requested_by": "amelia", "requested_at": page_data.now - timedelta(minutes=1)}
    run = VerifyRun.objects.create(mirror=page_data.mirrors["planes"], **requested, **result)
    renew(page_data)
    return run


def renew(page_data: PageData) -> None:
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)


@pytest.mark.parametrize("width", [1280, 360])
def test_records_not_compared_are_shown_beside_an_equal_result(page_data: PageData, visits: Visits, width: int) -> None:
    compare(page_data, status="EQUAL", records_compared=6_644, differences=0, not_copied=1_207)

    page = visits.start(page_data.reader, width=width).open(page_data.mirror_url("planes", "verification"))

    panel = page.get_by_role("region", name="Verification")
    expect(panel.get_by_text("6,644")).to_be_visible()
    note = panel.locator("dt", has_text="Not compared").locator("+ dd")
    expect(note).to_have_text(f"1,207 offsets {NOT_COMPARED}")
    note.scroll_into_view_if_needed()
    expect(note).to_be_in_viewport(ratio=1)
    assert note.evaluate("element => element.scrollWidth <= element.clientWidth"), "a part of the text is cut off"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_records_not_compared_are_updated_live(page_data: PageData, visits: Visits) -> None:
    run = compare(page_data, status="RUNNING")
    page = visits.start(page_data.admin).open(page_data.mirror_url("planes", "verification"))
    panel = page.get_by_role("region", name="Verification")
    expect(panel.locator(".badge-state")).to_have_text("Comparing")
    expect(panel.get_by_text("Not compared")).to_have_count(0)

    VerifyRun.objects.filter(pk=run.pk).update(status="EQUAL", records_compared=10, differences=0, not_copied=1)
    renew(page_data)
    expect(panel.locator("#not-copied")).to_have_text(f"1 offset {NOT_COMPARED}")  # without a reload

    compare(page_data, status="EQUAL", records_compared=11, differences=0, not_copied=0)
    expect(panel.get_by_text("Not compared")).to_have_count(0)
    expect(panel.locator(".badge-state")).to_have_text("Equal")


def test_records_not_compared_are_omitted_if_unknown(page_data: PageData, visits: Visits) -> None:
    compare(page_data, status="EQUAL", records_compared=6_644, differences=0, not_copied=None)

    page = visits.start(page_data.reader).open(page_data.mirror_url("planes", "verification"))

    expect(page.get_by_text("6,644")).to_be_visible()
    expect(page.get_by_text("Not compared")).to_have_count(0)

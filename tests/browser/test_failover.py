"""A failover of several topics in a real browser: live figures, review, confirmation, progress and report."""

from __future__ import annotations

import pytest
from django.db.models import F
from django.utils import timezone
from playwright.sync_api import expect

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.queue import dispatch
from console.verification.report_actions import write_stop_reports
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData
from tests.browser.test_accessibility import EVERYTHING, _run
from tests.browser.test_journeys import sign_in
from tests.browser.test_many_at_once import work

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
REASON = "us-west has been down for 20 minutes."


@pytest.fixture(autouse=True)
def no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs: ``work`` does what a worker would."""
    monkeypatch.setattr(dispatch, "send", lambda _name, **_values: None)


def stop(name: str) -> None:
    """Do what a worker does at the end of a stop, except for the state."""
    MirrorPartition.objects.filter(mirror__name=name).update(stopped_end=5)
    write_stop_reports(mirrors=[MirrorTopic.objects.get(name=name)], now=timezone.now())


def test_figures_are_live_and_the_selection_is_kept(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}failover/")
    planes = page_data.mirrors["planes"]
    row = page.locator(f"#mirror-{planes.pk}")
    expect(row.get_by_text("216")).to_be_visible()
    page.check(f"#pick-{planes.pk}")
    expect(page.locator("#picked")).to_have_text("1 selected")

    planes.partitions.update(mirror_end=F("source_end") - 1)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(row.locator("td[data-label='Records at risk']")).to_have_text("3")
    expect(page.locator("#picked")).to_have_text("1 selected")
    assert visitor.errors == []


@pytest.mark.parametrize(
    ("theme", "language", "heading"),
    [
        ("light", "en", "Fail over 12 mirror topics?"),
        ("dark", "ja", "ミラートピックをフェイルオーバーしますか? (対象: 12 件)"),
    ],
    ids=["en", "ja"],
)
def test_review_passes_axe_and_fits_a_phone(
    page_data: PageData, visits: Visits, theme: str, language: str, heading: str
) -> None:
    visitor = visits.start(page_data.admin, width=390, theme=theme, language=language)
    page = visitor.open(f"{page_data.link_url}failover/")
    page.locator("#pick-all").check()
    page.locator("#review").click()
    expect(page.get_by_role("heading", name=heading)).to_be_visible()

    findings = _run(page, EVERYTHING, "review")

    assert not findings, "\n".join(findings)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert visitor.errors == []


def test_topics_are_failed_over_and_the_report_is_read_without_javascript(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(scripts=False)
    page = visitor.open(f"{page_data.link_url}failover/")
    sign_in(page)
    page.get_by_label("Select planes").check()
    page.get_by_label("Select flights").check()
    page.locator("#review").click()

    page.get_by_label("Clients have the addresses and credentials of the destination cluster.").check()
    page.get_by_label("Reason").fill(REASON)
    page.get_by_label(f"Type the link name {page_data.link.name} to confirm").fill(page_data.link.name)
    page.locator("#confirm-button").click()
    work()
    stop("planes")
    page.reload()
    expect(page.get_by_text("2 of 2 topics processed")).to_be_visible()
    page.locator("#report").click()

    expect(page.get_by_role("heading", name="Failover of 1 mirror topic")).to_be_visible()
    expect(page.get_by_text("The stop of 1 topic of this operation has not ended")).to_be_visible()
    expect(page.get_by_text(REASON)).to_be_visible()
    with page.expect_download() as download:
        page.locator("#report-json").click()
    assert download.value.suggested_filename.startswith("failover-operation-")


def test_missing_reason_is_shown_beside_its_field_and_inputs_are_kept(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"{page_data.link_url}failover/")
    page.check(f"#pick-{page_data.mirrors['planes'].pk}")
    page.locator("#review").click()
    page.locator("#item-producers").check()
    page.get_by_label("Reason").fill("   ")
    page.locator("#confirm-name").fill(page_data.link.name)

    page.locator("#confirm-button").click()

    expect(page.locator("#reason-error")).to_have_text("Enter a reason. The failover report shows it.")
    expect(page.locator("#item-producers")).to_be_checked()
    assert MirrorTopic.objects.get(name="planes").state == "ACTIVE"


def test_link_is_paused_and_resumed_with_the_button(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)

    for verb, state in (("Pause", "Paused"), ("Resume", "Active")):
        page.locator("#pause-link").click()
        page.get_by_role("button", name=f"{verb} link").click()
        expect(page.locator(".page-head .api-state")).to_have_text(f"State {state}")

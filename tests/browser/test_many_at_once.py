"""Several topics at once in a real browser: selection bar, chips, and the page of an operation, with and without scripts."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from playwright.sync_api import expect

from console.mirrors import bulk_actions
from console.models import BulkOperation, ClusterLink, MirrorTopic, SourceTopic
from console.queue import dispatch
from linkengine.domain.states import MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData, make_mirror
from tests.browser.page_fixtures import OPERATION
from tests.browser.test_accessibility import EVERYTHING, _run
from tests.browser.test_journeys import sign_in

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs: ``work`` does what a worker would."""
    monkeypatch.setattr(dispatch, "send", lambda _name, **_values: None)


def work() -> BulkOperation:
    """Carry out the newest operation."""
    operation = BulkOperation.objects.latest("requested_at")
    while bulk_actions.carry_out(operation, check_clusters=lambda mirrors: [None] * len(mirrors), now=timezone.now()):
        pass
    return operation


def picked(page: Any) -> Any:
    return page.locator("#picked")


def test_bar_counts_the_selection_and_keeps_it_during_live_updates(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(page_data.link_url)
    expect(picked(page)).to_have_text("0 selected")

    page.check(f"#pick-{page_data.mirrors['planes'].pk}")
    page.check(f"#pick-{page_data.mirrors['flights'].pk}")
    expect(picked(page)).to_have_text("2 selected")
    MirrorTopic.objects.filter(pk=page_data.mirrors["planes"].pk).update(state=MirrorState.PAUSED)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)
    expect(page.locator(f"#mirror-{page_data.mirrors['planes'].pk} .badge-state").first).to_have_text("Paused")

    expect(picked(page)).to_have_text("2 selected")
    page.locator("#pick-page").check()
    expect(picked(page)).to_have_text(f"{len(page_data.mirrors)} selected")


def test_bar_selects_all_topics_that_match_and_stays_in_sight(page_data: PageData, visits: Visits) -> None:
    for number in range(60):
        make_mirror(page_data.link, f"radar-{number:02}", MirrorState.ACTIVE, now=page_data.now)
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}?q=radar")

    page.get_by_label("Select all 60 that match").check()
    expect(picked(page)).to_have_text("60 selected")
    page.mouse.wheel(0, 4_000)
    expect(page.locator("#bulk-pause")).to_be_in_viewport()
    page.locator("#bulk-pause").click()

    expect(page.get_by_role("heading", name="Pause 60 mirror topics?")).to_be_visible()
    expect(page).to_have_url(f"{visitor.base_url}{page_data.link_url}bulk/")
    assert visitor.errors == []


def test_operation_is_updated_live_and_is_the_same_after_a_reload(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(page_data.link_url)
    page.check(f"#pick-{page_data.mirrors['flights'].pk}")
    page.check(f"#pick-{page_data.mirrors['planes'].pk}")
    page.locator("#bulk-pause").click()
    page.get_by_role("button", name="Pause 2 topics").click()
    expect(page.get_by_role("heading", name="Pause 2 mirror topics")).to_be_visible()
    expect(page.get_by_text("0 of 2 topics processed")).to_be_visible()

    operation = work()

    expect(page.get_by_text("2 of 2 topics processed")).to_be_visible()
    expect(page.locator("h1 + span")).to_have_text("Finished")
    page.reload()
    expect(page.get_by_text("2 of 2 topics processed")).to_be_visible()
    expect(page).to_have_url(f"{visitor.base_url}/operations/{operation.pk}/")
    assert visitor.errors == []


def test_several_topics_are_chosen_as_chips(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}mirrors/new/")
    combobox = page.locator("input[role=combobox]")

    def choose(name: str) -> None:
        combobox.click()
        combobox.press_sequentially(name)
        page.get_by_role("option", name=f"{name} (").click()

    choose("fares")
    choose("fleet")
    expect(page.locator(".ts-control .item")).to_have_count(2)
    findings = _run(page, EVERYTHING, "chips")
    page.locator(".ts-control .item .remove").first.click()
    expect(page.locator(".ts-control .item")).to_have_count(1)
    choose("fares")

    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.get_by_role("heading", name="Add 2 mirror topics")).to_be_visible()
    assert not findings, "\n".join(findings)
    assert visitor.errors == []


def test_the_list_of_topics_stays_closed_after_a_quick_choice(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(f"{page_data.link_url}mirrors/new/")
    combobox = page.locator("input[role=combobox]")
    combobox.click()
    combobox.press_sequentially("fare")
    expect(page.get_by_role("option")).to_have_count(1)

    combobox.press("s")
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)  # longer than the combobox delays a search by default

    expect(page.locator(".ts-control .item")).to_have_count(1)
    expect(page.get_by_role("option")).to_have_count(0)
    page.get_by_role("button", name="Add", exact=True).click(trial=True)  # is not covered


def test_source_topics_are_selected_and_added_without_javascript(page_data: PageData, visits: Visits) -> None:
    for name in ("radar-1", "radar-2"):
        SourceTopic.objects.create(link=page_data.link, name=name, partitions=1, seen_at=page_data.now)
    visitor = visits.start(scripts=False)
    page = visitor.open(f"{page_data.link_url}topics/?q=radar")
    sign_in(page)

    page.get_by_label("Select radar-1").check()
    page.get_by_label("Select radar-2").check()
    page.locator("#mirror-selected").click()
    page.get_by_role("button", name="Add", exact=True).click()
    work()
    page.reload()

    expect(page.get_by_role("heading", name="Add 2 mirror topics")).to_be_visible()
    expect(page.get_by_text("2 of 2 topics processed")).to_be_visible()


def test_topics_are_failed_over_and_deleted_without_javascript(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(scripts=False)
    page = visitor.open(page_data.link_url)
    sign_in(page)
    expect(page.locator("#bulk")).to_be_visible()
    for verb, state in (("failover", "PENDING_STOPPED"), ("delete", "PENDING_STOPPED")):
        visitor.open(page_data.link_url)
        for name in ("flights", "planes"):
            page.check(f"#pick-{page_data.mirrors[name].pk}")
        if verb == "delete":
            page.locator("#bulk-more summary").click()
        page.locator(f"#bulk-{verb}").click()
        page.get_by_label("Type the link name west-to-east to confirm").fill("west-to-east")
        page.locator(".panel-foot button[type=submit]").click()
        expect(page.get_by_text("0 of 2 topics processed")).to_be_visible()

        work()

        assert set(MirrorTopic.objects.filter(name__in=["flights", "planes"]).values_list("state", flat=True)) == {state}
    assert MirrorTopic.objects.exclude(deletion_requested_at=None).filter(name__in=["flights", "planes"]).count() == 2


def test_waiting_topics_are_canceled(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin).open(f"/operations/{OPERATION}/")

    page.get_by_role("button", name="Cancel 1 waiting topic").click()

    expect(page.get_by_text("1 topic canceled.")).to_be_visible()
    expect(page.locator("h1 + span")).to_have_text("Canceled")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_menu_and_confirmation_pass_axe(page_data: PageData, visits: Visits, theme: str, width: int) -> None:
    page = visits.start(page_data.admin, theme=theme, width=width).open(page_data.link_url)
    page.check(f"#pick-{page_data.mirrors['flights'].pk}")
    page.locator("#bulk-more summary").click()
    findings = _run(page, EVERYTHING, "menu")
    page.locator("#bulk-delete").click()
    expect(page.get_by_role("heading", name="Delete 1 mirror topic?")).to_be_visible()

    findings += _run(page, EVERYTHING, "confirmation")

    assert not findings, "\n".join(findings)

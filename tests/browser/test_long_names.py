"""Names of maximum length: no horizontal overflow, and names to type are readable."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from console.models import Cluster, ClusterLink, SourceTopic, SyncedAcl
from linkengine.domain.acls import AclStatus
from linkengine.domain.states import MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import EAST, PageData, make_link, make_mirror

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NAME = ("ordersofthelastsevenyearsbyairportandairline" * 6)[:240]
LINK = f"/links/{EAST}/{NAME}/"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INSIDE = """element => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const [text, frame] = [range.getBoundingClientRect(), element.closest("dialog, .panel, td").getBoundingClientRect()];
  return text.left >= frame.left && text.right <= frame.right;
}"""
CUT_OFF = (
    "all => all.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.getAttribute('aria-label') || 'table')"
)


@pytest.fixture
def long(page_data: PageData) -> PageData:
    Cluster.objects.filter(pk=page_data.west.pk).update(name=NAME[:120])
    link = make_link(page_data.west, page_data.east, NAME, page_data.now)
    mirror = make_mirror(link, NAME, MirrorState.ACTIVE, lag=7, now=page_data.now)
    mirror.partitions.update(source_end=123_456_789_012_345, last_high_watermark=123_456_789_012_345)
    SourceTopic.objects.create(link=link, name=NAME, partitions=1, seen_at=page_data.now)
    _add_acl(link, page_data)
    return page_data


def _add_acl(link: ClusterLink, page_data: PageData) -> None:
    rule = {"pattern_type": "LITERAL", "host": "*", "operation": "READ", "permission": "ALLOW"}
    of = {"resource_type": "TOPIC", "resource_name": NAME, "principal": f"User:CN={NAME}"}
    SyncedAcl.objects.create(link=link, status=next(iter(AclStatus)), since=page_data.now, **rule, **of)


def _pages() -> tuple[str, ...]:
    tabs = ("", "topics/", "acls/", "configuration/", "tasks/", "delete/", "mirrors/new/", "activity/")
    mirror = f"{LINK}mirrors/{NAME}/"
    return (
        "/links/",
        "/topics/",
        "/environments/production/",
        *(f"{LINK}{tab}" for tab in tabs),
        mirror,
        f"{mirror}failover/",
    )


@pytest.mark.parametrize(("width", "language"), [(1280, "en"), (390, "ja")])
def test_long_names_cause_no_horizontal_overflow(long: PageData, visits: Visits, width: int, language: str) -> None:
    visitor = visits.start(long.admin, width=width, language=language)

    too_wide = [page for page in _pages() if visitor.open(page).evaluate(OVERFLOW) > 0]

    assert too_wide == []


@pytest.mark.parametrize(("width", "language"), [(1280, "en"), (390, "ja")])
def test_tables_with_long_names_are_not_cut_off(long: PageData, visits: Visits, width: int, language: str) -> None:
    visitor = visits.start(long.admin, width=width, language=language)

    for address in ("/links/", "/topics/", "/environments/production/", LINK, f"{LINK}acls/"):
        cut = visitor.open(address).eval_on_selector_all(".table-wrap", CUT_OFF)
        assert cut == [], address


@pytest.mark.parametrize(("width", "language"), [(1280, "en"), (390, "ja")])
def test_name_to_type_fits_in_the_dialog(long: PageData, visits: Visits, width: int, language: str) -> None:
    page = visits.start(long.admin, width=width, language=language).open(f"{LINK}mirrors/{NAME}/")
    page.click("#do-failover")
    page.wait_for_selector("dialog[open] #confirm-name")

    assert page.eval_on_selector("dialog label .mono", INSIDE)


def test_narrow_list_of_links_shows_mirrors_that_are_not_copied(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, width=390).open("/links/")

    row = page.locator("tr", has=page.get_by_role("link", name="west-to-east"))
    expect(row.get_by_text(re.compile(r"\d not copying"))).to_be_visible()


def test_narrow_audit_log_shows_the_request_id(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, width=390).open("/audit/")
    page.get_by_text("Show").first.click()

    expect(page.get_by_text("0123456789abcdef").first).to_be_visible()


def test_copy_button_does_not_cover_the_text(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, width=390).open("/access/api-keys/")
    page.locator("#description").fill("demo")
    page.get_by_role("button", name="Create API key").click()

    secret = page.get_by_role("region", name="secret")
    assert secret.evaluate(_UNCOVERED)


_UNCOVERED = """text => {
  const range = document.createRange();
  range.selectNodeContents(text);
  const button = text.parentElement.querySelector("button").getBoundingClientRect();
  return [...range.getClientRects()].every(line => line.right <= button.left || line.top >= button.bottom);
}"""


def test_header_checkbox_selects_all_topics_of_the_page(page_data: PageData, visits: Visits) -> None:
    page: Page = visits.start(page_data.admin).open(page_data.link_url)
    boxes = page.locator("input[name=mirror]")

    page.locator("#pick-page").check()
    assert boxes.evaluate_all("all => all.every(box => box.checked)")

    page.locator("#pick-page").uncheck()
    assert boxes.evaluate_all("all => all.every(box => !box.checked)")

"""Polling: 204 while nothing changes, and a warning if the copy workers stop reporting."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.models import ClusterLink, Drill, MirrorPartition, MirrorTopic, RoleBinding
from tests.browser.addresses import TABS
from tests.browser.page_data import EAST, PageData
from tests.console.pages.conftest import Queue, check, htmx

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def seen_in(text: str) -> str:
    found = re.search(r'name="seen" value="([^"]+)"', text)
    assert found
    return found[1]


LIVE = ("tasks/", "groups/", "acls/", "failover/", "stops/", "drills/", "readiness/", "activity/")  # tabs of a link
# Tabs of a link that poll their heading; those with a form or with charts do not poll the rest.
HEADS = ("history/", "topics/", "topics/flights/", "filters/", "configuration/", "stops/", "drills/")


@pytest.mark.parametrize("page", ["", *LIVE, "mirrors/flights/", *(f"mirrors/flights/{tab}/" for tab in TABS)])
def test_poll_returns_204_until_something_changes(page_data: PageData, admin: Client, page: str) -> None:
    address = f"{page_data.link_url}{page}"
    seen = seen_in(admin.get(address).content.decode())

    quiet = admin.get(address, {"seen": seen}, **htmx("live"))
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)
    moved = admin.get(address, {"seen": seen}, **htmx("live"))

    assert quiet.status_code == 204
    assert quiet.content == b""
    assert moved.status_code == 200
    assert seen_in(moved.content.decode()) != seen


@pytest.mark.parametrize("tab", HEADS)
def test_poll_of_a_heading_returns_the_heading_only_when_something_changes(
    page_data: PageData, admin: Client, tab: str
) -> None:
    address = f"{page_data.link_url}{tab}"
    page = admin.get(address).content.decode()
    (region,) = re.findall(r'<div id="head" [^>]*>', page)
    assert 'hx-include="#seen-head"' in region

    with CaptureQueriesContext(connection) as queries:
        quiet = admin.get(address, {"seen": seen_in(page)}, **htmx("head"))
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1, state="PAUSED")
    with CaptureQueriesContext(connection) as more:
        moved = admin.get(address, {"seen": seen_in(page)}, **htmx("head"))

    assert quiet.status_code == 204
    assert len(queries) <= 4  # session, user, roles, link
    text = moved.content.decode()
    assert len(more) <= 9  # those, tasks, failing tasks, mirrors, partitions
    assert text.count("<h1>") == 1
    assert 'title="PAUSED"' in text
    assert f'href="{address}" aria-current="page"' in text or tab == "topics/flights/"
    assert re.findall(r"<(?:form|select|textarea|table|main)", text) == []
    assert re.findall(r"<input [^>]*>", text) == [f'<input type="hidden" id="seen-head" name="seen" value="{seen_in(text)}">']


def test_review_of_a_failover_polls_its_heading(page_data: PageData, admin: Client) -> None:
    review = admin.post(f"{page_data.link_url}failover/", {"mirror": "flights"}).content.decode()

    assert 'id="confirm"' in review
    assert '<div id="head" hx-get="" hx-trigger="every 2s"' in review
    assert "<h1>west-to-east</h1>" in admin.get(f"{page_data.link_url}failover/", **htmx("head")).content.decode()


def test_open_list_of_mirror_topics_shows_a_failed_mirror(page_data: PageData, admin: Client) -> None:
    MirrorTopic.objects.exclude(name="flights").delete()
    assert 'title="FAILED"' not in admin.get("/topics/", **htmx("live")).content.decode()
    MirrorTopic.objects.update(state="FAILED")

    with CaptureQueriesContext(connection) as queries:
        part = admin.get("/topics/", {"q": "fl"}, **htmx("live"))

    assert 'title="FAILED"' in part.content.decode()
    assert len(queries) <= 10


def test_page_after_a_refused_action_polls_the_address_of_the_page(page_data: PageData, admin: Client) -> None:
    drill = Drill.objects.create(
        link=page_data.link, status="PASSED", requested_by="amelia", requested_at=page_data.now, status_since=page_data.now
    )
    address = f"{page_data.link_url}drills/"

    refused = admin.post(f"{address}{drill.pk}/cancel/")

    assert refused.status_code == 409
    regions = re.findall(r'<div id="(?:head|live)" hx-get="([^"]*)"', refused.content.decode())
    assert regions == [address, address]  # a GET of the address of the action is a 405


@pytest.mark.parametrize("page", ["/topics/", "/environments/production/", "link:activity/", "link:groups/"])
def test_rows_of_a_polled_list_have_ids(page_data: PageData, admin: Client, page: str) -> None:
    """A row is matched by its id, so that focus and open details stay with it when the order changes."""
    text = admin.get(page.replace("link:", page_data.link_url), **htmx("live")).content.decode()

    bodies = "".join(re.findall(r"<tbody>.*?</tbody>", re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL), re.DOTALL))
    rows = re.findall(r"<tr[^>]*>", bodies)
    assert len(rows) > 1
    assert [row for row in rows if ' id="' not in row] == []


def test_poll_of_a_cluster_leaves_topics_and_test_result_as_they_are(page_data: PageData, admin: Client, queue: Queue) -> None:
    address = f"/clusters/{EAST}/"
    queue.response = [check("DNS", finding="Resolved.")]
    tested = admin.post(f"{address}test/").content.decode()
    assert f'<div id="live" hx-get="{address}"' in tested  # not the address of the test, which takes a POST only
    kept = tested.index('<div id="tested" data-kept>')

    with CaptureQueriesContext(connection) as queries:
        part = admin.get(address, **htmx("live")).content.decode()

    assert kept < tested.index('id="checklist"') < tested.index("Links to this cluster")
    assert re.search(r'<div id="tested" data-kept>\s*</div>', part)
    assert "Links to this cluster" in part
    assert "console_sourcetopic" not in "".join(query["sql"] for query in queries.captured_queries)


def test_readiness_is_loaded_again_while_a_page_is_open(page_data: PageData, admin: Client) -> None:
    for tab in ("failover/", "stops/", "drills/"):
        assert re.search(
            r'id="readiness" [^>]* hx-trigger="load, every 10s"', admin.get(f"{page_data.link_url}{tab}").content.decode()
        )
    part = admin.get(f"{page_data.link_url}readiness/", **htmx("readiness")).content.decode()
    assert "<section" not in part  # the content of the section, which keeps its attributes
    assert 'id="readiness-title"' in part


INCLUDE = re.compile(r'{% include "([^"]+)"')
# Health, readiness, and the state of a link, mirror topic or cluster. The table of links and the rows of mirrors include these.
STATE = re.compile(
    r"parts/health\.html|parts/state_tag\.html"
    r"|badge=(?:\w+\.)*(?:(?:health|readiness|mirror|pair)\.badge|mirror_badge|state_badge)"
)
POLLED = re.compile(r'<(?:div|section) [^>]*id="(\w+)"[^>]* hx-trigger="every [12]s"')
# (page, partial that shows states): why it is not polled
NOT_POLLED = {
    ("links/topics.html", "links/topics.html"): "topics are selected here to be mirrored; the heading is polled",
    ("links/topic.html", "links/topic.html"): "the checks are those of one topic at the request; the heading is polled",
    ("links/failover_review.html", "mirrors/state.html"): "a confirmation, with the time of its figures; the heading is polled",
    (
        "links/delete.html",
        "links/delete.html",
    ): "a confirmation; mirror topics that keep the link are read again when it is submitted",
    ("mirrors/operate.html", "mirrors/operate.html"): "a confirmation; an operation that the state does not allow is refused",
    (
        "mirrors/operate_many.html",
        "mirrors/state.html",
    ): "a confirmation; an operation that the state does not allow is refused",
    ("mirrors/refused.html", "mirrors/refused.html"): "why an operation was refused in this state",
    ("search.html", "search.html"): "the states at the time of the search; results are addresses, without health",
}


def unpolled_states(page: str) -> set[tuple[str, str]]:
    """Return (page, template) for each template of a page that shows a state outside the regions that the page polls."""
    found: set[tuple[str, str]] = set()

    def walk(name: str, polled: bool) -> None:
        text = (TEMPLATES / name).read_text()
        regions, open_regions = set(POLLED.findall(text)), []
        for tag in re.finditer(r"{%.*?%}", text):
            if begun := re.match(r"{% partialdef (\w+)( inline)? %}", tag[0]):
                open_regions.append(begun[1] in regions)
            elif tag[0] == "{% endpartialdef %}":
                open_regions.pop()
            within = polled or any(open_regions)
            if STATE.search(tag[0]) and not within:
                found.add((page, name))
            for included in INCLUDE.findall(tag[0]):
                walk(included, within)

    walk(page, polled=False)
    return found


def test_every_page_with_states_polls_them_at_least_every_two_seconds() -> None:
    pages = [
        str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.html") if '{% extends "base.html"' in path.read_text()
    ]

    assert set().union(*map(unpolled_states, pages)) == set(NOT_POLLED)


@pytest.mark.parametrize("target", ["live", "history"])
def test_poll_of_a_deleted_mirror_reloads_the_page(page_data: PageData, admin: Client, target: str) -> None:
    address = page_data.mirror_url("flights")
    assert "HX-Refresh" not in admin.get(address, **htmx(target)).headers

    page_data.mirrors["flights"].delete()

    response = admin.get(address, **htmx(target))
    assert (response.status_code, response["HX-Refresh"]) == (404, "true")
    assert "HX-Refresh" not in admin.get(address).headers  # the 404 page itself does not reload


def test_poll_without_permission_reloads_the_page(page_data: PageData, reader: Client) -> None:
    RoleBinding.objects.filter(user=page_data.reader).delete()

    assert reader.get(page_data.link_url, **htmx("live"))["HX-Refresh"] == "true"


def test_denied_dialog_does_not_reload_the_page(page_data: PageData, reader: Client) -> None:
    response = reader.get(f"{page_data.mirror_url('flights')}pause/", **htmx("dialog"))

    assert response.status_code == 403
    assert "HX-Refresh" not in response.headers


@pytest.mark.parametrize("page", ["", "mirrors/flights/", "mirrors/flights/lineage/"])
def test_unchanged_poll_needs_four_queries(page_data: PageData, admin: Client, page: str) -> None:
    address = f"{page_data.link_url}{page}"
    seen = seen_in(admin.get(address).content.decode())

    with CaptureQueriesContext(connection) as queries:
        admin.get(address, {"seen": seen}, **htmx("live"))

    assert len(queries) <= 4  # session, user, roles, link or mirror


def test_unchanged_page_is_refreshed_every_few_seconds(page_data: PageData, admin: Client) -> None:
    versions, at = seen_in(admin.get(page_data.link_url).content.decode()).rsplit(":", 1)

    response = admin.get(page_data.link_url, {"seen": f"{versions}:{int(at) - 6}"}, **htmx("live"))

    assert response.status_code == 200


@pytest.mark.parametrize("seen", ["", "x", ":", "1:2:3", "0:99999999999999999999999"])
def test_invalid_seen_token_is_accepted(page_data: PageData, admin: Client, seen: str) -> None:
    assert admin.get(page_data.link_url, {"seen": seen}, **htmx("live")).status_code in {200, 204}


def test_reload_returns_the_page_even_if_unchanged(page_data: PageData, admin: Client) -> None:
    seen = seen_in(admin.get(page_data.link_url).content.decode())

    assert admin.get(page_data.link_url, {"seen": seen}).status_code == 200


def test_unknown_lag_is_a_dash(page_data: PageData, admin: Client) -> None:
    MirrorPartition.objects.update(source_end=None)

    text = admin.get(page_data.link_url).content.decode()

    tile = text.split("<dt>Max lag</dt>")[1].split("</dd>")[0]
    assert "\N{EN DASH}" in tile
    assert ">0<" not in tile


def test_filter_does_not_change_the_tiles(page_data: PageData, admin: Client) -> None:
    text = admin.get(f"{page_data.link_url}?q=flights").content.decode()

    assert text.count('class="wide-name') + text.count("wide-name") >= 1
    assert ">planes</a>" not in text
    assert re.search(r"<dt>Mirror topics</dt>\s*<dd>13", text)


@pytest.mark.parametrize(("waited_s", "shown"), [(3, False), (60, True)])
def test_mirror_page_shows_offsets_held_back_by_an_open_transaction(
    page_data: PageData, admin: Client, waited_s: int, shown: bool
) -> None:
    rows = MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"])
    rows.update(source_end=F("mirror_end"), last_high_watermark=F("mirror_end"), last_source_seen_at=timezone.now())
    since = timezone.now() - timedelta(seconds=waited_s)
    rows.filter(partition=1).update(last_high_watermark=F("source_end") + 49_000, caught_up_at=since)

    text = admin.get(page_data.mirror_url("flights")).content.decode()

    assert ("49,000 offsets held back by an open transaction." in text) is shown
    assert ("find-hanging --topic flights --partition 1" in text) is shown
    assert "49,000" in admin.get(f"{page_data.mirror_url('flights')}failover/").content.decode()

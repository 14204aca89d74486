"""Polling: 204 while nothing changes, and a warning if the copy workers stop reporting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import time_machine
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.models import Cluster, ClusterLink, Drill, Environment, MirrorPartition, MirrorTopic, RoleBinding
from console.models.links import show_change
from linkengine.coordination.client import client_for
from tests.browser.addresses import TABS
from tests.browser.page_data import EAST, WEST, PageData
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
def test_poll_returns_204_until_something_changes(page_data: PageData, steady: None, admin: Client, page: str) -> None:
    address = f"{page_data.link_url}{page}"
    seen = seen_in(admin.get(address).content.decode())

    quiet = admin.get(address, {"seen": seen}, **htmx("live"))
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)
    moved = admin.get(address, {"seen": seen}, **htmx("live"))

    assert quiet.status_code == 204
    assert quiet.content == b""
    assert moved.status_code == 200
    assert seen_in(moved.content.decode()) != seen


LISTS = ("/environments/", "/environments/?tab=links", "/environments/production/", f"/clusters/{EAST}/", "/links/", "/topics/")


def poll(client: Client, page: str, seen: str) -> int:
    """Return the status of a poll of a page that has shown ``seen``."""
    return client.get(page, {**dict(parse_qsl(urlsplit(page).query)), "seen": seen}, **htmx("live")).status_code


def shown(client: Client, page: str) -> str:
    return seen_in(client.get(page).content.decode())


@pytest.fixture
def steady(page_data: PageData) -> Iterator[None]:
    """Report on all partitions, set states that no rule compares with the time, and stop the clock: no health changes."""
    with time_machine.travel(timezone.now(), tick=False):
        now, before = timezone.now(), timezone.now() - timedelta(hours=1)
        ClusterLink.objects.update(state_since=before, engine_error="")
        MirrorTopic.objects.update(state_since=before)
        reported = {"observed_at": now, "last_source_seen_at": now, "caught_up_at": now, "last_high_watermark": F("mirror_end")}
        MirrorPartition.objects.update(source_end=F("mirror_end"), phase="COPYING", bytes_per_s=0.0, **reported)
        yield


def change_link(page_data: PageData) -> None:
    show_change(page_data.link.pk)


def end_link(page_data: PageData) -> None:
    MirrorTopic.objects.filter(link=page_data.link).delete()
    page_data.link.delete()


def report_news(page_data: PageData) -> None:
    """Count a piece of news, as a copy worker does whose partition fails."""
    client_for(settings.REDIS_URL).hincrby(f"progress:{page_data.link.link_uuid.hex}", "news", 1)


def rename_source(page_data: PageData) -> None:
    Cluster.objects.filter(links_out=page_data.link).update(name="renamed")


CHANGES: dict[str, Callable[[PageData], object]] = {
    "a link has changed": change_link,
    "a link was deleted": end_link,
    "a copy worker has news": report_news,
    "a cluster was renamed": rename_source,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("page", [*LISTS, f"/clusters/{WEST}/topics/flights/"])
def test_poll_of_several_links_returns_204_until_something_changes(
    page_data: PageData, steady: None, redis_url: str, admin: Client, page: str, change: Callable[[PageData], object]
) -> None:
    assert redis_url == settings.REDIS_URL
    seen = shown(admin, page)

    unchanged = poll(admin, page, seen)
    change(page_data)

    assert (unchanged, poll(admin, page, seen)) == (204, 200)


PLACES = ("/environments/", "/environments/production/", f"/clusters/{EAST}/")


@pytest.mark.parametrize(
    "fields", [{"error_code": "TIMEOUT_ERROR"}, {"probed_at": datetime(2026, 1, 1, tzinfo=UTC)}, {"brokers": 5}], ids=str
)
@pytest.mark.parametrize("page", PLACES)
def test_poll_shows_a_changed_cluster(
    page_data: PageData, steady: None, admin: Client, page: str, fields: dict[str, object]
) -> None:
    seen = shown(admin, page)

    Cluster.objects.filter(cluster_id=EAST).update(**fields)

    assert poll(admin, page, seen) == 200


def test_poll_of_environments_shows_a_new_environment(page_data: PageData, steady: None, admin: Client) -> None:
    seen = shown(admin, "/environments/")

    Environment.objects.create(
        organization=page_data.east.environment.organization, name="New", slug="new", created_at=page_data.now
    )

    assert poll(admin, "/environments/", seen) == 200


@pytest.mark.parametrize("page", LISTS)
def test_poll_shows_what_another_role_permits(page_data: PageData, steady: None, reader: Client, page: str) -> None:
    seen = shown(reader, page)
    assert poll(reader, page, seen) == 204

    place = {"cluster": page_data.east, "resource_type": "Topic", "resource_name": "flights"}
    RoleBinding.objects.create(
        user=page_data.reader, role="DeveloperManage", granted_at=page_data.now, granted_by="test", **place
    )

    assert poll(reader, page, seen) == 200


@pytest.mark.parametrize("page", [*LISTS, "link:", "link:tasks/", "link:mirrors/flights/"])
@pytest.mark.parametrize(
    "ages",
    [{"observed_at": 10}, {"last_source_seen_at": 10}, {"observed_at": 55}],
    ids=["no report for 10 s", "source not seen for 10 s", "no report for 55 s"],
)
def test_page_is_drawn_at_each_poll_while_its_health_can_change_by_time_alone(
    page_data: PageData, steady: None, admin: Client, page: str, ages: dict[str, int]
) -> None:
    page = page.replace("link:", page_data.link_url)
    seen = shown(admin, page)
    now = timezone.now()
    with time_machine.travel(now + timedelta(seconds=1.6), tick=False):
        assert poll(admin, page, seen) == 204

    partitions = MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"])
    partitions.update(**{name: now - timedelta(seconds=age) for name, age in ages.items()})
    seen = shown(admin, page)

    with time_machine.travel(timezone.now() + timedelta(seconds=1.6), tick=False):
        assert poll(admin, page, seen) == 200


@pytest.mark.parametrize("page", LISTS)
def test_unchanged_poll_of_several_links_reads_neither_mirrors_nor_partitions(
    page_data: PageData, steady: None, admin: Client, page: str
) -> None:
    seen = shown(admin, page)

    with CaptureQueriesContext(connection) as queries:
        assert poll(admin, page, seen) == 204

    assert len(queries) <= 6  # session, user, roles, environments, clusters, links
    assert [query for query in queries.captured_queries if "console_mirror" in query["sql"]] == []


@pytest.mark.parametrize("page", LISTS)
def test_other_language_is_shown_by_the_next_poll(page_data: PageData, steady: None, admin: Client, page: str) -> None:
    seen = shown(admin, page)

    in_japanese = admin.get(page, {"seen": seen}, **htmx("live", **{"Accept-Language": "ja"}))

    assert (poll(admin, page, seen), in_japanese.status_code) == (204, 200)


@pytest.mark.parametrize("tab", HEADS)
def test_poll_of_a_heading_returns_the_heading_only_when_something_changes(
    page_data: PageData, steady: None, admin: Client, tab: str
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
STATE = re.compile(r"parts/health\.html|{% (?:health_state|state_tag) |badge[ =](?:\w+\.)*(?:health|readiness)\.badge")
POLLED = re.compile(r'<(?:div|section) [^>]*id="(\w+)"[^>]* hx-trigger="every [12]s"')
# (page, partial that shows states): why it is not polled
NOT_POLLED = {
    ("links/topics.html", "links/topics.html"): "topics are selected here to be mirrored; the heading is polled",
    ("links/topic.html", "links/topic.html"): "the checks are those of one topic at the request; the heading is polled",
    (
        "links/failover_review.html",
        "mirrors/state.html",
    ): "a confirmation, with the time of its figures; the heading is polled",
    (
        "links/delete.html",
        "mirrors/state.html",
    ): "a confirmation; mirror topics that keep the link are read again when it is submitted",
    (
        "mirrors/operate.html",
        "mirrors/operate.html",
    ): "a confirmation; an operation that the state does not allow is refused",
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
def test_unchanged_poll_needs_four_queries(page_data: PageData, steady: None, admin: Client, page: str) -> None:
    address = f"{page_data.link_url}{page}"
    seen = seen_in(admin.get(address).content.decode())

    with CaptureQueriesContext(connection) as queries:
        admin.get(address, {"seen": seen}, **htmx("live"))

    assert len(queries) <= 4  # session, user, roles, link or mirror


@pytest.mark.parametrize(
    "page", ["", "tasks/", "groups/", "acls/", "drills/", "stops/", "failover/", "readiness/", "activity/", "mirrors/flights/"]
)
def test_poll_that_finds_a_change_needs_ten_queries_at_most(
    page_data: PageData, steady: None, admin: Client, page: str
) -> None:
    address = f"{page_data.link_url}{page}"
    seen = seen_in(admin.get(address).content.decode())
    show_change(page_data.link.pk)

    with CaptureQueriesContext(connection) as queries:
        response = admin.get(address, {"seen": seen}, **htmx("live"))

    assert response.status_code == 200
    assert len(queries) <= 10


def test_unchanged_page_is_refreshed_every_few_seconds(page_data: PageData, steady: None, admin: Client) -> None:
    for page in (page_data.link_url, *LISTS):
        versions, until_ms = shown(admin, page).split(":")

        assert poll(admin, page, f"{versions}:{until_ms}") == 204
        assert poll(admin, page, f"{versions}:{int(until_ms) - 6_000}") == 200


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

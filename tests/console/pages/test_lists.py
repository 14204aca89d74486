"""Paginated lists: each row is on one page, links keep the filter, and the number of queries is constant."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.mirrors import tab_pages
from console.models import AuditEvent, ClampedOffset, Drill, RestoreRun, StopReport
from console.web.lists import PAGE_SIZE
from linkengine.domain.states import MirrorState
from tests.browser.page_data import Scene, make_mirror
from tests.console.pages.conftest import htmx

MANY = 2 * PAGE_SIZE + 7


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def walk(client: Client, address: str) -> list[str]:
    """Open a page and all following pages by their Next links."""
    pages = [read(client, address)]
    while found := re.search(r'href="([^"]+)">Next<', pages[-1]):
        assert len(pages) < 20, "Next does not end"
        pages.append(read(client, html.unescape(found[1])))
    return pages


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        read(client, address)
    return len(asked)


def add_events(scene: Scene, *, action: str = "PauseMirrorTopic") -> None:
    path = f"cluster/{scene.east.cluster_id}/link/{scene.link.name}/mirror/topic"
    AuditEvent.objects.bulk_create(
        AuditEvent(at=scene.now - timedelta(days=1, seconds=n), actor=f"<{n}>", action=action, resource=path, result="SUCCESS")
        for n in range(MANY)
    )


def add_stops(scene: Scene) -> None:
    at = scene.now - timedelta(days=9)
    for number in range(MANY):
        mirror = make_mirror(scene.link, f"stopped-{number:03}.", MirrorState.STOPPED, now=scene.now)
        moment = at - timedelta(minutes=number)
        report = StopReport.objects.create(
            mirror=mirror, reason="failover", requested_by="amelia", requested_at=moment, writable_at=moment, rto_ms=1
        )
        stop = {"stopping_since": moment, "at": moment, "source_offset": 9, "before": 9, "after": 8}
        ClampedOffset.objects.create(mirror=mirror, report=report, group=f"group-{number:03}.", partition=0, **stop)


def events_on(pages: list[str]) -> list[str]:
    return re.findall(r'<td class="only-wide name">&lt;(\d+)&gt;</td>', "".join(pages))


@pytest.mark.parametrize("address", ["/audit/", "{link}activity/"])
def test_each_event_is_on_exactly_one_page(admin: Client, scene: Scene, address: str) -> None:
    add_events(scene)

    pages = walk(admin, address.format(link=scene.link_url))

    assert [len(re.findall("<tr>", page)) - 1 for page in pages][:2] == [PAGE_SIZE, PAGE_SIZE]
    assert events_on(pages) == [str(number) for number in range(MANY)]
    total = MANY + AuditEvent.objects.filter(actor__in=("amelia", "bessie")).count() - ("activity" in address)
    assert f"1 to {PAGE_SIZE} of {total}" in pages[0]
    assert f"{2 * PAGE_SIZE + 1} to {total} of {total}" in pages[-1]


def test_next_page_keeps_the_filter_and_shows_its_total(admin: Client, scene: Scene) -> None:
    add_events(scene)

    pages = walk(admin, "/audit/?q=mirror&action=PauseMirrorTopic&result=SUCCESS")

    assert events_on(pages) == [str(number) for number in range(MANY)]
    assert f"{MANY} events" in pages[0]
    assert all("<option selected>PauseMirrorTopic</option>" in page for page in pages)


def test_action_filter_offers_actions_of_all_events(admin: Client, scene: Scene) -> None:
    add_events(scene)
    AuditEvent.objects.create(
        at=scene.now - timedelta(days=400), actor="amelia", action="LongAgo", resource="organization/Skyways", result="SUCCESS"
    )

    assert "<option>LongAgo</option>" in read(admin, "/audit/?action=PauseMirrorTopic")


def test_each_failover_report_is_on_exactly_one_page_with_its_groups(admin: Client, scene: Scene) -> None:
    add_stops(scene)

    pages = walk(admin, f"{scene.link_url}stops/")

    assert len(pages) == 3
    assert re.findall(r">stopped-(\d+)\.</a>", "".join(pages)) == [f"{number:03}" for number in range(MANY)]
    assert re.findall(r">group-(\d+)\.</a>", "".join(pages)) == [f"{number:03}" for number in range(MANY)]
    assert all(f"{MANY + 1} reports" in page and "Stopped mirrors" in page for page in pages)


def test_json_of_failover_reports_has_all_pages(admin: Client, scene: Scene) -> None:
    add_stops(scene)

    answer = admin.get(f"{scene.link_url}stops/?page=2&format=json").json()

    assert (answer["stops"], len(answer["data"])) == (MANY + 1, MANY + 1)
    assert (answer["data"][0]["mirror_topic_name"], answer["data"][-1]["mirror_topic_name"]) == ("gates", "stopped-106.")


@pytest.mark.parametrize(
    "address", ["/audit/", "{link}activity/", "{link}stops/", "{link}drills/", "{link}mirrors/lounges/restores/"]
)
def test_more_rows_need_no_more_queries(admin: Client, scene: Scene, address: str) -> None:
    address = address.format(link=scene.link_url)
    add_restores(scene, 2)
    read(admin, address)
    few = queries(admin, address)
    add_events(scene)
    add_stops(scene)
    add_drills(scene, 25)
    add_restores(scene, 25)

    assert queries(admin, address) <= few + 1  # the number of rows, which a list with a single page shows


def add_drills(scene: Scene, count: int) -> None:
    for number in range(count):
        at = scene.now - timedelta(days=number + 1)
        Drill.objects.create(
            link=scene.link, status="PASSED", status_since=at, start_spec="latest", requested_by=f"<{number}>", requested_at=at
        )


def test_each_drill_is_on_exactly_one_page(admin: Client, scene: Scene) -> None:
    add_drills(scene, 25)

    pages = walk(admin, f"{scene.link_url}drills/")

    assert [page.count('<section class="panel" aria-labelledby="drill-') - 1 for page in pages] == [10, 10, 6]
    assert re.findall(r"by &lt;(\d+)&gt;", "".join(pages)) == [str(number) for number in range(25)]
    assert "11 to 20 of 26" in pages[1]


def test_poll_returns_the_same_page_of_drills(admin: Client, scene: Scene) -> None:
    add_drills(scene, 25)

    part = admin.get(f"{scene.link_url}drills/?page=3&seen=1:1", **htmx("live")).content.decode()

    assert re.findall(r"by &lt;(\d+)&gt;", part) == ["19", "20", "21", "22", "23", "24"]
    assert "seen" not in "".join(re.findall(r'href="([^"]+)">Previous<', part))


def add_restores(scene: Scene, count: int) -> None:
    for number in range(count):
        at = scene.now - timedelta(days=number + 1)
        RestoreRun.objects.create(mirror=scene.mirrors["lounges"], requested_by=f"<{number}>", requested_at=at, exported_at=at)


def test_each_restore_is_on_exactly_one_page(admin: Client, scene: Scene) -> None:
    add_restores(scene, 25)

    pages = walk(admin, scene.mirror_url("lounges", "restores"))

    assert [page.count("no diverged records to export") for page in pages] == [10, 10, 5]
    assert re.findall(r"by &lt;(\d+)&gt;:", "".join(pages)) == [str(number) for number in range(25)]
    assert 'restores=2#restores">Next<' in pages[0]


@pytest.mark.parametrize("number", ["999", "0", "-1", "x", "9" * 5_000])
def test_invalid_page_number_shows_an_existing_page(admin: Client, scene: Scene, number: str) -> None:
    add_events(scene)

    assert "of 111</span>" in read(admin, f"/audit/?page={number}")


def test_tabs_of_a_mirror_refer_to_older_transitions_and_reports(admin: Client, scene: Scene) -> None:
    mirror, notes = scene.mirrors["gates"], ("For older ones, use", "View all failover reports of the link")
    report = StopReport.objects.get(mirror=mirror)
    for number in range(tab_pages.REPORTS_SHOWN - 1):
        report.pk, report.writable_at = None, scene.now - timedelta(days=number + 1)
        report.save()
    for number in range(tab_pages.STEPS_SHOWN - mirror.transitions.count()):
        at = scene.now - timedelta(days=number + 3)
        mirror.transitions.create(from_state="ACTIVE", to_state="PAUSED", event="pause", by="amelia", at=at)
    tabs = [scene.mirror_url("gates", tab) for tab in ("history", "failover-reports")]
    assert not [note for note, tab in zip(notes, tabs, strict=True) if note in read(admin, tab)]

    report.pk = None
    report.save()
    mirror.transitions.create(from_state="ACTIVE", to_state="PAUSED", event="pause", by="amelia", at=scene.now)

    text = "".join(read(admin, tab) for tab in tabs)
    assert [note for note in notes if note in text] == list(notes)
    assert text.count('class="timeline"') == 1
    assert text.count("<summary>Offsets by partition") == tab_pages.REPORTS_SHOWN

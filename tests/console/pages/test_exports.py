"""CSV files: the same rows and filters as the pages, safe to open in a spreadsheet, nothing for strangers."""

from __future__ import annotations

import csv
import io

import pytest
from django.test import Client

from console.models import AuditEvent, GapRange
from tests.browser.scene import Scene
from tests.console.pages.conftest import client_of


def read(client: Client, url: str) -> list[dict[str, str]]:
    answer = client.get(url)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_mirrors_are_written_as_numbers_and_unknown_is_empty(admin: Client, scene: Scene) -> None:
    rows = {one["mirror_topic"]: one for one in read(admin, f"{scene.link_url}mirrors.csv")}

    assert len(rows) == len(scene.mirrors)
    assert (rows["bookings"]["state"], rows["bookings"]["max_lag"]) == ("SOURCE_UNAVAILABLE", "99120")
    assert (rows["hubs"]["max_lag"], rows["hubs"]["bytes_per_s"]) == ("", "")
    assert rows["delays"]["error_code"] == "SOURCE_TOPIC_MAY_BE_DELETED"


def test_mirrors_are_filtered_like_the_page(admin: Client, scene: Scene) -> None:
    found = read(admin, f"{scene.link_url}mirrors.csv?q=a&state=ACTIVE")
    assert [one["mirror_topic"] for one in found] == ["planes"]


def test_gaps_are_written(admin: Client, scene: Scene) -> None:
    rows = read(admin, f"{scene.mirror_url('flights')}gaps.csv")

    assert len(rows) == GapRange.objects.count()
    assert {"partition": "2", "start": "300", "end": "317", "offsets": "17", "reason": "LOST"}.items() <= rows[-1].items()


def test_groups_are_written_with_their_offsets(admin: Client, scene: Scene) -> None:
    (row,) = read(admin, f"{scene.link_url}groups.csv?status=IN_USE")

    assert (row["group"], row["mirror_topic"], row["source_offset"], row["goal"]) == ("app-in_use", "flights", "120", "120")
    assert len(read(admin, f"{scene.link_url}groups.csv")) > 1


def test_audit_events_are_written_and_no_cell_is_a_formula(admin: Client, scene: Scene) -> None:
    AuditEvent.objects.filter(actor="bessie").update(actor='=HYPERLINK("http://example.com")')

    rows = read(admin, "/audit/events.csv?result=DENIED")

    assert [one["action"] for one in rows] == ["OPERATE_MIRROR"]
    assert rows[0]["actor"].startswith("'=HYPERLINK")


@pytest.mark.parametrize("file", ["mirrors.csv", "groups.csv", "mirrors/flights/gaps.csv"])
def test_a_stranger_gets_no_file(scene: Scene, file: str) -> None:
    assert client_of(scene.stranger).get(f"{scene.link_url}{file}").status_code == 404
    assert Client().get(f"{scene.link_url}{file}").status_code == 302


def test_who_may_not_read_the_audit_gets_no_file(scene: Scene) -> None:
    assert client_of(scene.stranger).get("/audit/events.csv").status_code == 403

"""CSV exports: the rows and filters of the pages, safe to open in a spreadsheet, only with permission."""

from __future__ import annotations

import csv
import io

import pytest
from django.test import Client

from console.models import AuditEvent, GapRange
from tests.browser.page_data import Scene
from tests.console.pages.conftest import client_of


def read(client: Client, url: str) -> list[dict[str, str]]:
    answer = client.get(url)
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_csv_of_mirrors_has_numbers_and_empty_cells_for_unknown(admin: Client, scene: Scene) -> None:
    rows = {row["mirror_topic"]: row for row in read(admin, f"{scene.link_url}mirrors.csv")}

    assert len(rows) == len(scene.mirrors)
    assert (rows["bookings"]["state"], rows["bookings"]["max_lag"]) == ("SOURCE_UNAVAILABLE", "99120")
    assert (rows["hubs"]["max_lag"], rows["hubs"]["bytes_per_s"]) == ("", "")
    assert rows["delays"]["error_code"] == "SOURCE_TOPIC_MAY_BE_DELETED"


def test_csv_of_mirrors_applies_the_filter(admin: Client, scene: Scene) -> None:
    rows = read(admin, f"{scene.link_url}mirrors.csv?q=a&state=ACTIVE")
    assert [row["mirror_topic"] for row in rows] == ["planes"]


def test_csv_of_gaps_has_all_ranges(admin: Client, scene: Scene) -> None:
    rows = read(admin, f"{scene.mirror_url('flights')}gaps.csv")

    assert len(rows) == GapRange.objects.count()
    assert {"partition": "2", "start": "300", "end": "317", "offsets": "17", "reason": "LOST"}.items() <= rows[-1].items()


def test_csv_of_groups_has_offsets(admin: Client, scene: Scene) -> None:
    (row,) = read(admin, f"{scene.link_url}groups.csv?status=IN_USE")

    assert (row["group"], row["mirror_topic"], row["source_offset"], row["goal"]) == ("app-in_use", "flights", "120", "120")
    assert len(read(admin, f"{scene.link_url}groups.csv")) > 1


def test_csv_of_audit_events_escapes_formulas(admin: Client, scene: Scene) -> None:
    AuditEvent.objects.filter(actor="bessie").update(actor='=HYPERLINK("http://example.com")')

    rows = read(admin, "/audit/events.csv?result=DENIED")

    assert [row["action"] for row in rows] == ["OPERATE_MIRROR"]
    assert rows[0]["actor"].startswith("'=HYPERLINK")


@pytest.mark.parametrize("file", ["mirrors.csv", "groups.csv", "mirrors/flights/gaps.csv"])
def test_user_without_a_role_gets_no_csv(scene: Scene, file: str) -> None:
    assert client_of(scene.stranger).get(f"{scene.link_url}{file}").status_code == 404
    assert Client().get(f"{scene.link_url}{file}").status_code == 302


def test_csv_of_audit_events_requires_permission(scene: Scene) -> None:
    assert client_of(scene.stranger).get("/audit/events.csv").status_code == 403


def test_audit_log_and_its_csv_take_a_time_range(admin: Client, scene: Scene) -> None:
    """The events of the scene are one minute apart; the range has the second and the third."""
    newest = AuditEvent.objects.filter(detail={"reason": "an example"}).order_by("-at")
    times = [event.at.replace(second=0, microsecond=0) for event in newest]
    query = f"?from={times[2]:%Y-%m-%dT%H:%M}&to={times[0]:%Y-%m-%dT%H:%M}"

    rows = read(admin, f"/audit/events.csv{query}")
    text = admin.get(f"/audit/{query}").content.decode()

    assert [row["action"] for row in rows] == [event.action for event in newest[1:3]]
    assert "2 events" in text
    assert f"/audit/events.csv{query.replace('&', '&amp;').replace(':', '%3A')}" in text
    assert "No matching events" in admin.get("/audit/?from=2100-01-01T00:00").content.decode()
    assert "No matching events" in admin.get("/audit/?to=2000-01-01T00:00").content.decode()

"""Charts of a link and of a mirror: pictures of the server, data of the interactive charts, samples and minutes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.audit import path_of
from console.history.pages import EVENTS_SHOWN
from console.models import (
    AuditEvent,
    EndedError,
    LinkConfig,
    LinkSample,
    LinkSampleSummary,
    MirrorSample,
    StateTransition,
    StateTransitionError,
    VerifyRun,
)
from console.reconciling import transition_errors
from linkengine.domain.linkconfigs import RPO_OBJECTIVE
from tests.browser.page_data import PageData
from tests.console.pages.conftest import client_of, htmx

FIRST_LOAD = 150 * 1024  # bytes of style sheets and scripts, compressed


def data(client: Client, url: str) -> dict[str, Any]:
    response = client.get(url)
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    return dict(json.loads(response.content))


def chart(found: dict[str, Any], key: str) -> dict[str, Any]:
    return next(chart for chart in found["charts"] if chart["key"] == key)


def test_history_tab_shows_charts_with_summaries_and_tables(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.link_url}history/?span=1h").content.decode()

    assert text.count("<figure") == 3
    assert text.count('role="img"') == 3
    assert text.count("Last 1 h: minimum") == 2 * 3
    assert text.count('class="chart-line"') == 3


def test_unknown_time_range_defaults_to_one_hour(admin: Client, page_data: PageData) -> None:
    assert "Last 1 h: minimum" in admin.get(f"{page_data.link_url}history/?span=nonsense").content.decode()


def test_past_range_has_absolute_times_and_no_current_value(admin: Client, page_data: PageData) -> None:
    end = int((page_data.now - timedelta(minutes=20)).timestamp())

    text = admin.get(f"{page_data.link_url}history/?from={end - 1200}&to={end}").content.decode()

    assert "Last 1 h" not in text
    assert ", current" not in text
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC to \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: minimum", text)


def test_mirror_page_shows_two_hours_of_charts_as_a_separate_fragment(admin: Client, page_data: PageData) -> None:
    url = page_data.mirror_url("flights")
    assert "Last 2 h: minimum" in admin.get(url).content.decode()

    fragment = admin.get(url, **htmx("history")).content.decode()

    assert fragment.count("<figure") == 3
    assert "<h1" not in fragment


@pytest.mark.parametrize("path", ["mirrors/planes/", "history/?from=1600000000&to=1600007200"])
def test_picture_without_a_known_value_is_hatched_as_a_whole(admin: Client, page_data: PageData, path: str) -> None:
    text = admin.get(f"{page_data.link_url}{path}").content.decode()

    assert text.count("<figure") == 3
    assert len(re.findall(r'<rect x="0\.0" y="0" width="600\.0" height="100" fill="url\(#chart-(\w+)-hatch\)"', text)) == 3
    assert 'class="chart-line"' not in text
    assert "Show as table" not in text
    assert len(re.findall(r"(No data for the last 2 h\.|: no data\.)</p>", text)) == 3


def test_link_without_mirror_topics_has_no_charts(admin: Client, page_data: PageData) -> None:
    page_data.link.mirrors.all().delete()
    LinkSample.objects.all().delete()

    text = admin.get(f"{page_data.link_url}history/").content.decode()

    assert "<figure" not in text
    assert "No data yet" in text


def test_unknown_topic_is_reported(admin: Client, page_data: PageData) -> None:
    page = admin.get(f"{page_data.link_url}history/?topic=nothing").content.decode()
    assert "This link has no mirror topic nothing." in page
    assert "This link has no mirror topic" not in admin.get(f"{page_data.link_url}history/?topic=planes").content.decode()


@pytest.mark.parametrize(("span", "step"), [("1h", 60), ("2h", 60), ("6h", 300), ("24h", 600), ("7d", 3600), ("30d", 14_400)])
def test_series_cover_each_range(admin: Client, page_data: PageData, span: str, step: int) -> None:
    found = data(admin, f"{page_data.link_url}history/series.json?span={span}")

    assert found["step"] == step
    assert len(found["at"]) <= 181
    for shown in found["charts"]:
        for line in shown["series"]:
            assert len(line["values"]) == len(line["texts"]) == len(found["at"])


def test_series_have_the_link_and_its_most_lagging_topics(admin: Client, page_data: PageData) -> None:
    MirrorSample.objects.create(mirror=page_data.mirrors["planes"], at=page_data.now, lag=5_000)

    lag = chart(data(admin, f"{page_data.link_url}history/series.json?span=1h"), "lag")

    assert [line["name"] for line in lag["series"]] == ["Link (largest partition)", "planes", "flights"]
    assert max(value for value in lag["series"][1]["values"] if value is not None) == 5_000


def test_series_include_the_chosen_topic(admin: Client, page_data: PageData) -> None:
    times = [page_data.now - timedelta(seconds=30 * number) for number in range(10)]
    MirrorSample.objects.bulk_create(MirrorSample(mirror=page_data.mirrors["weather"], at=at, lag=0) for at in times)

    lag = chart(data(admin, f"{page_data.link_url}history/series.json?span=1h&topic=weather"), "lag")

    assert [line["name"] for line in lag["series"]] == ["Link (largest partition)", "flights", "weather"]
    assert lag["series"][2]["values"][-1] == 0


def test_unknown_samples_are_null_and_listed_as_unknown(admin: Client, page_data: PageData) -> None:
    found = chart(data(admin, f"{page_data.link_url}history/series.json?span=1h"), "lag")

    line = found["series"][0]
    assert len(line["unknown"]) >= 5  # samples 61 to 71 of the page data
    wholly = [step for step in line["unknown"] if line["values"][step] is None]
    assert len(wholly) >= 4
    assert {line["texts"][step] for step in wholly} == {"unknown"}


def test_down_sampling_keeps_the_largest_lag(admin: Client, page_data: PageData) -> None:
    at = page_data.now - timedelta(days=5)
    counts = {"samples": 120, "unknown": 0, "unknown_ms": 0}
    for hours, lag in enumerate((3, 12_345, 4)):
        LinkSampleSummary.objects.create(
            link=page_data.link, at=at + timedelta(hours=hours), seconds=3600, lag=lag, lag_ms=1, **counts
        )

    line = chart(data(admin, f"{page_data.link_url}history/series.json?span=30d"), "lag")["series"][0]

    assert 12_345 in line["values"]


def test_objective_is_sent_if_the_link_has_one(admin: Client, page_data: PageData) -> None:
    url = f"{page_data.link_url}history/series.json"
    assert chart(data(admin, url), "age")["objective"] is None

    LinkConfig.objects.create(link=page_data.link, name=RPO_OBJECTIVE, value="60000")

    assert chart(data(admin, url), "age")["objective"] == {"value": 60_000, "text": "Objective: 1 min"}


def test_series_of_a_mirror_are_its_own(admin: Client, page_data: PageData) -> None:
    found = data(admin, f"{page_data.mirror_url('flights')}series.json")

    assert [line["name"] for line in chart(found, "lag")["series"]] == ["flights"]
    assert found["end"] - found["start"] >= 7_200


def test_events_have_states_and_markers(admin: Client, page_data: PageData) -> None:
    StateTransition.objects.create(
        mirror=page_data.mirrors["airports"],
        from_state="ACTIVE",
        to_state="PAUSED",
        event="pause",
        by="amelia",
        at=page_data.now - timedelta(minutes=14),
    )
    VerifyRun.objects.update(finished_at=page_data.now - timedelta(minutes=9))
    AuditEvent.objects.create(
        at=page_data.now - timedelta(minutes=3),
        actor="amelia",
        action="AlterClusterLinkConfigs",
        resource=path_of(page_data.link),
        result="SUCCESS",
    )

    found = data(admin, f"{page_data.link_url}history/events.json?span=1h")

    assert {marker["kind"] for marker in found["markers"]} == {"pause", "error", "verification", "edit"}
    assert found["newest"][0]["text"] == "AlterClusterLinkConfigs"
    assert "Failed" in {line["name"] for line in found["chart"]["series"]}
    own = data(admin, f"{page_data.mirror_url('flights')}events.json?span=1h")
    assert [marker["text"] for marker in own["newest"]] == ["verification: EQUAL · flights"]


DATA = (
    "history/series.json?span=30d&topic=weather",
    "history/events.json?span=30d",
    "history/minute/",
    "history/samples/?span=7d&format=csv",
)


@pytest.mark.parametrize("path", DATA)
def test_data_of_charts_need_at_most_ten_queries(page_data: PageData, path: str) -> None:
    client = client_of(page_data.reader)
    client.get(f"{page_data.link_url}{path}")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{page_data.link_url}{path}").status_code == 200
    assert len(queries) <= 10


@pytest.mark.parametrize("path", [*DATA, "history/samples/", "mirrors/flights/series.json", "mirrors/flights/events.json"])
def test_data_of_charts_require_the_permission_of_the_page(page_data: PageData, stranger: Client, path: str) -> None:
    assert stranger.get(f"{page_data.link_url}{path}").status_code == 404
    assert Client().get(f"{page_data.link_url}{path}").status_code == 302


def test_csv_has_all_samples_of_the_range(admin: Client, page_data: PageData) -> None:
    response = admin.get(f"{page_data.link_url}history/samples/?span=2h&format=csv&sort=at")

    rows = list(csv.DictReader(io.StringIO(response.getvalue().decode())))
    assert len(rows) == LinkSample.objects.filter(link=page_data.link).count() == 120
    assert [row["lag"] for row in rows[60:63]] == ["420", "", ""]
    assert (rows[61]["unknown"], rows[0]["seconds"], rows[0]["samples"]) == ("1", "0", "1")


def test_csv_of_an_old_range_has_summaries(admin: Client, page_data: PageData) -> None:
    at = page_data.now - timedelta(days=5)
    counts = {"samples": 118, "unknown": 2, "unknown_ms": 0}
    LinkSampleSummary.objects.create(link=page_data.link, at=at, seconds=3600, lag=77, **counts)

    rows = list(
        csv.DictReader(
            io.StringIO(admin.get(f"{page_data.link_url}history/samples/?span=7d&format=csv&sort=at").getvalue().decode())
        )
    )

    assert {"seconds": "3600", "lag": "77", "unknown": "2", "samples": "118"}.items() <= rows[0].items()


def test_samples_are_paged_newest_first(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.mirror_url('flights')}samples/?span=2h").content.decode()

    assert "1 to 50 of 120" in text
    first = re.search(r'<th scope="row">([^<]+ UTC)</th>', text)
    assert first is not None
    assert first[1].startswith(f"{page_data.now:%Y-%m-%d %H:%M:%S}")


def minute_of(page_data: PageData, *, minutes_ago: int) -> str:
    at = int((page_data.now - timedelta(minutes=minutes_ago)).timestamp())
    return f"{page_data.link_url}history/minute/?at={at}"


def test_minute_shows_states_transitions_errors_and_audit_events(admin: Client, page_data: PageData) -> None:
    text = admin.get(minute_of(page_data, minutes_ago=0), **htmx("minute")).content.decode()

    assert "<h1" not in text
    assert "AUTHENTICATION_ERROR" in text
    assert "CreateClusterLink" in text
    assert "setup-done" in text
    assert "Paused" in text


def test_minute_is_a_page_of_its_own(admin: Client, page_data: PageData) -> None:
    text = admin.get(minute_of(page_data, minutes_ago=30)).content.decode()

    assert text.count("<h1") == 1
    assert "Next minute" in text
    assert "AUTHENTICATION_ERROR" not in text  # seen 4 minutes ago for the first time


def test_minute_shows_errors_that_are_resolved_since(admin: Client, page_data: PageData) -> None:
    mirror, since = page_data.mirrors["flights"], page_data.now - timedelta(minutes=30)
    transition_errors.note(mirror=mirror, code="CORRUPT_RECORDS", message="Damaged at the source.", now=since)
    transition_errors.clear(mirrors=[mirror], now=since + timedelta(minutes=5))

    shown = {ago: admin.get(minute_of(page_data, minutes_ago=ago)).content.decode() for ago in (33, 27, 22)}

    assert {ago: "Damaged at the source." in text for ago, text in shown.items()} == {33: False, 27: True, 22: False}
    assert re.search(r"Since <time .*, resolved <time", shown[27], re.DOTALL)


def test_minute_shows_a_limited_number_of_errors_and_names_the_limit(admin: Client, page_data: PageData) -> None:
    mirror = page_data.mirrors["flights"]
    rows = [
        EndedError(
            mirror=mirror, code=f"E{n:03}", message="", since=page_data.now - timedelta(hours=1, seconds=n), until=page_data.now
        )
        for n in range(EVENTS_SHOWN + 1)
    ]
    EndedError.objects.bulk_create(rows[1:])
    limit = "Only the newest errors are shown."
    StateTransitionError.objects.all().delete()
    assert limit not in admin.get(minute_of(page_data, minutes_ago=30)).content.decode()

    rows[0].save()
    text = admin.get(minute_of(page_data, minutes_ago=30)).content.decode()

    assert limit in text
    assert "E000" in text
    assert f"E{EVENTS_SHOWN:03}" not in text


def test_minute_hides_audit_events_without_permission(reader: Client, page_data: PageData) -> None:
    text = reader.get(minute_of(page_data, minutes_ago=0)).content.decode()

    assert "Your roles do not include viewing the audit log." in text
    assert "CreateClusterLink" not in text


@pytest.mark.parametrize("at", ["", "-5", "nonsense", "99999999999999999999", "0"])
def test_malformed_time_shows_a_minute_within_the_retention(admin: Client, page_data: PageData, at: str) -> None:
    assert admin.get(f"{page_data.link_url}history/minute/?at={at}").status_code == 200


@pytest.mark.parametrize("query", ["from=1&to=2", "from=9&to=1", "from=x&to=5", "from=99999999999&to=99999999999", "from=1"])
def test_malformed_range_is_replaced(admin: Client, page_data: PageData, query: str) -> None:
    assert data(admin, f"{page_data.link_url}history/series.json?{query}")["at"]


def test_first_load_of_the_charts_is_small(admin: Client, page_data: PageData) -> None:
    """Scripts and style sheets of the page, compressed, together with the page and its data."""
    page = admin.get(f"{page_data.link_url}history/").content
    names = re.findall(rb'(?:href|src)="/static/([^"]+\.(?:css|js))', page)
    assert b"vendor/uPlot.iife.min.js" in names

    files = [finders.find(name.decode()) for name in names]
    total = sum(len(gzip.compress(Path(name).read_bytes())) for name in files if isinstance(name, str))
    total += len(gzip.compress(page)) + len(gzip.compress(admin.get(f"{page_data.link_url}history/series.json").content))

    assert len([name for name in files if name]) == len(names)
    assert total <= FIRST_LOAD


def test_mirror_page_begins_with_its_charts(admin: Client, page_data: PageData) -> None:
    text = admin.get(page_data.mirror_url("flights")).content.decode()

    assert text.index('class="tiles"') < text.index('id="graphs"') < text.index('id="history"') < text.index('id="partitions')


def test_update_of_the_mirror_page_leaves_the_charts_as_they_are(admin: Client, page_data: PageData) -> None:
    fragment = admin.get(page_data.mirror_url("flights"), **htmx("live")).content.decode()

    assert re.search(r'<div id="charts" data-kept>\s*</div>', fragment)


@pytest.mark.parametrize("page", ["history", "mirror"])
def test_range_is_chosen_with_date_fields(admin: Client, page_data: PageData, page: str) -> None:
    url = f"{page_data.link_url}history/" if page == "history" else page_data.mirror_url("flights")
    start, end = (f"{page_data.now - timedelta(minutes=ago):%Y-%m-%dT%H:%M}" for ago in (50, 20))

    text = admin.get(f"{url}?from={start}&to={end}").content.decode()

    assert f'name="from" value="{start}"' in text
    assert f'name="to" value="{end}"' in text
    shown = (f"{moment.replace('T', ' ')}:00 UTC" for moment in (start, end))
    assert " to ".join(shown) in text


def test_range_without_an_end_ends_now(admin: Client, page_data: PageData) -> None:
    start = f"{page_data.now - timedelta(hours=3):%Y-%m-%dT%H:%M}"

    found = data(admin, f"{page_data.link_url}history/series.json?from={start}")

    assert abs(found["end"] - page_data.now.timestamp()) < 120
    assert found["end"] - found["start"] > 3 * 3600 - 120


@pytest.mark.parametrize("start", ["nonsense", "2026-99-01T00:00", "9" * 30, "-1", "0001-01-01T00:00%2B14:00"])
def test_malformed_time_is_ignored(admin: Client, page_data: PageData, start: str) -> None:
    assert "Last 1 h: minimum" in admin.get(f"{page_data.link_url}history/?from={start}&to={start}").content.decode()


def in_tokyo(page_data: PageData) -> Client:
    client = client_of(page_data.admin)
    assert client.post("/settings/profile/", {"time_zone": "Asia/Tokyo", "density": "comfortable"}).status_code == 302
    return client


def test_charts_and_their_data_are_in_the_time_zone_of_the_user(page_data: PageData) -> None:
    client, now = in_tokyo(page_data), page_data.now.astimezone(ZoneInfo("Asia/Tokyo"))

    page = client.get(f"{page_data.link_url}history/").content.decode()
    found = [data(client, f"{page_data.link_url}history/{name}.json?span=1h") for name in ("series", "events")]

    assert 'data-zone="Asia/Tokyo"' in page
    assert "UTC" not in page
    for shown in found:
        assert {time.partition(" ")[0] for time in shown["times"]} <= {
            f"{now - timedelta(days=day):%Y-%m-%d}" for day in (0, 1)
        }
        assert all(re.fullmatch(r".* \d\d:\d\d:00 to .*:00 JST", time) for time in shown["times"][:-1])
        assert re.fullmatch(r".* \d\d:\d\d:00 to .* JST", shown["times"][-1])
        assert shown["times"][-1][:13] in {f"{now - timedelta(minutes=minutes):%Y-%m-%d %H}" for minutes in (0, 2)}
        assert shown["end_text"].endswith(" JST")


def test_data_attribute_is_a_zone_that_browsers_know(page_data: PageData) -> None:
    client = client_of(page_data.admin)
    client.post("/settings/profile/", {"time_zone": "Etc/GMT-9", "density": "comfortable"})

    assert 'data-zone="Etc/GMT-9"' in client.get(f"{page_data.link_url}history/").content.decode()

"""Interactive charts in a real browser: values on hover and by keyboard, zoom, hatched bands, minutes, and no scripts."""

from __future__ import annotations

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F
from playwright.sync_api import Locator, Page, expect

from console.audit import path_of
from console.models import (
    AuditEvent,
    ClusterLink,
    LinkConfig,
    LinkSample,
    MirrorSample,
    MirrorTopic,
    StateTransition,
    VerifyRun,
)
from linkengine.domain.linkconfigs import RPO_OBJECTIVE
from linkengine.domain.states import MirrorState
from tests.browser.conftest import Visits
from tests.browser.page_data import PageData

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

UNKNOWN_SHARE = 0.55  # of the width of the chart: within the samples 61 to 71 of 120, which are unknown
# The number of different pixels in a column of the plot. A hatched column has lines of another colour than a plain column.
PIXELS = """([figure, share]) => {
  const canvas = figure.querySelector("canvas"), over = figure.querySelector(".u-over").getBoundingClientRect();
  const place = canvas.getBoundingClientRect(), scale = canvas.width / place.width;
  const x = (over.left - place.left + over.width * share) * scale, y = (over.top - place.top + 30) * scale;
  const pixels = canvas.getContext("2d").getImageData(x, y, 24 * scale, 80 * scale).data;
  let drawn = 0;
  for (let at = 3; at < pixels.length; at += 4) drawn += pixels[at] > 0;
  return drawn / (pixels.length / 4);
}"""
# Records each text that is drawn on a canvas, with its place.
RECORDER = """
  window.drawn = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
    drawn.push({ text: String(text), x, canvas: this.canvas });
    return fillText.call(this, text, x, ...rest);
  };
"""
# The texts in the charts as triples of title, text and horizontal place, once each chart has the marker of an error.
DRAWN = """async () => {
  const until = performance.now() + 20000;
  const marked = () => new Set(drawn.filter(({ text }) => text === "!").map(({ canvas }) => canvas)).size;
  while (marked() < 4 && performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 20));
  return drawn.filter(({ canvas }) => canvas.isConnected)
    .map(({ text, x, canvas }) => [canvas.closest("figure").querySelector("h3").textContent, text, x]);
}"""


def open_charts(page_data: PageData, visits: Visits, *, path: str = "history/?span=1h", width: int = 1280) -> Page:
    page = visits.start(page_data.admin, width=width).open(f"{page_data.link_url}{path}")
    expect(page.locator("#graphs figure")).to_have_count(4)
    return page


def chart(page: Page, title: str) -> Locator:
    return page.locator("#graphs figure").filter(has=page.get_by_role("heading", name=title, exact=True))


def test_charts_replace_the_pictures_of_the_server(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)

    expect(page.locator("#live")).to_have_count(0)
    expect(chart(page, "Lag (messages)").locator(".graph-legend")).to_contain_text("Link (largest partition):")
    expect(chart(page, "Lag (messages)").locator(".graph-legend")).to_contain_text("flights:")
    expect(chart(page, "Throughput").locator(".graph-legend")).to_contain_text("Link (all mirror topics):")


def test_hover_shows_time_and_values_in_all_charts(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)
    plot = chart(page, "Lag (messages)").locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    before = chart(page, "Throughput").locator("figcaption .number").inner_text()

    plot.hover(position={"x": box["width"] * 0.25, "y": 40})

    time = chart(page, "Lag (messages)").locator("figcaption .number")
    expect(time).not_to_have_text(before)
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:00 to ([\d-]{10} )?\d\d:\d\d:00 UTC$"))
    expect(chart(page, "Throughput").locator("figcaption .number")).to_have_text(time.inner_text())
    expect(chart(page, "Lag (messages)").locator(".graph-legend li").first).to_have_text(re.compile(r": [\d,]+$"))


def test_unknown_values_are_named_on_hover_and_hatched(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)
    figure = chart(page, "Lag (messages)")
    box = figure.locator(".u-over").bounding_box()
    assert box is not None

    figure.locator(".u-over").hover(position={"x": box["width"] * UNKNOWN_SHARE, "y": 40})

    expect(figure.locator(".graph-legend li").first).to_have_text(re.compile(r": unknown$"))
    # per line; the first minute may be before the first sample
    expect(figure).to_have_attribute("data-unknown", re.compile("^[12] [12]$"))
    hatched = page.evaluate(PIXELS, [figure.element_handle(), UNKNOWN_SHARE])
    plain = page.evaluate(PIXELS, [chart(page, "Throughput").element_handle(), UNKNOWN_SHARE])
    assert hatched > 0.1
    assert hatched > plain + 0.05


STRIP = """([figure, share]) => {
  const canvas = figure.querySelector("canvas"), over = figure.querySelector(".u-over").getBoundingClientRect();
  const place = canvas.getBoundingClientRect(), scale = canvas.width / place.width;
  const x = (over.left - place.left + over.width * share) * scale, y = (over.bottom - place.top - 8) * scale;
  const pixels = canvas.getContext("2d").getImageData(x, y, 24 * scale, 7 * scale).data;
  let drawn = 0;
  for (let at = 3; at < pixels.length; at += 4) drawn += pixels[at] > 0;
  return drawn / (pixels.length / 4);
}"""


def test_line_that_is_unknown_alone_is_hatched_in_a_strip(page_data: PageData, visits: Visits) -> None:
    LinkSample.objects.filter(lag=None).update(lag=3)
    MirrorSample.objects.filter(mirror=page_data.mirrors["flights"], lag=None).delete()
    page = open_charts(page_data, visits)
    figure = chart(page, "Lag (messages)")

    expect(figure).to_have_attribute("data-unknown", re.compile("^[01] [12]$"))
    unknown, known = (page.evaluate(STRIP, [figure.element_handle(), share]) for share in (UNKNOWN_SHARE, 0.8))
    above = page.evaluate(PIXELS, [figure.element_handle(), UNKNOWN_SHARE])
    assert unknown > 0.1
    assert unknown > known + 0.05
    assert above < 0.1


def test_charts_are_in_the_time_zone_of_the_profile(page_data: PageData, visits: Visits) -> None:
    tokyo = page_data.now.astimezone(ZoneInfo("Asia/Tokyo"))
    visitor = visits.start(page_data.admin, zone="Asia/Tokyo")
    page = visitor.page
    page.add_init_script(RECORDER)

    visitor.open(f"{page_data.link_url}history/?span=1h")
    expect(page.locator("#graphs figure")).to_have_count(4)

    time = chart(page, "Lag (messages)").locator("figcaption .number")
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:00 to ([\d-]{10} )?\d\d:\d\d:\d\d JST$"))
    expect(page.locator("[data-graph-range]")).to_contain_text(re.compile(r"JST to .* JST"))
    hours = {f"{tokyo - timedelta(minutes=minutes):%H}" for minutes in (0, 60)}
    labels = [text for _, text, _ in page.evaluate(DRAWN) if re.fullmatch(r"\d\d:\d\d", text)]
    assert labels
    assert {label[:2] for label in labels} <= hours
    assert visitor.errors == []


def test_markers_and_the_objective_are_drawn(page_data: PageData, visits: Visits) -> None:
    """Each chart has the letter of each event at its time. The objective is drawn in the chart of the time lag only."""
    ago = {
        letter: page_data.now - timedelta(minutes=minutes) for letter, minutes in (("P", 50), ("F", 40), ("E", 30), ("V", 20))
    }
    flights = page_data.mirrors["flights"]
    for letter, event, states in (("P", "pause", ("ACTIVE", "PAUSED")), ("F", "failover", ("PAUSED", "PENDING_STOPPED"))):
        step = {"from_state": states[0], "to_state": states[1], "event": event, "by": "amelia", "at": ago[letter]}
        StateTransition.objects.create(mirror=flights, **step)
    edit = {"action": "AlterTopicConfigs", "resource": path_of(flights), "result": "SUCCESS"}
    AuditEvent.objects.create(at=ago["E"], actor="amelia", **edit)
    VerifyRun.objects.filter(mirror=flights).update(finished_at=ago["V"])
    LinkConfig.objects.create(link=page_data.link, name=RPO_OBJECTIVE, value="5000")
    visitor = visits.start(page_data.admin)
    visitor.page.add_init_script(RECORDER)

    page = visitor.open(f"{page_data.link_url}history/?span=1h")
    found = page.evaluate(DRAWN)
    titles = {title for title, _, _ in found}
    for title in titles:
        places = {text: x for where, text, x in found if where == title and text in {*ago, "!"}}
        assert sorted(places, key=places.__getitem__) == ["P", "F", "E", "V", "!"], title  # the oldest is on the left
    assert {title for title, text, _ in found if text == "Objective: 5 s"} == {"Time lag (RPO)"}
    assert len(titles) == 4
    assert visitor.errors == []


def test_keyboard_moves_the_cursor_and_values_are_announced(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)
    figure = chart(page, "Time lag (RPO)")
    figure.locator(".graph-plot").focus()

    page.keyboard.press("End")
    last = figure.locator("figcaption .number").inner_text()
    page.keyboard.press("ArrowLeft")

    expect(figure.locator("figcaption .number")).not_to_have_text(last)
    spoken = page.locator("[data-graph-spoken]")
    expect(spoken).to_contain_text(figure.locator("figcaption .number").inner_text())
    expect(spoken).to_contain_text("Link (largest partition)")


def test_enter_opens_the_minute_and_moves_the_focus(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)
    chart(page, "Lag (messages)").locator(".graph-plot").focus()
    page.keyboard.press("End")

    page.keyboard.press("Enter")

    expect(page.locator("#minute-title")).to_be_focused()
    expect(page.locator("#minute")).to_contain_text("States at the end of the minute")


def test_click_opens_the_clicked_minute(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits)
    plot = chart(page, "Lag (messages)").locator(".u-over")
    box = plot.bounding_box()
    assert box is not None

    plot.click(position={"x": box["width"] / 2, "y": 60})

    title = page.locator("#minute-title")
    expect(title).to_be_visible()
    expected = [f"{page_data.now - timedelta(minutes=30 + shift):%H:%M}" for shift in (-2, -1, 0, 1, 2)]
    assert any(minute in title.inner_text() for minute in expected)


def test_dragging_zooms_and_the_url_keeps_the_range(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits, path="history/?span=6h")
    plot = chart(page, "Lag (messages)").locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    before = page.locator("[data-graph-range]").inner_text()

    page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.90, box["y"] + 60, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + 60, steps=4)
    page.mouse.up()

    expect(page.locator("[data-graph-range]")).not_to_have_text(before)
    expect(page.locator("[data-graph-range]")).to_contain_text("1 min per point")
    expect(page).to_have_url(re.compile(r"\?span=6h&from=\d+&to=\d+$"))
    assert "from=" in str(page.locator("[data-graph-link='csv']").get_attribute("href"))
    expect(page.locator("#minute")).to_be_empty()  # a drag is no click
    page.reload()
    expect(page.locator("[data-graph-range]")).to_contain_text("1 min per point")
    page.get_by_role("button", name="Reset zoom").click()
    expect(page).to_have_url(re.compile(r"\?span=6h$"))


def test_zoom_by_keyboard_and_escape(page_data: PageData, visits: Visits) -> None:
    page = open_charts(page_data, visits, path="history/?span=6h")
    chart(page, "Throughput").locator(".graph-plot").focus()
    page.keyboard.press("ArrowLeft")

    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
    page.keyboard.press("Escape")

    expect(page).not_to_have_url(re.compile("from="))


def test_events_are_listed_with_links_to_their_minutes(page_data: PageData, visits: Visits) -> None:
    StateTransition.objects.create(
        mirror=page_data.mirrors["airports"],
        from_state="ACTIVE",
        to_state="PAUSED",
        event="pause",
        by="amelia",
        at=page_data.now - timedelta(minutes=20),
    )
    page = open_charts(page_data, visits)
    row = page.locator("[data-graph-events] li").filter(has_text="pause · airports")

    row.get_by_role("link").click()

    expect(page.locator("#minute")).to_contain_text("by amelia")


def test_failure_to_load_the_data_keeps_the_pictures(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    visitor.page.route("**/series.json*", lambda route: route.fulfill(status=502, body="Bad gateway"))

    page = visitor.open(f"{page_data.link_url}history/")

    expect(page.locator("#live figure")).to_have_count(3)
    expect(page.locator("#graphs")).to_be_hidden()


def test_pictures_of_the_server_work_without_scripts(page_data: PageData, visits: Visits) -> None:
    page = visits.start(page_data.admin, scripts=False).open(f"{page_data.link_url}history/")

    expect(page.locator("figure svg")).to_have_count(3)
    expect(page.locator("#graphs")).to_be_hidden()
    page.get_by_role("link", name="Table of all samples").click()
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()


def test_charts_of_a_mirror_stay_when_the_page_is_updated(page_data: PageData, visits: Visits) -> None:
    visitor = visits.start(page_data.admin)
    page = visitor.open(page_data.mirror_url("flights"))
    expect(page.locator("#graphs figure")).to_have_count(4)
    page.evaluate("document.querySelector('#graphs figure').dataset.marked = 'yes'")

    MirrorTopic.objects.filter(name="flights").update(state=MirrorState.PAUSED)
    ClusterLink.objects.filter(pk=page_data.link.pk).update(sequence=F("sequence") + 1)

    expect(page.locator("#do-resume")).to_be_visible()
    expect(page.locator("#graphs figure[data-marked]")).to_have_count(1)
    expect(page.locator("#graphs figure")).to_have_count(4)
    assert visitor.errors == []


@pytest.mark.parametrize("width", [390, 1280])
def test_charts_of_a_mirror_fit_the_page(page_data: PageData, visits: Visits, width: int) -> None:
    visitor = visits.start(page_data.admin, width=width, theme="dark")
    page = visitor.open(f"{page_data.mirror_url('flights')}?span=24h")

    expect(page.locator("#graphs figure")).to_have_count(4)
    expect(page.locator("#history")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert visitor.errors == []

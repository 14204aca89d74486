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

from console.models import ClusterLink, MirrorPartition, RoleBinding
from tests.browser.addresses import TABS
from tests.browser.page_data import PageData
from tests.console.pages.conftest import htmx

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def seen_in(text: str) -> str:
    found = re.search(r'name="seen" value="([^"]+)"', text)
    assert found
    return found[1]


@pytest.mark.parametrize("page", ["", "mirrors/flights/", *(f"mirrors/flights/{tab}/" for tab in TABS)])
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


@pytest.mark.parametrize(
    "page",
    [
        "links/list",
        "links/overview",
        "links/tasks",
        "links/drills",
        "operations/operation",
        *(f"mirrors/{tab}" for tab in ("overview", "verification", "filled_offsets", "lineage", "gate")),
        *(f"mirrors/{tab}" for tab in ("failover_reports", "restores", "configs", "history")),
    ],
)
def test_page_with_states_polls_at_least_every_two_seconds(page: str) -> None:
    (region,) = re.findall(r'<div id="live" [^>]*>', (TEMPLATES / f"{page}.html").read_text())

    assert re.search(r'hx-trigger="every [12]s"', region)


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

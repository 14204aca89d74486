"""The Groups and ACLs tabs of a link."""

from __future__ import annotations

import csv
from html import unescape

from django.test import Client

from console.links.group_presenters import ACL_BADGES, GROUP_BADGES
from tests.browser.page_data import PageData
from tests.linkengine.jobs.test_group_names import NAMES


def test_groups_page_shows_every_status(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.link_url}groups/").content.decode()

    for badge in GROUP_BADGES.values():
        assert badge.label in text
        assert badge.code in text
    assert "118" in text  # destination offset of the group in use


def test_acls_page_shows_every_status(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.link_url}acls/").content.decode()

    for badge in ACL_BADGES.values():
        assert badge.label in text


def test_empty_groups_and_acls_pages_say_how_to_turn_sync_on(admin: Client, page_data: PageData) -> None:
    page_data.link.groups.all().delete()
    page_data.link.acls.all().delete()

    assert "consumer.offset.sync.enable" in admin.get(f"{page_data.link_url}groups/").content.decode()
    assert "acl.sync.enable" in admin.get(f"{page_data.link_url}acls/").content.decode()


def test_groups_page_warns_if_offset_sync_is_off(admin: Client, page_data: PageData) -> None:
    assert "Consumer offset sync is off." in admin.get(f"{page_data.link_url}groups/").content.decode()

    page_data.link.configs.filter(name="consumer.offset.sync.enable").update(value="true")

    assert "Consumer offset sync is off." not in admin.get(f"{page_data.link_url}groups/").content.decode()


def test_stopped_mirror_lists_clamped_groups(admin: Client, page_data: PageData) -> None:
    text = admin.get(page_data.mirror_url("gates", "failover-reports")).content.decode()

    assert "app-gates" in text
    assert "40,300" in text


def test_unusual_group_names_are_readable_on_the_page_and_complete_in_csv(admin: Client, page_data: PageData) -> None:
    page_data.link.groups.all().delete()
    for name in NAMES:
        page_data.link.groups.create(name=name, destination_name=name, status="SYNCED", listed_at=page_data.link.created_at)

    pages = [admin.get(f"{page_data.link_url}groups/?page={number}").content.decode() for number in (1, 2)]
    shown = unescape("".join(pages))
    rows = list(csv.reader(admin.get(f"{page_data.link_url}groups/?format=csv").getvalue().decode("utf-8-sig").splitlines()))

    for text in (
        "(empty name)",
        "data/x",
        "100%",
        r"nul\x00inside",
        r"line\nbreak\ttab\r",
        "<b>{{ x }}</b>",
        "(15,000 characters)",
    ):
        assert text in shown, text
    assert "\0" not in shown
    assert any(row and row[0].endswith("long/") and len(row[0]) >= 15_000 for row in rows)


def test_message_of_a_group_is_shown(admin: Client, page_data: PageData) -> None:
    page_data.link.groups.filter(status="FAILED").update(
        message="1 of 3 offsets are left out, the others follow: orders partition 0."
    )

    assert "1 of 3 offsets are left out" in admin.get(f"{page_data.link_url}groups/?status=FAILED").content.decode()

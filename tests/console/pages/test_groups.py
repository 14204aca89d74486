"""The Groups and ACLs tabs of a link."""

from __future__ import annotations

import csv
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.links.group_presenters import ACL_BADGES, GROUP_BADGES
from console.models import SyncedGroup
from console.web.numbers import UNKNOWN
from linkengine.domain.groups import OffsetOutcome
from tests.browser.page_data import PageData
from tests.linkengine.jobs.test_group_names import NAMES


def test_groups_page_shows_every_status(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.link_url}groups/").content.decode()

    for badge in GROUP_BADGES.values():
        assert badge.label in text
        assert badge.code in text
    assert "118" in text  # destination offset of the group in use


@pytest.fixture
def group(page_data: PageData) -> SyncedGroup:
    """Has committed 120 in two partitions, as of 40 s ago; their source ends, 150 and 1,120, were seen now."""
    now = timezone.now()
    group = SyncedGroup.objects.get(name="app-in_use")
    SyncedGroup.objects.filter(pk=group.pk).update(looked_at=now - timedelta(seconds=40))
    group.offsets.create(
        mirror=page_data.mirrors["flights"], partition=1, source_offset=120, target=120, outcome=OffsetOutcome.EQUAL
    )
    partitions = page_data.mirrors["flights"].partitions
    partitions.filter(partition=0).update(source_end=150, last_source_seen_at=now)
    partitions.filter(partition=1).update(source_end=1_120, last_source_seen_at=now)
    return group


def lags_in(text: str, group: SyncedGroup) -> tuple[str, list[str]]:
    """Return the text of the cell with the total lag of a group, and the lags of its partitions."""
    row = text.split(f'<tr id="row-{group.pk}">')[1].split('<td class="only-wide"><time', maxsplit=1)[0]
    cell = re.findall(r'<td class="number" data-label="Total lag">(.*?)</td>', row, re.DOTALL)[0]
    inner = row.partition("<tbody>")[2].partition("</tbody>")[0]
    partitions = [re.findall(r'<td class="number">(.*?)</td>', line) for line in inner.split("<tr>")[1:]]
    return " ".join(re.sub(r"<[^>]*>", " ", cell).split()), [cells[2] for cells in partitions]


def show(admin: Client, page_data: PageData, group: SyncedGroup) -> tuple[str, list[str]]:
    return lags_in(admin.get(f"{page_data.link_url}groups/?q={group.name}").content.decode(), group)


def test_group_shows_its_lag_on_the_source_with_the_age_of_its_offsets(
    admin: Client, page_data: PageData, group: SyncedGroup
) -> None:
    total, partitions = show(admin, page_data, group)

    assert total.startswith("1,030 40 s ago")
    assert partitions == ["30", "1,000"]


@pytest.mark.parametrize(
    "fields",
    [
        {"source_end": None},
        {"last_source_seen_at": timezone.now() - timedelta(minutes=10)},
        {"source_end": 119},  # the offset is beyond the end
    ],
    ids=["end unknown", "end not seen for 10 min", "end before the offset"],
)
def test_lag_is_a_lower_bound_if_it_is_unknown_in_a_partition(
    admin: Client, page_data: PageData, group: SyncedGroup, fields: dict[str, Any]
) -> None:
    page_data.mirrors["flights"].partitions.filter(partition=1).update(**fields)

    total, partitions = show(admin, page_data, group)

    assert total.startswith("≥ 30 unknown in 1 of 2 partitions")
    assert partitions == ["30", UNKNOWN]


def test_lag_is_unknown_if_it_is_zero_in_one_partition_and_unknown_in_the_other(
    admin: Client, page_data: PageData, group: SyncedGroup
) -> None:
    page_data.mirrors["flights"].partitions.filter(partition=0).update(source_end=120)
    page_data.mirrors["flights"].partitions.filter(partition=1).update(source_end=None)

    total, partitions = show(admin, page_data, group)

    assert total.startswith(f"{UNKNOWN} unknown in 1 of 2 partitions")
    assert partitions == ["0", UNKNOWN]


@pytest.mark.parametrize(
    "fields", [{"status": "FAILED"}, {"status": "WAITING"}, {"status": "NOT_LISTED"}, {"looked_at": None}], ids=str
)
def test_lag_is_unknown_if_the_last_run_did_not_read_the_offsets(
    admin: Client, page_data: PageData, group: SyncedGroup, fields: dict[str, Any]
) -> None:
    SyncedGroup.objects.filter(pk=group.pk).update(**fields)

    assert show(admin, page_data, group) == (f"{UNKNOWN} unknown in 2 of 2 partitions", [UNKNOWN, UNKNOWN])


def test_lag_is_unknown_for_a_deleted_partition_row(admin: Client, page_data: PageData, group: SyncedGroup) -> None:
    page_data.mirrors["flights"].partitions.all().delete()

    assert show(admin, page_data, group) == (f"{UNKNOWN} unknown in 2 of 2 partitions", [UNKNOWN, UNKNOWN])


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

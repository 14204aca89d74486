"""The Failover reports tab of a link, and its JSON export."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from console.mirrors import operation_pages, pages
from console.models import ClampedOffset, GroupOffset, LinkConfig, MirrorTopic, StopReport, SyncedGroup
from console.verification import queries as verification_queries
from tests.browser.page_data import PageData
from tests.console.pages.list_pages import read


def test_failover_reports_tab_shows_the_report(admin: Client, page_data: PageData) -> None:
    text = admin.get(f"{page_data.link_url}stops/").content.decode()
    for words in ("Failed over", "412", "41 s", "2 s", "gates", "app-gates"):
        assert words in text


def test_json_of_failover_reports_has_the_same_numbers(admin: Client, page_data: PageData) -> None:
    response = admin.get(f"{page_data.link_url}stops/?format=json").json()
    assert response["totals"] == {"mirrors": 1, "records_not_copied": 412, "worst_rpo_ms": 41_300, "worst_rto_ms": 2_140}
    assert response["data"][0]["mirror_topic_name"] == "gates"
    (clamped,) = response["data"][0]["groups_clamped"]
    assert (clamped["group"], clamped["before"], clamped["after"]) == ("app-gates", 39_000, 40_000)


def test_mirror_page_shows_the_failover_report(admin: Client, page_data: PageData) -> None:
    text = admin.get(page_data.mirror_url("gates", "failover-reports")).content.decode()
    assert "412 records were not copied as of the last measurement of the source" in text


def test_json_lists_and_adds_up_all_reports(admin: Client, page_data: PageData) -> None:
    StopReport.objects.create(
        mirror=page_data.mirrors["flights"],
        reason="failover",
        requested_by="amelia",
        requested_at=page_data.now - timedelta(days=9),
        writable_at=page_data.now - timedelta(days=9),
        rto_ms=1,
    )

    response = admin.get(f"{page_data.link_url}stops/?format=json").json()

    assert (response["stops"], [row["mirror_topic_name"] for row in response["data"]]) == (2, ["gates", "flights"])
    assert (response["totals"]["mirrors"], response["totals"]["records_not_copied"]) == (2, None)


def test_clamped_groups_are_limited_per_report(admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_queries, "CLAMPED_SHOWN", 1)
    row = ClampedOffset.objects.get(mirror=page_data.mirrors["gates"])
    row.pk, row.group = None, "before-app-gates"
    row.save()

    text = admin.get(f"{page_data.link_url}stops/").content.decode()

    assert "app-gates and 1 more" in text


def test_mirror_page_shows_the_number_of_unlisted_clamped_offsets(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "CLAMPED_SHOWN", 1)
    row = ClampedOffset.objects.get(mirror=page_data.mirrors["gates"])
    row.pk, row.partition = None, row.partition + 1
    row.save()

    text = admin.get(page_data.mirror_url("gates", "failover-reports")).content.decode()
    assert "1 more: use the clamped-offsets resource" in text


def test_failover_confirmation_counts_groups_not_partitions(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_pages, "NAMES_SHOWN", 1)
    LinkConfig.objects.filter(name="consumer.offset.sync.enable").update(value="true")
    mirror = page_data.mirrors["planes"]
    group = SyncedGroup.objects.create(
        link=page_data.link, name="far", destination_name="far", status="SYNCED", listed_at=page_data.now
    )
    for partition in range(3):
        seen = {"source_offset": 9_000_000, "target": 9_000_000, "outcome": "EQUAL"}
        GroupOffset.objects.create(group=group, mirror=mirror, partition=partition, **seen)

    text = admin.get(f"{page_data.mirror_url('planes')}failover/").content.decode()

    assert "Consumer groups with clamped offsets: 1</summary>" in text
    assert "<li>and 2 more</li>" in text


def test_previous_state_of_a_failed_over_mirror_is_failing_over(admin: Client, page_data: PageData) -> None:
    stopped = {"state": "STOPPED", "prior_state": "PENDING_STOPPED", "stop_reason": "failover"}
    MirrorTopic.objects.filter(name="gates").update(**stopped)

    text = admin.get(page_data.mirror_url("gates")).content.decode()

    assert ("Failing over" in text, "Promoting" in text) == (True, False)


def test_tab_of_a_mirror_refers_to_older_failover_reports(admin: Client, page_data: PageData) -> None:
    note, tab = "View all failover reports of the link", page_data.mirror_url("gates", "failover-reports")
    report = StopReport.objects.get(mirror=page_data.mirrors["gates"])
    for number in range(pages.REPORTS_SHOWN - 1):
        report.pk, report.writable_at = None, page_data.now - timedelta(days=number + 1)
        report.save()
    assert note not in read(admin, tab)

    report.pk = None
    report.save()

    text = read(admin, tab)
    assert note in text
    assert text.count("<summary>Offsets by partition") == pages.REPORTS_SHOWN

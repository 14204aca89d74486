"""The Fail over tab of a link: topics with what a failover costs, review, confirmation, and the report."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.mirrors import bulk_actions
from console.models import (
    BulkOperation,
    ClusterLink,
    GroupOffset,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    StopReport,
    SyncedGroup,
)
from console.verification.failover_presenters import CHECKLIST
from console.verification.report_actions import write_stop_reports
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData, make_link, make_mirror
from tests.console.pages.conftest import Queue, htmx
from tests.console.pages.test_bulk import carry_out
from tests.console.pages.test_mirror_changes import state_of

REASON = "us-west has been down for 20 minutes."


def url(page_data: PageData) -> str:
    return f"{page_data.link_url}failover/"


def review(client: Client, page_data: PageData, **values: Any) -> Any:
    return client.post(url(page_data), values)


def confirm(client: Client, page_data: PageData, reviewed: Any, **values: Any) -> Any:
    """Submit the confirmation with its hidden fields."""
    fields: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)">', reviewed.content.decode()):
        fields.setdefault(name, []).append(html.unescape(value))
    return client.post(url(page_data), fields | {"confirm": page_data.link.name, "reason": REASON} | values)


def rows_of(text: str) -> dict[str, str]:
    """Return the HTML of each table row by the name of its topic."""
    rows = text.split('<th scope="row" class="name wide-name">')[1:]
    return {re.sub(r"^<a[^>]*>", "", row).split("<")[0]: row.split("</tr>")[0] for row in rows}


def add_group(page_data: PageData, name: str, *, ahead: int) -> None:
    LinkConfig.objects.update_or_create(link=page_data.link, name="consumer.offset.sync.enable", defaults={"value": "true"})
    about = {"link": page_data.link, "status": GroupStatus.SYNCED, "listed_at": page_data.now}
    group = SyncedGroup.objects.create(name=name, destination_name=name, **about)
    end = (page_data.mirrors["planes"].partitions.get(partition=0).mirror_end or 0) + ahead
    GroupOffset.objects.create(
        group=group, mirror=page_data.mirrors["planes"], partition=0, source_offset=end, target=end, outcome="SYNCED"
    )


def test_page_lists_topics_that_are_not_stopped_with_records_at_risk_and_rpo(admin: Client, page_data: PageData) -> None:
    text = admin.get(url(page_data)).content.decode()

    rows = rows_of(text)
    assert set(rows) == set(page_data.mirrors) - {"gates"}  # gates is stopped
    assert 'data-label="Records at risk">216<' in rows["planes"]  # 118 + 59 + 39
    assert re.search(r'data-label="RPO now">1[45] s<', rows["planes"])
    assert 'data-label="Records at risk">unknown<' in rows["hubs"]
    assert re.search(r"<dt>Records at risk</dt>\s*<dd>at least [\d,]+; unknown for \d+ topics?<", text)
    assert re.search(r"<dt>RPO now</dt>\s*<dd>unknown<", text)  # hubs is not set up yet


def test_page_names_the_groups_that_would_be_clamped(admin: Client, page_data: PageData) -> None:
    add_group(page_data, "readers", ahead=7)
    add_group(page_data, "behind", ahead=-7)

    shown = rows_of(admin.get(url(page_data)).content.decode())["planes"]
    reviewed = review(admin, page_data, mirror=["planes"]).content.decode()

    assert ("readers" in shown, "behind" in shown) == (True, False)
    assert re.search(r"<dt>Consumer groups to be clamped</dt><dd><strong>1</strong>", reviewed)
    assert re.search(r'planes</th><td><span class="badge-state \w+" title="\w+">.*title="ACTIVE"', reviewed)
    assert re.search(r'readers</th>.*data-label="Clamped by">7<', reviewed)


def test_source_partitions_that_are_not_mirrored_make_the_loss_unknown(admin: Client, page_data: PageData) -> None:
    SourceTopic.objects.create(link=page_data.link, name="planes", partitions=4, seen_at=page_data.now)

    assert 'data-label="Records at risk">unknown<' in rows_of(admin.get(url(page_data)).content.decode())["planes"]
    assert (
        "<dt>Records at risk</dt><dd><strong>unknown</strong>" in review(admin, page_data, mirror=["planes"]).content.decode()
    )


def test_old_reports_are_unknown_and_not_zero(admin: Client, page_data: PageData) -> None:
    old = timezone.now() - timedelta(hours=1)
    MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"]).update(
        last_source_seen_at=old, observed_at=old, caught_up_at=old
    )

    row = rows_of(admin.get(url(page_data)).content.decode())["flights"]

    assert 'data-label="Records at risk">unknown<' in row
    assert 'data-label="RPO now">1 h<' in row


def test_review_needs_a_selection(admin: Client, page_data: PageData) -> None:
    response = review(admin, page_data)

    assert response.status_code == 422
    assert "No mirror topics are selected." in response.content.decode()


def test_stopped_topics_cannot_be_selected(admin: Client, page_data: PageData) -> None:
    assert review(admin, page_data, mirror=["gates"]).status_code == 422
    assert "Fail over 1 mirror topic?" in review(admin, page_data, mirror=["gates", "planes"]).content.decode()


def test_selection_of_all_includes_other_pages_and_the_filter(admin: Client, page_data: PageData) -> None:
    for number in range(60):
        make_mirror(page_data.link, f"many-{number:02}", MirrorState.ACTIVE, now=page_data.now)

    page = admin.get(f"{url(page_data)}?q=many").content.decode()
    reviewed = review(admin, page_data, all="1", q="many").content.decode()

    assert "Select all 60 that match<" in page
    assert "Fail over 60 mirror topics?" in reviewed


def test_selection_of_more_topics_than_an_operation_takes_is_refused(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_actions, "MOST", 2)

    response = review(admin, page_data, all="1")

    assert response.status_code == 422
    assert "topics are selected, and an operation takes at most 2. Nothing was changed." in response.content.decode()


def test_selection_of_all_has_only_the_topics_of_the_filtered_state(admin: Client, page_data: PageData) -> None:
    page = admin.get(f"{url(page_data)}?state=PAUSED").content.decode()

    response = review(admin, page_data, all="1", q="", state="PAUSED")
    confirmed = confirm(admin, page_data, response)

    assert "Select all 1 that match<" in page
    assert '<input type="hidden" name="state" value="PAUSED">' in page
    assert "Fail over 1 mirror topic?" in response.content.decode()
    operation = BulkOperation.objects.get(pk=int(confirmed["Location"].split("/")[2]))
    assert list(operation.topics.values_list("name", flat=True)) == ["airports"]


def test_review_without_a_selection_shows_the_list_in_the_same_order_with_the_same_filter(
    admin: Client, page_data: PageData
) -> None:
    response = review(admin, page_data, q="p", state="PAUSED", sort="-risk")

    text = response.content.decode()
    assert response.status_code == 422
    assert set(rows_of(text)) == {"airports"}
    assert 'aria-sort="descending"' in text
    assert '<option value="PAUSED" selected>' in text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reason": " "}, "Enter a reason."),
        ({"reason": "x" * 501}, "The reason has 501 characters"),
        ({"confirm": "planes"}, "The name does not match the link name."),
    ],
)
def test_confirmation_needs_reason_and_link_name(
    admin: Client, page_data: PageData, values: dict[str, str], message: str
) -> None:
    reviewed = review(admin, page_data, mirror=["planes"])

    response = confirm(admin, page_data, reviewed, **{"confirmed-item": ["producers"]}, **values)

    text = response.content.decode()
    assert response.status_code == 422
    assert message in text
    assert 'value="producers" checked' in text  # the checked items are kept
    assert state_of("planes") == "ACTIVE"
    assert not BulkOperation.objects.filter(operation="failover").exists()


def test_confirmed_failover_starts_an_operation_with_reason_and_checklist(
    admin: Client, page_data: PageData, queue: Queue
) -> None:
    reviewed = review(admin, page_data, mirror=["planes", "flights"])

    response = confirm(admin, page_data, reviewed, **{"confirmed-item": ["producers", "clients"]})
    shown = admin.get(response["Location"]).content.decode()
    operation = carry_out(response)

    assert queue.sent[0] == "advance_bulk_operation"
    assert [state_of("planes"), state_of("flights")] == ["PENDING_STOPPED", "PENDING_STOPPED"]
    assert operation.options["reason"] == REASON
    assert [item["confirmed"] for item in operation.options["checklist"]] == [True, False, True, False]
    assert [item["text"] for item in operation.options["checklist"]] == list(CHECKLIST.values())
    assert REASON in shown


def test_report_of_a_stopped_topic_has_reason_and_checklist(admin: Client, page_data: PageData) -> None:
    operation = carry_out(
        confirm(admin, page_data, review(admin, page_data, mirror=["planes"]), **{"confirmed-item": ["clients"]})
    )
    mirror = MirrorTopic.objects.get(name="planes")
    MirrorPartition.objects.filter(mirror=mirror).update(stopped_end=5)

    write_stop_reports(mirrors=[mirror], now=timezone.now())

    report = StopReport.objects.get(operation_number=operation.pk)
    text = admin.get(f"/failover-reports/operations/{operation.pk}/").content.decode()
    assert report.request_reason == REASON
    assert REASON in text
    assert f"{CHECKLIST['clients']} <strong>Confirmed" in text
    assert f"{CHECKLIST['producers']} <strong>Not confirmed" in text


def test_topic_that_was_added_after_the_review_is_not_failed_over(admin: Client, page_data: PageData) -> None:
    reviewed = review(admin, page_data, all="1", q="")
    make_mirror(page_data.link, "late", MirrorState.ACTIVE, now=page_data.now)

    response = confirm(admin, page_data, reviewed)

    assert response.status_code == 409
    assert "has changed since you opened this page. Nothing was changed." in response.content.decode()
    assert not BulkOperation.objects.filter(operation="failover").exists()


def test_reader_sees_the_costs_and_cannot_fail_over(reader: Client, page_data: PageData) -> None:
    text = reader.get(url(page_data)).content.decode()
    response = confirm(reader, page_data, review(reader, page_data, mirror=["planes"]))

    assert 'id="review"' not in text
    assert "A failover requires the role Operator" in text
    assert response.status_code == 403
    assert state_of("planes") == "ACTIVE"


def test_source_side_of_a_link_refers_to_the_other_side(admin: Client, page_data: PageData) -> None:
    make_link(page_data.east, page_data.west, "source-side", page_data.now, mode="SOURCE")
    link = ClusterLink.objects.get(name="source-side")

    assert "The mirror topics are on the other side" in admin.get(f"{link.get_absolute_url()}failover/").content.decode()


def test_unchanged_page_is_not_sent_again(admin: Client, page_data: PageData) -> None:
    (seen,) = re.findall(r'id="seen" name="seen" value="([^"]+)"', admin.get(url(page_data)).content.decode())

    assert admin.get(f"{url(page_data)}?seen={seen}", **htmx("live")).status_code == 204


def test_more_topics_need_no_more_queries_and_no_call_to_a_cluster(admin: Client, page_data: PageData, queue: Queue) -> None:
    add_group(page_data, "readers", ahead=7)
    with CaptureQueriesContext(connection) as few:
        admin.get(url(page_data))
    for number in range(60):
        make_mirror(page_data.link, f"many-{number:02}", MirrorState.ACTIVE, now=page_data.now)

    with CaptureQueriesContext(connection) as many:
        response = admin.get(url(page_data))

    assert response.status_code == 200
    assert len(many) <= len(few) <= 10
    assert queue.called == []


def test_review_counts_only_topics_that_can_be_failed_over(admin: Client, page_data: PageData) -> None:
    MirrorTopic.objects.filter(name="flights").update(deletion_requested_at=page_data.now)

    text = review(admin, page_data, mirror=["planes", "flights"]).content.decode()

    assert "Fail over 1 of 2 mirror topics?" in text
    assert "Fail over 1 topic<" in text
    assert "Topic &#x27;flights&#x27; is being deleted." in text
    assert "<dt>Records at risk</dt><dd><strong>216</strong>" in text
    assert set(rows_of(text)) == {"planes"}

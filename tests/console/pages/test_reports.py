"""Failover reports as page, JSON and PDF. They outlive the mirror topic and the link."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from console.actors import SYSTEM
from console.links.actions import remove_link
from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic, RoleBinding, StopReport
from console.verification import pages as verification_pages
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData, make_mirror, make_user
from tests.browser.page_fixtures import REPORT
from tests.console.pages.conftest import client_of

URL = f"/failover-reports/{REPORT}/"
CHECKLIST = [{"text": "Producers are stopped.", "confirmed": True}, {"text": "Consumers are stopped.", "confirmed": False}]


def text(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return str(response.content.decode())


def delete_link(page_data: PageData) -> None:
    """Delete the link as its action does, after all mirrors were stopped."""
    MirrorTopic.objects.filter(link=page_data.link).update(state=MirrorState.STOPPED)
    remove_link(link=ClusterLink.objects.get(pk=page_data.link.pk), by=SYSTEM, now=page_data.now)


def add_operation(page_data: PageData, *, stopped: int, waiting: int = 0, refused: int = 0) -> BulkOperation:
    """Add a failover of several topics, some of which have a report."""
    operation = BulkOperation.objects.create(
        link=page_data.link,
        operation="failover",
        user=page_data.admin,
        requested_by="amelia",
        requested_at=page_data.now,
        options={"reason": "us-west is down.", "checklist": CHECKLIST},
    )
    for number in range(stopped + waiting):
        mirror = make_mirror(page_data.link, f"stopped-{number:03}", MirrorState.STOPPED, now=page_data.now)
        BulkOperationTopic.objects.create(operation=operation, name=mirror.name, status="ACCEPTED", done_at=page_data.now)
        if number < stopped:
            StopReport.objects.create(
                mirror=mirror,
                reason="failover",
                requested_by="amelia",
                requested_at=page_data.now,
                writable_at=page_data.now + timedelta(seconds=number),
                operation_number=operation.pk,
                request_reason="us-west is down.",
                checklist=CHECKLIST,
                records_not_copied=number,
                rpo_ms=number,
                rto_ms=1,
            )
    for number in range(refused):
        BulkOperationTopic.objects.create(operation=operation, name=f"refused-{number}", status="FAILED", done_at=page_data.now)
    return operation


def test_page_of_a_report_has_its_figures_groups_and_partitions(admin: Client, page_data: PageData) -> None:
    shown = text(admin, URL)

    for words in ("Failover of gates", "412", "41 s", "2 s", "app-gates", "40,412", "none given", "amelia"):
        assert words in shown
    assert f'href="{page_data.mirror_url("gates")}"' in shown
    assert f'href="{URL}report.json"' in shown


def test_json_of_a_report_is_a_file_with_the_same_figures(admin: Client, page_data: PageData) -> None:
    response = admin.get(f"{URL}report.json")
    (row,) = response.json()["data"]

    assert response["Content-Disposition"] == f'attachment; filename="failover-report-{REPORT}.json"'
    assert (row["mirror_topic_name"], row["link_name"], row["records_not_copied"]) == ("gates", "west-to-east", 412)
    assert [(group["group"], group["after"]) for group in row["groups_clamped"]] == [("app-gates", 40_000)]


def test_report_outlives_its_link_with_groups_and_names(admin: Client, page_data: PageData) -> None:
    delete_link(page_data)

    shown, listed = text(admin, URL), text(admin, "/failover-reports/")
    (row,) = admin.get(f"{URL}report.json").json()["data"]

    assert "west-to-east (deleted)" in shown
    assert "app-gates" in shown
    assert page_data.link_url not in shown
    assert "gates" in listed
    assert row["groups_clamped_total"] == 1
    assert (row["source_cluster_id"], row["destination_cluster_id"]) == (page_data.west.cluster_id, page_data.east.cluster_id)


def test_report_outlives_its_mirror_topic_on_the_tab_of_the_link(admin: Client, page_data: PageData) -> None:
    page_data.mirrors["gates"].delete()

    shown = text(admin, f"{page_data.link_url}stops/")
    totals = admin.get(f"{page_data.link_url}stops/?format=json").json()["totals"]

    assert f'<a href="{URL}">gates</a> <span class="tag">deleted</span>' in shown
    assert totals["records_not_copied"] == 412


def test_totals_count_the_newest_report_of_a_topic_that_was_mirrored_again(admin: Client, page_data: PageData) -> None:
    page_data.mirrors["gates"].delete()
    again = make_mirror(page_data.link, "gates", MirrorState.STOPPED, now=page_data.now)
    about = {
        "reason": "failover",
        "requested_by": "amelia",
        "requested_at": page_data.now,
        "writable_at": page_data.now,
        "rto_ms": 1,
    }
    StopReport.objects.create(mirror=again, records_not_copied=5, rpo_ms=1, **about)

    totals = admin.get(f"{page_data.link_url}stops/?format=json").json()["totals"]

    assert (totals["mirrors"], totals["records_not_copied"]) == (1, 5)


def test_roles_apply_to_reports_of_deleted_links_by_name(page_data: PageData, reader: Client, stranger: Client) -> None:
    def person(name: str, **resource: Any) -> Client:
        user = make_user(name)
        about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": page_data.now, "granted_by": "system"}
        RoleBinding.objects.create(user=user, cluster=page_data.east, **about, **resource)
        return client_of(user)

    clients = {
        "reader": reader,
        "stranger": stranger,
        "topic": person("dora", resource_type="Topic", resource_name="gates"),
        "other topic": person("emil", resource_type="Topic", resource_name="flights"),
        "link": person("fritz", resource_type="ClusterLink", resource_name="west-to-east"),
        "other link": person("gerda", resource_type="ClusterLink", resource_name="west"),
    }
    expected = {"reader": 200, "stranger": 404, "topic": 200, "other topic": 404, "link": 200, "other link": 404}

    assert {name: client.get(URL).status_code for name, client in clients.items()} == expected
    delete_link(page_data)
    assert {name: client.get(URL).status_code for name, client in clients.items()} == expected
    assert {name: "gates" in text(client, "/failover-reports/") for name, client in clients.items()} == {
        name: status == 200 for name, status in expected.items()
    }


def test_report_of_an_operation_has_reason_checklist_and_totals(admin: Client, page_data: PageData) -> None:
    operation = add_operation(page_data, stopped=3)
    url = f"/failover-reports/operations/{operation.pk}/"

    shown = text(admin, url)
    content = admin.get(f"{url}report.json").json()

    for words in (
        "Failover of 3 mirror topics",
        "us-west is down.",
        "Producers are stopped. <strong>Confirmed",
        "Not confirmed",
    ):
        assert words in shown
    assert content["totals"] == {"mirrors": 3, "records_not_copied": 3, "worst_rpo_ms": 2, "worst_rto_ms": 1}
    assert (content["topics_without_report"], content["stops"]) == (0, 3)
    assert {row["request_reason"] for row in content["data"]} == {"us-west is down."}
    assert f'href="{url}"' in text(admin, operation.get_absolute_url())


def test_report_of_an_operation_counts_topics_that_have_not_stopped(admin: Client, page_data: PageData) -> None:
    operation = add_operation(page_data, stopped=1, waiting=2, refused=4)

    shown = text(admin, f"/failover-reports/operations/{operation.pk}/")

    assert "The stop of 2 topics of this operation has not ended" in shown


def test_operation_without_stopped_topics_has_no_report_yet(admin: Client, page_data: PageData) -> None:
    operation = add_operation(page_data, stopped=0, waiting=2)

    response = admin.get(f"/failover-reports/operations/{operation.pk}/", follow=True)

    assert response.redirect_chain[-1][0] == operation.get_absolute_url()
    assert "there is no report yet" in response.content.decode()


def test_report_of_an_operation_outlives_operation_and_link(admin: Client, page_data: PageData) -> None:
    operation = add_operation(page_data, stopped=2, waiting=1)
    number = operation.pk
    delete_link(page_data)
    BulkOperation.objects.filter(pk=number).delete()

    shown = text(admin, f"/failover-reports/operations/{number}/")

    assert "Failover of 2 mirror topics" in shown
    assert "us-west is down." in shown
    assert "Topics that were refused, that have not stopped yet, or that you may not see are not known here." in shown


def test_number_of_other_topics_is_hidden_from_a_user_who_sees_one_topic(page_data: PageData) -> None:
    operation = add_operation(page_data, stopped=2, waiting=5)
    user = make_user("dora")
    about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": page_data.now, "granted_by": "system"}
    RoleBinding.objects.create(user=user, cluster=page_data.east, resource_type="Topic", resource_name="stopped-001", **about)

    content = client_of(user).get(f"/failover-reports/operations/{operation.pk}/report.json").json()

    assert [row["mirror_topic_name"] for row in content["data"]] == ["stopped-001"]
    assert content["topics_without_report"] is None


def test_report_of_an_operation_is_paged_and_its_queries_do_not_grow(
    admin: Client, page_data: PageData, django_assert_max_num_queries: Any
) -> None:
    operation = add_operation(page_data, stopped=60)
    url = f"/failover-reports/operations/{operation.pk}/"

    with django_assert_max_num_queries(10):
        shown = text(admin, url)

    assert "Failover of 60 mirror topics" in shown
    assert ("stopped-049" in shown, "stopped-050" in shown) == (True, False)
    assert "stopped-059" in text(admin, f"{url}?page=2")


def test_pdf_of_a_report_is_a_file(admin: Client, page_data: PageData) -> None:
    pytest.importorskip("reportlab")

    response = admin.get(f"{URL}report.pdf")

    assert response["Content-Type"] == "application/pdf"
    assert response["Content-Disposition"] == f'attachment; filename="failover-report-{REPORT}.pdf"'
    assert response.content.startswith(b"%PDF-")
    assert response.content.rstrip().endswith(b"%%EOF")


def test_rejected_configs_have_peoples_units_but_not_in_json(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("reportlab")
    from reportlab import rl_config  # noqa: PLC0415

    monkeypatch.setattr(rl_config, "pageCompression", 0)
    step = {
        "name": "retention.ms",
        "value": "2592000000",
        "code": "POLICY_VIOLATION",
        "message": "7 days.",
        "resolved_at": None,
    }
    StopReport.objects.filter(pk=REPORT).update(refused=[step])

    for url in (URL, page_data.mirror_url("gates", "failover-reports")):
        assert ">30 days (2592000000)<" in text(admin, url)
    assert b"30 days" in admin.get(f"{URL}report.pdf").content
    assert "30 days" not in text(admin, f"{URL}report.json")
    assert "2592000000" in text(admin, f"{URL}report.json")


def test_pdf_of_an_operation_lists_a_limited_number_of_topics(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(verification_pages, "PDF_ROWS", 2)

    def to_pdf(document: object, *, more: object) -> bytes:
        found.append((document, more))
        return b"%PDF-"

    monkeypatch.setattr(verification_pages, "to_pdf", to_pdf)
    operation = add_operation(page_data, stopped=3)

    admin.get(f"/failover-reports/operations/{operation.pk}/report.pdf")

    ((document, more),) = found
    assert ([row.name for row in document.rows], more) == (["stopped-000", "stopped-001"], 1)
    assert dict(document.facts)["Operation"] == str(operation.pk)

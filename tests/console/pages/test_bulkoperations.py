"""The Operations section: list, progress, results by topic, cancel, retry, and the visibility of an operation."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.links.actions import remove_link
from console.mirrors.transitions import apply_event
from console.models import AuditEvent, BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic, RoleBinding
from console.models.links import show_change
from linkengine.domain.states import MirrorEvent
from tests.browser.page_data import PageData
from tests.browser.page_fixtures import OPERATION
from tests.console.pages.conftest import client_of, htmx
from tests.console.pages.test_bulk import carry_out, confirm, request, results

URL = f"/operations/{OPERATION}/"


@pytest.fixture
def operation(page_data: PageData) -> BulkOperation:
    """Waits for weather, has failed for gates, was accepted for airports."""
    return BulkOperation.objects.get(pk=OPERATION)


def row_of(text: str, name: str) -> str:
    """Return the table row of a topic."""
    return next(row for row in text.split("<tr")[1:] if f">{name}</a></th>" in row)


def test_page_shows_progress_requester_and_the_result_of_each_topic(admin: Client) -> None:
    text = admin.get(URL).content.decode()

    assert "<h1>Pause 3 mirror topics</h1>" in text
    assert "<strong>2 of 3</strong> topics processed" in text
    assert '<progress class="progress-line" max="3" value="2"' in text
    assert "by amelia" in text
    assert "In progress" in text
    assert "already stopped its mirror" in row_of(text, "gates")
    assert "Paused" in row_of(text, "airports")
    assert text.index(">gates</a></th>") < text.index(">airports</a></th>")  # failed topics come first


def test_results_are_filtered_by_status(admin: Client) -> None:
    text = admin.get(f"{URL}?status=FAILED").content.decode()

    assert ">gates</a></th>" in text
    assert ">airports</a></th>" not in text
    assert re.findall(r'<option value="([A-Z]+)"( selected)?>(.*?)</option>', text) == [
        ("FAILED", " selected", "Failed (1)"),
        ("WAITING", "", "Waiting (1)"),
        ("ACCEPTED", "", "Accepted (1)"),
    ]


def test_file_of_the_results_has_the_state_and_the_reason_of_the_mirror_topic(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="promote", mirror=["flights", "weather"])
    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)
    carry_out(response)
    MirrorTopic.objects.filter(name="flights").update(error_code="TIMEOUT_ERROR", error_message="No response.")

    file = admin.get(f"{response['Location']}?format=csv").getvalue().decode()

    columns = ("topic", "result", "state", "error_code", "message")
    assert [tuple(row[column] for column in columns) for row in csv.DictReader(io.StringIO(file))] == [
        (
            "weather",
            "FAILED",
            "PENDING_STOPPED",
            "CONFLICT",
            "Cannot promote a mirror topic in state PENDING_STOPPED. Allowed now: failover, delete.",
        ),
        ("flights", "REQUESTED", "PENDING_STOPPED", "TIMEOUT_ERROR", "No response."),
    ]


def test_refused_cancellation_shows_a_list_that_leads_to_the_page_of_the_operation(
    admin: Client, operation: BulkOperation
) -> None:
    operation.topics.filter(status="WAITING").update(status="ACCEPTED")
    BulkOperationTopic.objects.bulk_create(
        BulkOperationTopic(operation=operation, name=f"many-{number}", status="ACCEPTED") for number in range(60)
    )

    response = admin.post(f"{URL}cancel/")

    text = response.content.decode()
    assert response.status_code == 409
    addresses = re.findall(
        r'<a (?:id="(?:sort-\d|list-csv)"|[^>]*id="list-csv"|class="btn btn-plain btn-sm") href="([^"]+)"', text
    )
    assert len(addresses) >= 5
    assert {address.partition("?")[0] for address in addresses} == {URL}


def test_page_is_polled_and_returns_nothing_if_nothing_has_changed(page_data: PageData, admin: Client) -> None:
    found = re.search(r'name="seen" value="([^"]+)"', admin.get(URL).content.decode())
    assert found
    poll = f"{URL}?seen={found[1]}"

    unchanged = admin.get(poll, **htmx("live")).status_code
    BulkOperationTopic.objects.filter(operation=OPERATION).update(status="ACCEPTED")
    show_change(page_data.link.pk)
    changed = admin.get(poll, **htmx("live"))

    assert unchanged == 204
    assert "<strong>3 of 3</strong>" in changed.content.decode()


def test_cancel_stops_the_topics_that_have_not_begun(admin: Client, operation: BulkOperation) -> None:
    response = admin.post(f"{URL}cancel/")
    text = admin.get(URL).content.decode()

    assert response["Location"] == URL
    assert results(operation) == {"airports": "ACCEPTED", "gates": "FAILED", "weather": "CANCELED"}
    assert "1 topic canceled." in text
    assert "Canceled by</dt><dd>amelia" in text
    assert "Cancel 1 waiting" not in text
    assert admin.post(f"{URL}cancel/").status_code == 409


def test_reader_of_the_link_sees_the_operation_but_cannot_cancel_it(reader: Client, operation: BulkOperation) -> None:
    text = reader.get(URL).content.decode()

    assert "<h1>Pause 3 mirror topics</h1>" in text
    assert "Cancel 1 waiting" not in text
    assert reader.post(f"{URL}cancel/").status_code == 403
    assert results(operation)["weather"] == "WAITING"


def test_user_without_a_role_sees_no_operation(stranger: Client) -> None:
    assert stranger.get(URL).status_code == 404
    assert stranger.post(f"{URL}cancel/").status_code == 404
    assert "Pause 3 mirror topics" not in stranger.get("/operations/").content.decode()


def test_user_with_a_role_on_some_topics_sees_only_own_operations(page_data: PageData) -> None:
    user = User.objects.create_user("dora")
    place = {"cluster": page_data.east, "resource_type": "Topic", "resource_name": "flights"}
    RoleBinding.objects.create(user=user, role="DeveloperManage", granted_at=page_data.now, granted_by="test", **place)
    client = client_of(user)
    requested = request(client, page_data.link_url, operation="pause", mirror=["flights"])

    own = confirm(client, page_data.link_url, requested)["Location"]

    assert client.get(own).status_code == 200
    assert client.get(URL).status_code == 404
    assert client.get("/operations/").content.decode().count("mirror topic</a></th>") == 1


def test_failed_topics_are_retried_through_a_new_confirmation(
    page_data: PageData, admin: Client, operation: BulkOperation
) -> None:
    admin.post(f"{URL}cancel/")
    text = admin.get(URL).content.decode()
    MirrorTopic.objects.filter(pk=page_data.mirrors["gates"].pk).update(state="ACTIVE")

    requested = request(admin, page_data.link_url, operation="pause", retry=str(OPERATION))
    retried = carry_out(confirm(admin, page_data.link_url, requested))

    assert "Retry 1 failed topic" in text
    assert "Pause 1 mirror topic?" in requested.content.decode()
    assert retried.retry_of == operation
    assert results(retried) == {"gates": "ACCEPTED"}
    assert f'<a href="{URL}">Operation {OPERATION}</a>' in admin.get(f"/operations/{retried.pk}/").content.decode()


def test_operation_that_is_not_visible_cannot_be_retried(page_data: PageData, admin: Client) -> None:
    for key in ("1", "x", "9" * 40):
        assert request(admin, page_data.link_url, operation="pause", retry=key).status_code == 404


def test_finished_operation_without_failures_is_shown_as_done(admin: Client) -> None:
    BulkOperationTopic.objects.filter(operation=OPERATION).update(status="ACCEPTED", error_code="", message="")

    text = admin.get(URL).content.decode()

    assert "The operation was accepted for all topics." in text
    assert 'id="retry"' not in text


def test_promotion_is_finished_when_all_topics_are_stopped(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="promote", mirror=["flights", "planes"])
    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)
    url, operation = response["Location"], carry_out(response)
    MirrorTopic.objects.filter(name="flights").update(error_code="TIMEOUT_ERROR", error_message="No response.")
    dated = {"since": timezone.now(), "last_seen_at": timezone.now()}
    page_data.mirrors["planes"].transition_errors.create(code="AUTHORIZATION_ERROR", message="No READ on planes.", **dated)
    started = admin.get(url).content.decode()
    listed = admin.get("/operations/?status=REQUESTED").content.decode()
    stop("flights")
    half = admin.get(url).content.decode()
    waiting = admin.get(f"{url}?status=REQUESTED").content.decode()
    stop("planes")

    ended = admin.get(url).content.decode()

    assert "0 of 2 stopped and writable" in started
    assert "No response." in row_of(started, "flights")
    assert badge_of(started) == ("busy", "REQUESTED")
    assert "Promote 2 mirror topics" in listed
    assert "1 of 2 stopped and writable" in half
    assert ("Done" in row_of(half, "flights"), "Requested" in row_of(half, "planes")) == (True, True)
    assert "No response." not in row_of(half, "flights")
    assert "No READ on planes." in row_of(half, "planes")  # the reason of the wait
    assert ">flights</a></th>" not in waiting
    assert "2 of 2 stopped and writable" in ended
    assert badge_of(ended) == ("ok", "FINISHED")
    assert operation.finished_at is not None


def test_topics_that_were_failed_over_since_are_not_claimed_by_the_promotion(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="promote", mirror=["flights", "planes"])
    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)
    carry_out(response)
    admin.post(f"{page_data.mirror_url('planes')}failover/", {"confirm": "planes"})
    stop("flights")
    stop("planes")

    text = admin.get(response["Location"]).content.decode()

    assert "1 of 2 stopped and writable · 1 changed since" in text
    assert badge_of(text) == ("done", "CHANGED")
    assert "Changed since" in row_of(text, "planes")


def stop(name: str) -> None:
    mirror = MirrorTopic.objects.get(name=name)
    apply_event(mirror=mirror, event=MirrorEvent.FENCED, by=ENGINE, now=timezone.now())


def badge_of(text: str) -> tuple[str, ...]:
    """Return the family and the code of the badge beside the heading."""
    found = re.search(r'</h1>\s*<span role="status"><span class="badge-state (\w+)" title="(\w+)">', text)
    assert found
    return found.groups()


def test_operation_outlives_its_link(page_data: PageData, admin: Client, reader: Client, stranger: Client) -> None:
    link = page_data.link
    BulkOperationTopic.objects.filter(operation=OPERATION, status="WAITING").update(status="ACCEPTED")
    MirrorTopic.objects.filter(link=link).delete()
    link.delete()

    text = admin.get(URL).content.decode()
    listed = admin.get(f"/operations/?q={link.name}").content.decode()
    csv = admin.get("/operations/?format=csv").getvalue().decode()

    assert f'{link.name} <span class="tag">deleted</span>' in text
    assert 'id="retry"' not in text
    assert 'id="ended"' not in text
    assert deletion_in(text) == "time unknown"
    assert "already stopped its mirror" in text
    assert f'{link.name} <span class="tag">deleted</span>' in listed
    assert f"{page_data.east.cluster_id},{link.name}," in csv
    assert reader.get(URL).status_code == 200
    assert stranger.get(URL).status_code == 404
    assert admin.post(f"{URL}cancel/").status_code == 409
    assert admin.post(f"{URL}retry/").status_code == 409


def deletion_in(text: str) -> str:
    """Return when and by whom the link was deleted, as a page of an operation shows it."""
    (cell,) = re.findall(r'<dd id="link-deleted-at">(.*?)</dd>', text, re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", cell).split())


def delete_link(page_data: PageData) -> None:
    MirrorTopic.objects.filter(link=page_data.link).update(state="STOPPED")
    by = Actor(name="boris", user=None, trusted=True)
    remove_link(link=ClusterLink.objects.get(pk=page_data.link.pk), by=by, now=timezone.now())


@pytest.mark.parametrize("verb", ["promote", "delete"])
def test_operation_of_a_deleted_link_says_who_deleted_it_and_does_not_claim_a_change(
    page_data: PageData, admin: Client, verb: str
) -> None:
    requested = request(admin, page_data.link_url, operation=verb, mirror=["flights", "planes"])
    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)
    url, operation = response["Location"], carry_out(response)
    recorded = results(operation)
    MirrorTopic.objects.filter(link=page_data.link).update(deletion_requested_at=None)
    found = re.search(r'name="seen" value="([^"]+)"', admin.get(url).content.decode())
    assert found
    delete_link(page_data)

    assert admin.get(f"{url}?seen={found[1]}", **htmx("live")).status_code == 200
    text = admin.get(url).content.decode()
    rows = text.split("<tbody>")[1]

    assert f"Cluster link {page_data.link.name} was deleted. The results below stay as they were recorded" in text
    assert deletion_in(text).startswith("just now")
    assert deletion_in(text).endswith("by boris")
    assert badge_of(text) == ("done", "LINK_DELETED")
    assert rows.count("Link deleted since") == 2
    assert "Changed since" not in text
    assert results(operation) == recorded
    assert f"{verb.title()} 2 mirror topics" in admin.get("/operations/?status=LINK_DELETED").content.decode()
    assert f"{verb.title()} 2 mirror topics" not in admin.get("/operations/?status=CHANGED").content.decode()


def test_deletion_of_a_later_link_of_the_same_name_is_not_shown(page_data: PageData, admin: Client) -> None:
    MirrorTopic.objects.filter(link=page_data.link).delete()
    resource = f"cluster/{page_data.east.cluster_id}/link/{page_data.link.name}"
    event = {"action": "DeleteClusterLink", "resource": resource, "result": "SUCCESS"}
    for actor, hours in (("earlier", -2_000), ("dora", 1), ("later", 2)):
        AuditEvent.objects.create(actor=actor, at=timezone.now() + timedelta(hours=hours), **event)
    page_data.link.delete()

    assert deletion_in(admin.get(URL).content.decode()).endswith("by dora")


def test_reader_without_the_audit_log_sees_when_the_link_was_deleted_but_not_by_whom(
    page_data: PageData, reader: Client
) -> None:
    delete_link(page_data)

    shown = deletion_in(reader.get(URL).content.decode())

    assert shown.startswith("just now")
    assert "boris" not in shown


def test_audit_log_does_not_link_to_operations_that_were_deleted(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="pause", mirror=["flights", "planes"])
    url = confirm(admin, page_data.link_url, requested)["Location"]
    BulkOperation.objects.filter(operation="pause").delete()

    for page in ("/audit/", f"{page_data.link_url}activity/"):
        text = admin.get(page).content.decode()
        assert "StartBulkOperation" in text
        assert url not in text


def test_audit_log_links_to_the_operation(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="pause", mirror=["flights", "planes"])
    url = confirm(admin, page_data.link_url, requested)["Location"]

    event = AuditEvent.objects.get(action="StartBulkOperation")

    assert event.detail == {"bulk_operation": int(url.split("/")[2]), "operation": "pause", "topics": 2}
    for page in ("/audit/", f"{page_data.link_url}activity/"):
        assert f'<a href="{url}">Operation and results by topic</a>' in admin.get(page).content.decode()


def test_list_is_paged_and_shows_the_progress_of_each_operation(page_data: PageData, admin: Client) -> None:
    values: dict[str, Any] = {
        "link": page_data.link,
        "link_name": page_data.link.name,
        "destination": page_data.link.destination,
        "operation": "resume",
        "requested_by": "amelia",
        "requested_at": page_data.now,
    }
    BulkOperation.objects.bulk_create(BulkOperation(**values) for _ in range(60))

    text = admin.get("/operations/").content.decode()
    second = admin.get("/operations/?page=2").content.decode()

    assert "1 to 50 of 61" in text
    assert "51 to 61 of 61" in second
    assert "2 of 3" in text + second

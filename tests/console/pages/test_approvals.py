"""Pages of approvals."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.access.actions import grant_role
from console.actors import SYSTEM
from console.models import ApprovalRequest, MirrorTopic
from tests.browser.page_data import PageData, make_user
from tests.console.pages.conftest import client_of, htmx
from tests.console.pages.test_bulk import carry_out


@pytest.fixture
def operator(page_data: PageData) -> Client:
    """Charles, as an operator of the environment, in which failovers need an approval."""
    page_data.environment.approval_operations = ["failover"]
    page_data.environment.save()
    grant_role(user=page_data.stranger, role="Operator", environment=page_data.environment, by=SYSTEM, now=page_data.now)
    return client_of(page_data.stranger)


def submit_request(page_data: PageData, client: Client) -> str:
    values = {"link": str(page_data.link.pk), "operation": "failover", "topics": "flights", "reason": "The source is down."}
    return str(client.post("/access/approvals/new/", values)["Location"])


def test_a_failover_is_requested_approved_and_carried_out(page_data: PageData, operator: Client, admin: Client) -> None:
    failover = {"confirm": "flights", "reason": "x"}
    assert operator.post(f"{page_data.mirror_url('flights')}failover/", failover).status_code == 409
    assert MirrorTopic.objects.get(name="flights").state == "ACTIVE"

    address = submit_request(page_data, operator)
    assert "The source is down." in admin.get(address).content.decode()
    assert "Approve" not in operator.get(address).content.decode().split("<h1", 1)[1]
    assert operator.post(f"{address}approve/", {"lasts": "1"}).status_code == 403
    admin.post(f"{address}approve/", {"lasts": "1", "reason": "Go ahead."})

    request = ApprovalRequest.objects.get(user=page_data.stranger)
    assert (request.status, request.decided_by, request.topics) == ("APPROVED", page_data.admin, ["flights"])
    operator.post(f"{page_data.mirror_url('flights')}failover/", failover)
    assert MirrorTopic.objects.get(name="flights").state == "PENDING_STOPPED"
    assert "Go ahead." in operator.get(address).content.decode()


@pytest.mark.parametrize("dialog", [False, True])
def test_a_confirmation_leads_to_the_request(page_data: PageData, operator: Client, dialog: bool) -> None:
    response = operator.get(f"{page_data.mirror_url('flights')}failover/", **(htmx("dialog") if dialog else {}))

    text = response.content.decode()
    assert response.status_code == 409
    assert "needs the approval of a second user in environment Production" in text
    assert 'id="confirm-button"' not in text
    (address,) = re.findall(r'href="(/access/approvals/new/[^"]*)"', text)
    form = operator.get(html.unescape(address)).content.decode()
    assert re.search(r">\s*flights</textarea>", form)
    assert '<option value="failover" selected>' in form
    assert f'<option value="{page_data.link.pk}" selected>' in form


def test_the_failover_page_shows_what_is_approved_and_requests_the_rest(
    page_data: PageData, operator: Client, admin: Client
) -> None:
    admin.post(f"{submit_request(page_data, operator)}approve/", {"lasts": "1", "reason": "Go ahead."})

    reviewed = operator.post(f"{page_data.link_url}failover/", {"mirror": ["flights", "planes"]}).content.decode()
    assert "1 topic needs the approval of a second user." in " ".join(reviewed.split())
    assert "Approved by amelia: Go ahead." in reviewed
    assert "planes</span>: This operation needs the approval of a second user." in reviewed
    fields = dict(re.findall(r'<input type="hidden" name="(prefill|link|operation)" value="([^"]*)">', reviewed))
    (topics,) = re.findall(r'<textarea name="topics"[^>]*>([^<]*)</textarea>', reviewed)
    form = operator.post("/access/approvals/new/", {**fields, "topics": topics})
    assert form.status_code == 200
    assert re.search(r">\s*planes</textarea>", form.content.decode())
    assert ApprovalRequest.objects.filter(user=page_data.stranger).count() == 1

    alone = operator.post(f"{page_data.link_url}failover/", {"mirror": ["flights"]}).content.decode()
    assert "All these topics are approved by a second user." in alone
    seen = dict(re.findall(r'<input type="hidden" name="(seen)" value="([^"]*)">', alone))
    values = {"mirror": "flights", "confirmed": "1", "confirm": page_data.link.name, "reason": "x", **seen}
    carry_out(operator.post(f"{page_data.link_url}failover/", values))
    assert MirrorTopic.objects.get(name="flights").state == "PENDING_STOPPED"


def test_pages_of_environments_without_the_rule_do_not_mention_it(page_data: PageData, admin: Client) -> None:
    text = admin.post(f"{page_data.link_url}failover/", {"mirror": ["flights"]}).content.decode()

    assert "Second approver" not in text
    assert 'id="confirm-button"' in text


def test_a_bulk_confirmation_shows_the_missing_approvals(page_data: PageData, operator: Client) -> None:
    text = operator.post(
        f"{page_data.link_url}bulk/", {"operation": "failover", "mirror": ["flights", "planes"]}
    ).content.decode()

    assert "2 topics need the approval of a second user." in " ".join(text.split())
    assert 'id="request-approval"' in text


def test_the_navigation_shows_how_many_requests_wait_for_the_user(
    page_data: PageData, operator: Client, admin: Client, reader: Client
) -> None:
    def shown(client: Client) -> list[tuple[str, str]]:
        return re.findall(r'id="undecided" href="([^"]+)".*?</svg>([^<]+)</a>', client.get("/links/").content.decode())

    rejected = ApprovalRequest.objects.get().get_absolute_url()
    address = submit_request(page_data, operator)
    listed = "/access/approvals/?status=REQUESTED"

    assert shown(admin) == [(listed, "Approvals: 2")]
    assert shown(operator) == [(listed, "Approvals: 1")]  # not the own request
    assert shown(reader) == []
    assert admin.get(listed).content.decode().count(address) == 1
    for each in (address, rejected):
        admin.post(f"{each}reject/", {"reason": "Not now.", "lasts": "1"})
    assert shown(admin) == shown(operator) == []


def test_the_navigation_of_a_superuser_shows_waiting_requests(page_data: PageData, operator: Client) -> None:
    root = make_user("root")
    root.is_superuser = True
    root.save()
    submit_request(page_data, operator)

    assert "Approvals: 2" in client_of(root).get("/links/").content.decode()


def test_requests_that_have_expired_are_not_announced(page_data: PageData, admin: Client) -> None:
    ApprovalRequest.objects.update(expires_at=page_data.now - timedelta(seconds=1))

    assert 'id="undecided"' not in admin.get("/links/").content.decode()


def test_a_request_is_announced_to_users_who_may_decide_about_its_operation(page_data: PageData, admin: Client) -> None:
    """A deletion needs more than the role Operator; roles on the link count, roles on another link or a topic do not."""
    ApprovalRequest.objects.update(operation="delete")
    link = {"cluster": page_data.east, "resource_type": "ClusterLink"}
    scopes: dict[str, dict[str, Any]] = {
        "operator": {"role": "Operator", "environment": page_data.environment},
        "owner": {"role": "ResourceOwner", "resource_name": page_data.link.name, **link},
        "prefix": {"role": "ResourceOwner", "resource_name": "west-", "prefixed": True, **link},
        "other": {"role": "ResourceOwner", "resource_name": "south-archive", **link},
        "topic": {"role": "ResourceOwner", "cluster": page_data.east, "resource_type": "Topic", "resource_name": "flights"},
    }

    shown = {}
    for name, scope in scopes.items():
        user = make_user(name)
        grant_role(user=user, **scope, by=SYSTEM, now=page_data.now)
        shown[name] = "Approvals: 1" in client_of(user).get("/links/").content.decode()

    assert shown == {"operator": False, "owner": True, "prefix": True, "other": False, "topic": False}


def test_a_rejection_needs_a_reason(page_data: PageData, operator: Client, admin: Client) -> None:
    address = submit_request(page_data, operator)

    assert admin.post(f"{address}reject/", {"lasts": "1"}).status_code == 422
    admin.post(f"{address}reject/", {"lasts": "1", "reason": "Not now."})
    assert "Not now." in operator.get(address).content.decode()
    assert admin.post(f"{address}approve/", {"lasts": "1"}).status_code == 409


def test_a_request_is_withdrawn(page_data: PageData, operator: Client, admin: Client) -> None:
    address = submit_request(page_data, operator)

    operator.post(f"{address}withdraw/")

    assert admin.post(f"{address}approve/", {"lasts": "1"}).status_code == 409
    assert "Withdrawn" in admin.get("/access/approvals/").content.decode()


def test_an_operation_without_the_rule_needs_no_request(page_data: PageData, operator: Client) -> None:
    values = {"link": str(page_data.link.pk), "operation": "promote", "topics": "", "reason": "x"}

    assert operator.post("/access/approvals/new/", values).status_code == 422


def test_a_reader_sees_requests_and_decides_nothing(page_data: PageData, operator: Client, reader: Client) -> None:
    address = submit_request(page_data, operator)

    assert reader.get(address).status_code == 200
    assert reader.post(f"{address}approve/", {"lasts": "1"}).status_code == 403
    assert reader.post(f"{address}withdraw/").status_code == 403
    assert ApprovalRequest.objects.get(user=page_data.stranger).status == "REQUESTED"


def test_a_user_with_a_role_on_a_topic_sees_own_requests_only(page_data: PageData, operator: Client) -> None:
    """A request names mirror topics, which that user may not see."""
    address = submit_request(page_data, operator)
    others = make_user("dorothy")
    topic: dict[str, Any] = {"cluster": page_data.east, "resource_type": "Topic", "resource_name": "flights"}
    grant_role(user=others, role="Operator", by=SYSTEM, now=page_data.now, **topic)

    assert client_of(others).get(address).status_code == 404
    assert client_of(others).get(submit_request(page_data, client_of(others))).status_code == 200


def test_users_without_a_role_see_no_requests(page_data: PageData, operator: Client, stranger: Client) -> None:
    address = submit_request(page_data, operator)
    page_data.stranger.role_bindings.all().delete()

    assert client_of(page_data.stranger).get(address).status_code == 404


def test_the_rule_is_changed_by_organization_admins_only(page_data: PageData, operator: Client, admin: Client) -> None:
    address = "/access/approvals/environments/production/"

    assert operator.get(address).status_code == operator.post(address).status_code == 404
    assert 'value="failover" checked' in admin.get(address).content.decode()
    admin.post(address, {"operations": ["promote", "delete"]})

    page_data.environment.refresh_from_db()
    assert page_data.environment.approval_operations == ["delete", "promote"]
    assert "Promote" in admin.get("/access/approvals/").content.decode()


def test_the_pages_need_few_queries(page_data: PageData, operator: Client, admin: Client) -> None:
    detail = submit_request(page_data, operator)
    for address in ("/access/approvals/", "/access/approvals/new/", detail):
        with CaptureQueriesContext(connection) as queries:
            assert admin.get(address).status_code == 200
        assert len(queries) <= 10, address

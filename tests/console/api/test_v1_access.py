"""REST of API keys (list, delete) and of requests for a second approver."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from console.access.actions import KeyLimit, create_api_key
from console.access.approvals import approve
from console.actors import SYSTEM, Actor
from console.models import ApiKey, ApprovalRequest, AuditEvent, Cluster, ClusterLink, Environment, MirrorTopic
from tests.console.api.actors import DESTINATION, Rest

KEYS = "/api/v1/api-keys"
REQUESTS = f"/api/v1/clusters/{DESTINATION}/links/from-source/approval-requests"
FAILOVER = f"/kafka/v3/clusters/{DESTINATION}/links/from-source/mirrors:failover"
REQUESTED = {"operation": "failover", "mirror_topic_names": ["orders"], "reason": "The source is down."}


def key_of(name: str, **limit: Any) -> Rest:
    """Return a client with another key of a user."""
    user = User.objects.get(username=name)
    key, secret = create_api_key(user=user, description="", limit=KeyLimit(**limit), by=SYSTEM, now=timezone.now())
    return Rest(key.key, secret)


@pytest.fixture
def governed(environment: Environment) -> Environment:
    environment.approval_operations = ["failover"]
    environment.save()
    return environment


class TestApiKeys:
    """A key sees and deletes the keys of its owner; a limited key only itself."""

    def test_keys_are_listed_without_secrets(self, owner: Rest, destination: Cluster, reader: Rest) -> None:
        limited = key_of("owner", role="Operator", cluster=destination)

        found = {row["key"]: row for row in owner.get(KEYS).json()["data"]}

        assert set(found) == {owner.key, limited.key}
        row = found[limited.key]
        assert (row["owner"], row["role"], row["expires_at"], row["last_used_at"]) == ("owner", "Operator", None, None)
        assert row["scope"].endswith(DESTINATION)
        assert found[owner.key]["last_used_at"] is not None
        assert ApiKey.objects.get(key=owner.key).secret_hash not in owner.get(KEYS).content.decode()

    def test_a_deleted_key_is_rejected_and_the_deletion_audited(self, owner: Rest) -> None:
        other = key_of("owner")

        assert owner.delete(f"{KEYS}/{other.key}").status_code == 204
        assert other.get(KEYS).status_code == 401
        assert AuditEvent.objects.get(action="DeleteApiKey").resource == f"api-key/{other.key}"

    def test_keys_of_others_do_not_exist(self, owner: Rest, reader: Rest) -> None:
        assert owner.delete(f"{KEYS}/{reader.key}").status_code == 404
        assert reader.get(KEYS).status_code == 200

    def test_a_limited_key_sees_and_deletes_itself_only(self, owner: Rest) -> None:
        limited = key_of("owner", role="DeveloperRead")

        assert [row["key"] for row in limited.get(KEYS).json()["data"]] == [limited.key]
        assert limited.delete(f"{KEYS}/{owner.key}").status_code == 404
        assert limited.delete(f"{KEYS}/{limited.key}").status_code == 204
        assert limited.get(KEYS).status_code == 401

    def test_a_key_creates_no_keys(self, owner: Rest) -> None:
        assert owner.post(KEYS, {"description": "successor"}).status_code == 405


@pytest.mark.usefixtures("governed")
class TestApprovalRequests:
    """A program requests an approval; a user of the console decides."""

    def test_a_request_is_stored_approved_and_used(self, owner: Rest, orders: MirrorTopic, environment: Environment) -> None:
        response = owner.post(REQUESTS, REQUESTED)

        stored = response.json()
        assert response.status_code == 201
        assert (stored["status"], stored["mirror_topic_names"], stored["requested_by"]) == ("REQUESTED", ["orders"], "owner")
        assert owner.get(response["Location"].removeprefix("http://testserver")).json() == stored
        assert owner.get(REQUESTS).json()["data"] == [stored]

        approver = User.objects.create_superuser("approver")
        request = ApprovalRequest.objects.get()
        by = Actor(name="approver", user=approver)
        approve(request=request, reason="Go ahead.", lasts=timedelta(hours=1), by=by, now=timezone.now())
        approved = owner.get(f"{REQUESTS}/{request.pk}").json()
        assert (approved["status"], approved["decided_by"], approved["decision_reason"]) == (
            "APPROVED",
            "approver",
            "Go ahead.",
        )
        rows = owner.post(FAILOVER, {"mirror_topic_names": ["orders"]}).json()["data"]
        assert [row["error_code"] for row in rows] == [None]

    def test_nothing_decides_over_rest(self, owner: Rest, orders: MirrorTopic) -> None:
        address = f"{REQUESTS}/{owner.post(REQUESTS, REQUESTED).json()['id']}"

        assert [owner.post(f"{address}/{verb}", {}).status_code for verb in ("approve", "reject")] == [404, 404]

    def test_a_request_is_withdrawn(self, owner: Rest, orders: MirrorTopic) -> None:
        address = f"{REQUESTS}/{owner.post(REQUESTS, REQUESTED).json()['id']}/withdraw"

        assert owner.post(address).json()["status"] == "WITHDRAWN"
        assert owner.post(address).status_code == 400

    def test_requests_of_others_are_not_withdrawn_without_the_permission(
        self, owner: Rest, reader: Rest, orders: MirrorTopic
    ) -> None:
        number = owner.post(REQUESTS, REQUESTED).json()["id"]

        assert reader.get(f"{REQUESTS}/{number}").status_code == 200
        assert reader.post(f"{REQUESTS}/{number}/withdraw").status_code == 403
        assert reader.post(REQUESTS, REQUESTED).status_code == 403

    def test_a_limited_key_requests_no_more_than_it_may_do(self, owner: Rest, orders: MirrorTopic) -> None:
        assert key_of("owner", role="DeveloperRead").post(REQUESTS, REQUESTED).status_code == 403
        assert key_of("owner", role="Operator").post(REQUESTS, REQUESTED).status_code == 201

    @pytest.mark.parametrize(
        "wrong",
        [
            {"mirror_topic_names": ["ordesr"]},
            {"reason": " "},
            {"reason": "x" * 501},
            {"operation": "pause"},
            {"operation": "promote"},
        ],
    )
    def test_wrong_requests_are_refused(self, owner: Rest, orders: MirrorTopic, wrong: dict[str, Any]) -> None:
        assert owner.post(REQUESTS, {**REQUESTED, **wrong}).status_code in {400, 422}
        assert not ApprovalRequest.objects.exists()

    def test_an_unknown_request_is_404(self, owner: Rest, link: ClusterLink) -> None:
        assert owner.get(f"{REQUESTS}/7").status_code == 404

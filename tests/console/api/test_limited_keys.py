"""Limited API keys, rotation and approvals over REST: every request and every token of a key has its limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.access.actions import KeyLimit, create_api_key, rotate_api_key
from console.actors import SYSTEM
from console.models import ApiKey, AuditEvent, Cluster, Environment, MirrorTopic
from tests.console.api.actors import DESTINATION, SOURCE, Rest

PAUSE = "/kafka/v3/clusters/{}/links/from-source/mirrors:pause"


def limited(**limit: Any) -> Rest:
    """Return a client with a limited key of the owner."""
    user = User.objects.get(username="owner")
    key, secret = create_api_key(user=user, description="", limit=KeyLimit(**limit), by=SYSTEM, now=timezone.now())
    return Rest(key.key, secret)


def cluster_ids(client: Any) -> set[str]:
    return {cluster["cluster_id"] for cluster in client.get("/kafka/v3/clusters").json()["data"]}


@pytest.fixture
def pause() -> str:
    return PAUSE.format(DESTINATION)


def test_a_role_limits_the_requests_of_a_key(owner: Rest, orders: MirrorTopic, pause: str) -> None:
    body = {"mirror_topic_names": [orders.name]}

    refused = limited(role="DeveloperRead").post(pause, body).json()["data"]
    accepted = limited(role="Operator").post(pause, body).json()["data"]

    assert [row["error_code"] for row in refused] == [403]
    assert [row["error_code"] for row in accepted] == [None]


def test_a_place_limits_the_requests_of_a_key(owner: Rest, destination: Cluster, source: Cluster) -> None:
    assert cluster_ids(owner) == {DESTINATION, SOURCE}
    assert cluster_ids(limited(cluster=source)) == {SOURCE}


def test_a_token_has_the_limits_of_its_key(owner: Rest, destination: Cluster, source: Cluster) -> None:
    token = limited(cluster=source).post("/api/v1/tokens", {}).json()["access_token"]

    assert cluster_ids(Client(headers={"authorization": f"Bearer {token}"})) == {SOURCE}


def test_the_audit_names_the_key(owner: Rest, orders: MirrorTopic, pause: str) -> None:
    client = limited(role="Operator")

    client.post(pause, {"mirror_topic_names": [orders.name]})

    assert AuditEvent.objects.get(action="PauseMirrorTopic").actor == f"owner (API key {client.key})"


def test_both_secrets_are_accepted_after_a_rotation(owner: Rest) -> None:
    old = ApiKey.objects.get(key=owner.key)
    new, secret = rotate_api_key(api_key=old, overlap=timedelta(hours=1), by=SYSTEM, now=timezone.now())

    assert owner.get("/kafka/v3/clusters").status_code == 200
    assert Rest(new.key, secret).get("/kafka/v3/clusters").status_code == 200


def test_an_operation_without_its_approval_is_refused(
    owner: Rest, orders: MirrorTopic, environment: Environment, pause: str
) -> None:
    environment.approval_operations = ["failover"]
    environment.save()

    rows = owner.post(pause.replace("pause", "failover"), {"mirror_topic_names": [orders.name]}).json()["data"]

    assert [row["error_code"] for row in rows] == [403]
    assert "approval of a second user" in rows[0]["error_message"]

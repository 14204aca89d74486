"""``linkctl api-key`` and ``linkctl link approval``: list, delete; request, list, describe, withdraw."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from console.access.actions import create_api_key
from console.actors import SYSTEM
from console.models import ApiKey, ApprovalRequest, Environment
from tests.console.api.actors import Rest
from tests.linkctl.conftest import Run, read_json


def test_keys_are_listed_and_deleted(run: Run, owner: Rest) -> None:
    user = User.objects.get(username="owner")
    key, _ = create_api_key(user=user, description="terraform", by=SYSTEM, now=timezone.now())

    listed = run("api-key", "list").stdout.splitlines()
    assert listed[0].split()[:3] == ["KEY", "OWNER", "DESCRIPTION"]
    assert any(line.split()[:3] == [key.key, "owner", "terraform"] for line in listed)
    assert {row["key"] for row in read_json(run("api-key", "list", "--json"))["data"]} == {key.key, owner.key}

    assert run("api-key", "delete", key.key, stdin="n\n").exit_code == 1
    assert ApiKey.objects.filter(key=key.key).exists()
    assert run("api-key", "delete", key.key, "--yes").stdout == f"API key {key.key} was deleted\n"
    assert not ApiKey.objects.filter(key=key.key).exists()
    assert run("api-key", "delete", key.key, "--yes").exit_code == 3


def test_an_approval_is_requested_shown_and_withdrawn(run: Run, make_mirror: Any, environment: Environment) -> None:
    make_mirror("orders")
    environment.approval_operations = ["failover"]
    environment.save()

    refused = run("mirror", "failover", "orders", "--link", "from-source")
    assert "approval of a second user" in refused.output
    requested = (
        "link",
        "approval",
        "request",
        "from-source",
        "--operation",
        "failover",
        "--topic",
        "orders",
        "--reason",
        "Storm",
    )
    stored = read_json(run(*requested, "--json"))
    assert ApprovalRequest.objects.get().topics == ["orders"]

    number = str(stored["id"])
    assert run("link", "approval", "list", "from-source").stdout.splitlines()[1].split()[:4] == [
        number,
        "REQUESTED",
        "failover",
        "1",
    ]
    text = run("link", "approval", "describe", "from-source", number).stdout
    assert "Storm" in text
    assert "by owner" in text
    assert read_json(run("link", "approval", "withdraw", "from-source", number, "--json"))["status"] == "WITHDRAWN"
    assert run("link", "approval", "withdraw", "from-source", number).exit_code == 1
    assert run("link", "approval", "describe", "from-source", "999999").exit_code == 3


def test_an_approval_that_is_not_needed_is_not_requested(run: Run, make_mirror: Any) -> None:
    make_mirror("orders")

    result = run("link", "approval", "request", "from-source", "--operation", "promote", "--reason", "x")

    assert result.exit_code == 1
    assert "needs no approval" in result.output

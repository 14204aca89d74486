"""Health of the reconcile passes: steps are independent, and failures are reported by /readyz and /metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client

from console.http.metrics import prometheus_text
from console.models import ClusterLink, Namespace
from console.queue import scheduler
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from console.tasks.links import reconcile, reconcile_link
from devcluster.ports import free_port
from tests.console.conftest import NOW

Sent = list[tuple[str, dict[str, Any]]]
LABELS = '{cluster="destination-id",link="west-to-east"}'


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/9"
    redis_client().flushdb()
    scheduler.note_sending()  # beat is alive


@pytest.fixture
def no_gates(db: None) -> Iterator[None]:
    """Remove a table, as after an upgrade without migrations, so that a step fails."""
    rename = "ALTER TABLE {} RENAME TO {}"
    with connection.cursor() as cursor:
        cursor.execute(rename.format("console_gaterun", "console_elsewhere"))
    yield
    with connection.cursor() as cursor:
        cursor.execute(rename.format("console_elsewhere", "console_gaterun"))


def forget_success(step: str, *, for_s: int) -> None:
    redis_client().set(f"console:step:done:{step}", int((time.time() - for_s) * 1000))


def figures() -> dict[str, float]:
    lines = prometheus_text().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_successful_passes_are_ready(client: Client, link: ClusterLink, sent: Sent) -> None:
    reconcile()
    reconcile_link(link_id=link.pk)

    response = client.get("/readyz")

    assert (response.status_code, response.json()["status"]) == (200, "ready")
    names = ("database", "redis", "worker", "rounds", "links", "copy workers", "mirrors", "clocks", "schedule", "copy")
    assert {name: response.json()["parts"][name] for name in names} == dict.fromkeys(names, "ok")
    shown = figures()
    assert {shown[f'clusterlink_round_late{{step="{step}"}}'] for step in redis_health.STEPS} == {0}
    assert {shown[f'clusterlink_round_failures_total{{step="{step}"}}'] for step in redis_health.STEPS} == {0}
    assert (shown[f"clusterlink_link_late{LABELS}"], shown[f"clusterlink_link_round_failures_total{LABELS}"]) == (0, 0)


@pytest.mark.django_db(transaction=True)  # as in a worker: a failed step must not end the others' transaction
def test_failed_step_is_reported_and_does_not_prevent_the_others(
    client: Client, link: ClusterLink, no_gates: None, sent: Sent
) -> None:
    Namespace.objects.create(
        cluster=link.destination, prefix="a-", reserved=True, guarded=None, created_at=NOW, created_by="owner"
    )

    reconcile()
    reconcile()
    reconcile_link(link_id=link.pk)

    assert {"guard_namespace", "reconcile_link"} <= {name for name, _ in sent}  # of steps after the failed step
    response = client.get("/readyz")
    parts = response.json()["parts"]
    assert (response.status_code, parts["worker"]) == (503, "ok")
    assert re.search(r"gates \(not seen to succeed, fails with \w+Error\)", parts["rounds"])
    assert "worker's log" in parts["rounds"]
    assert not [step for step in redis_health.STEPS if step != "gates" and f"{step} (" in parts["rounds"]]
    shown = figures()
    assert shown['clusterlink_round_late{step="gates"}'] == 1
    assert shown['clusterlink_round_failures_total{step="gates"}'] == 2
    assert shown['clusterlink_round_late{step="namespaces"}'] == 0


def test_old_success_counts_as_late(client: Client, link: ClusterLink, sent: Sent) -> None:
    reconcile()
    reconcile_link(link_id=link.pk)
    forget_success("links", for_s=40)

    response = client.get("/readyz")

    assert response.status_code == 503
    assert re.search(r"links \(last succeeded 4\d s ago\)", response.json()["parts"]["rounds"])


def test_failed_link_is_named_while_the_console_stays_ready(
    client: Client, link: ClusterLink, back: ClusterLink, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile()
    reconcile_link(link_id=link.pk)
    with monkeypatch.context() as patch:
        patch.setattr(ClusterLink, "config", lambda self, name: int(name))  # any error
        reconcile_link(link_id=back.pk)

    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json()["parts"]["links"].startswith(
        "1 of 2 links are not reconciled: west-to-east (not seen to succeed, fails"
    )
    assert figures()[f"clusterlink_link_late{LABELS}"] == 0
    of_back = LABELS.replace("destination-id", "source-id")
    assert figures()[f"clusterlink_link_late{of_back}"] == 1
    assert figures()[f"clusterlink_link_round_failures_total{of_back}"] == 1


def test_console_is_not_ready_if_no_link_is_reconciled(client: Client, link: ClusterLink, sent: Sent) -> None:
    reconcile()

    assert client.get("/readyz").status_code == 503
    reconcile_link(link_id=link.pk)
    assert client.get("/readyz").status_code == 200
    forget_success(redis_health.step_of_link(link.pk), for_s=61)
    assert client.get("/readyz").status_code == 503


def test_without_redis_all_steps_are_late_and_counters_are_missing(link: ClusterLink, settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"

    shown = figures()

    assert {shown[f'clusterlink_round_late{{step="{step}"}}'] for step in redis_health.STEPS} == {1}
    assert shown[f"clusterlink_link_late{LABELS}"] == 1
    assert not [name for name in shown if name.startswith(("clusterlink_round_failures", "clusterlink_link_round_failures"))]


def test_clock_that_differs_from_redis_is_named(client: Client, link: ClusterLink, sent: Sent) -> None:
    with time_machine.travel(time.time() + 10):  # the worker's machine
        redis_health.note_clock("worker")
    reconcile_link(link_id=link.pk)

    with time_machine.travel(time.time() - 5):
        clocks_part = client.get("/readyz").json()["parts"]["clocks"]

    assert re.search(
        r"this process, on \S+: 5\.\d s behind; the worker on \S+: 10\.\d s ahead\. Synchronize all machines", clocks_part
    )
    redis_health.note_clock("worker")
    assert client.get("/readyz").json()["parts"]["clocks"] == "ok"

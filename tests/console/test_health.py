"""Health, readiness and metrics, with the real Redis and without."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import store
from console.models import ClusterLink, GapRange, MirrorPartition
from devcluster.ports import free_port
from tests.console.conftest import NOW, MakeMirror


@pytest.fixture
def no_redis(settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/7"  # a database of its own: other tests are workers too
    store.client().flushdb()


def test_the_process_is_up_without_anything_else(client: Client, no_redis: None) -> None:
    assert client.get("/healthz").json() == {"status": "up"}


@pytest.mark.django_db
def test_ready_means_database_redis_and_a_worker(client: Client, own_redis: None) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["parts"] == {"database": "ok", "redis": "ok", "worker": "no worker has shown life in the last hour"}

    store.note_worker()

    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


@pytest.mark.django_db
def test_without_redis_nothing_is_ready(client: Client, no_redis: None) -> None:
    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["parts"]["redis"] == "does not answer"
    assert answer.json()["parts"]["worker"].startswith("unknown")


def test_metrics_are_prometheus_text(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    MirrorPartition.objects.filter(partition=0).update(source_end=17, caught_up_at=NOW, bytes_copied=1024)
    GapRange.objects.create(mirror=mirror, partition=0, start=1, end=5, reason="LOST", filled=4, noted_at=NOW)

    answer = client.get("/metrics")
    lines = answer.content.decode().splitlines()

    labels = '{cluster="destination-id",link="west-to-east"}'
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in (
        'clusterlink_links{state="ACTIVE"} 1',
        'clusterlink_mirror_topics{state="ACTIVE"} 1',
        'clusterlink_mirror_topics{state="FAILED"} 0',
        f"clusterlink_max_lag_messages{labels} 7",
        f"clusterlink_copied_bytes_total{labels} 1024",
        f"clusterlink_lost_records_total{labels} 4",
    ):
        assert line in lines
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.split("{")[0] for line in lines if not line.startswith("#")} <= names


@pytest.mark.django_db
def test_every_answer_has_an_id_and_strict_headers(client: Client) -> None:
    answer = client.get("/metrics", headers={"X-Request-ID": "my-request-1"})

    assert answer["X-Request-ID"] == "my-request-1"
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert client.get("/healthz", headers={"X-Request-ID": "bad id\n"})["X-Request-ID"].isalnum()


def test_metrics_cost_the_same_for_many_rows(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            client.get("/metrics")
        return len(queries)

    make_mirror("first")
    cost_of_one = cost()
    for number in range(20):
        make_mirror(f"m{number}")

    assert cost() == cost_of_one

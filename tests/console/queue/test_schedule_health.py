"""Health of beat tasks: a task, or a part of it, without success is reported by /readyz and /metrics."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from console.celery import app
from console.http.metrics import prometheus_text
from console.models import Cluster, ClusterLink
from console.queue import scheduler
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from console.tasks.clusters import probe_clusters, probe_spark, refresh_topics
from console.tasks.links import forget_old_rows, reconcile, reconcile_link
from devcluster.ports import free_port

Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def own_redis(settings: Any, redis_url: str, sent: Sent) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/13"
    redis_client().flushdb()


@pytest.fixture
def known(link: ClusterLink) -> ClusterLink:
    """Two clusters and a link that exist since yesterday; passes succeed, and beat has sent all tasks for a day."""
    old = timezone.now() - timedelta(days=1)
    Cluster.objects.update(created_at=old)
    reconcile()
    reconcile_link(link_id=link.pk)
    sending_for(86_000)
    return link


def sending_for(seconds: float) -> None:
    for task in scheduler.EVERY_S:
        redis_client().set(f"console:schedule:since:{task}", int((time.time() - seconds) * 1000))


def all_fine(link: ClusterLink) -> None:
    for task in scheduler.EVERY_S:
        redis_health.note_step_success(scheduler.step_of(task))
    for pk in Cluster.objects.values_list("pk", flat=True):
        for task in ("refresh_topics", "probe_clusters"):
            redis_health.note_step_success(scheduler.step_of(task, cluster=pk))
    redis_health.note_step_success(scheduler.step_of("refresh_topics", link=link.pk))


def readiness(client: Client) -> tuple[int, str]:
    response = client.get("/readyz")
    return response.status_code, response.json()["parts"]["schedule"]


def figure(name: str, task: str) -> float | None:
    start = f'clusterlink_schedule_{name}{{task="{task}"}} '
    return next((float(line.removeprefix(start)) for line in prometheus_text().splitlines() if line.startswith(start)), None)


def test_successful_tasks_are_not_reported(client: Client, known: ClusterLink) -> None:
    all_fine(known)
    redis_client().delete(*(f"console:step:done:beat:{task}" for task in scheduler.EVERY_S))
    assert readiness(client)[1] != "ok"
    forget_old_rows()
    refresh_topics()
    probe_clusters()
    probe_spark()

    assert readiness(client) == (200, "ok")
    assert (
        {figure("late", task) for task in scheduler.EVERY_S}
        == {figure("failures_total", task) for task in scheduler.EVERY_S}
        == {0}
    )


@pytest.mark.django_db(transaction=True)
def test_failing_task_is_named(client: Client, known: ClusterLink) -> None:
    all_fine(known)
    redis_client().delete("console:step:done:beat:forget_old_rows")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE console_verifyrun RENAME TO console_elsewhere")
    try:
        with pytest.raises(Exception):  # noqa: B017, PT011 - any error
            forget_old_rows()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE console_elsewhere RENAME TO console_verifyrun")

    status, words = readiness(client)
    assert status == 200  # failovers remain possible
    assert words.startswith("1 beat task without success for 4 periods: forget_old_rows (not seen to succeed, fails with ")
    assert (figure("late", "forget_old_rows"), figure("failures_total", "forget_old_rows")) == (1, 1)
    assert figure("late", "refresh_topics") == 0


def test_failing_part_of_a_single_cluster_is_named(client: Client, known: ClusterLink, monkeypatch: pytest.MonkeyPatch) -> None:
    all_fine(known)
    step = scheduler.step_of("refresh_topics", cluster=known.destination_id)
    redis_client().set(f"console:step:done:{step}", int((time.time() - 121) * 1000))

    def fail(**_: Any) -> None:
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        scheduler.records_health("refresh_topics")(fail)(cluster_pk=known.destination_id)

    text = r"refresh_topics of cluster Destination \(last succeeded 12\d s ago, fails with KeyError\)"
    assert re.search(text, readiness(client)[1])
    assert figure("late", "refresh_topics") == figure("failures_total", "refresh_topics") == 1


def test_tasks_without_success_are_late_only_after_several_periods(client: Client, known: ClusterLink) -> None:
    sending_for(30)
    assert readiness(client) == (200, "ok")

    sending_for(100)  # more than four periods of ten seconds, less than four of thirty
    assert "probe_spark (not seen to succeed)" in readiness(client)[1]
    assert "refresh_topics" not in readiness(client)[1]

    sending_for(200)
    assert "refresh_topics (not seen to succeed)" in readiness(client)[1]
    assert "probe_clusters" not in readiness(client)[1]


def test_all_tasks_are_late_if_beat_is_not_running(client: Client, known: ClusterLink, settings: Any) -> None:
    redis_client().delete(*(f"console:schedule:since:{task}" for task in scheduler.EVERY_S))
    assert readiness(client)[1].startswith("9 beat tasks")

    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    assert [figure("late", task) for task in scheduler.EVERY_S] == [1, 1, 1, 1]
    assert figure("failures_total", "refresh_topics") is None


def test_all_beat_tasks_are_watched() -> None:
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} == {"reconcile", *scheduler.EVERY_S}

"""Health, readiness and metrics, with the real Redis and without."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console import store
from console.models import ClampedOffset, ClusterLink, Drill, GapRange, LinkTask, MirrorPartition
from console.queries.linktasks import list_tasks
from console.queries.verifymetrics import verify_samples
from devcluster.ports import free_port
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import MirrorState
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
    assert answer.json()["parts"] == {
        "database": "ok",
        "redis": "ok",
        "worker": "no worker is known to have shown life in the last hour",
    }

    store.note_worker()

    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


@pytest.mark.django_db
def test_a_worker_seen_in_the_future_is_not_known_to_live(client: Client, own_redis: None) -> None:
    ahead = timezone.now() + timedelta(hours=1)  # the clock was set back since
    store.client().set("console:worker-seen", int(ahead.timestamp() * 1000))

    assert client.get("/readyz").status_code == 503


@pytest.mark.django_db
def test_without_redis_nothing_is_ready(client: Client, no_redis: None) -> None:
    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["parts"]["redis"] == "does not answer"
    assert answer.json()["parts"]["worker"].startswith("unknown")


def test_what_a_drill_lost_and_set_back_is_no_alarm_of_the_link(
    client: Client, link: ClusterLink, make_mirror: MakeMirror
) -> None:
    drill = Drill.objects.create(link=link, status="PREPARING", status_since=NOW, requested_by="owner", requested_at=NOW)
    copy = make_mirror("orders.clusterlink-drill-1", drill=drill, error_code="INTERNAL_ERROR", error_message="no")
    GapRange.objects.create(mirror=copy, partition=0, start=1, end=5, reason="LOST", filled=4, noted_at=NOW)
    ClampedOffset.objects.create(mirror=copy, stopping_since=NOW, at=NOW, group="app", partition=0)
    copy.transition_errors.create(code="RECORDS_LOST", message="4 lost.", since=NOW, last_seen_at=NOW)

    samples = [line for line in client.get("/metrics").content.decode().splitlines() if not line.startswith("#")]

    assert not [line for line in samples if line.startswith(("clusterlink_lost_records", "clusterlink_clamped_offsets"))]
    assert list_tasks(link=link)[0].errors == ()


def test_what_comparisons_found_on_scratch_copies_is_not_counted_for_their_link(
    link: ClusterLink, make_mirror: MakeMirror
) -> None:
    drill = Drill.objects.create(link=link, status="CHECKING", status_since=NOW, requested_by="owner", requested_at=NOW)
    assert figures() == {"clusterlink_differing_records": 0, "clusterlink_verified_offsets": 0}
    for name, of in (("orders", None), ("orders.clusterlink-drill-1", drill)):
        mirror = make_mirror(name, drill=of)
        for start, differences in ((0, 0), (7, 2)):
            dated = {"first_verified_at": NOW, "verified_at": NOW}
            mirror.verified_ranges.create(partition=0, start=start, end=start + 7, differences=differences, **dated)

    assert figures() == {"clusterlink_differing_records": 2, "clusterlink_verified_offsets": 7}


def figures() -> dict[str, float]:
    """What is measured of the one link there is."""
    return {name: value for name, _, _, samples in verify_samples() for _, value in samples}


def test_metrics_are_prometheus_text(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    MirrorPartition.objects.filter(partition=0).update(
        source_end=17, last_high_watermark=17, caught_up_at=NOW, bytes_copied=1024
    )
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


def samples(client: Client) -> dict[str, float]:
    lines = client.get("/metrics").content.decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_the_age_of_a_lag_is_measured_grows_unseen_and_is_never_made_up(
    client: Client, link: ClusterLink, make_mirror: MakeMirror
) -> None:
    of_link = '{cluster="destination-id",link="west-to-east"}'
    now, old = timezone.now(), timezone.now() - timedelta(minutes=10)
    rows = make_mirror(state=MirrorState.PAUSED).partitions
    rows.update(last_source_seen_at=now, caught_up_at=now)
    assert samples(client)[f"clusterlink_max_lag_seconds{of_link}"] == 0
    assert samples(client)[f"clusterlink_unknown_lag_partitions{of_link}"] == 0
    assert samples(client)[f"clusterlink_lag_bytes{of_link}"] == 0
    rows.filter(partition=0).update(source_end=14, bytes_copied=2_500, records_copied=10)
    assert samples(client)[f"clusterlink_lag_bytes{of_link}"] == 1_000

    rows.update(last_source_seen_at=old, caught_up_at=old)
    shown = samples(client)
    assert 600 <= shown[f"clusterlink_max_lag_seconds{of_link}"] < 1200
    assert shown[f"clusterlink_unknown_lag_partitions{of_link}"] == 2
    assert f"clusterlink_max_lag_messages{of_link}" not in shown

    assert f"clusterlink_lag_bytes{of_link}" not in shown

    rows.update(caught_up_at=None)
    assert f"clusterlink_max_lag_seconds{of_link}" not in samples(client)


def test_each_task_of_a_link_has_its_figures(client: Client, link: ClusterLink) -> None:
    LinkTask.objects.create(
        link=link, name=TaskName.TOPIC_CONFIGS, runs=9, failures=2, changes=4, error_count=3, succeeded_at=NOW
    )
    LinkTask.objects.create(link=link, name=TaskName.CONSUMER_OFFSETS, runs=1)

    shown = samples(client)

    configs = f'{{cluster="destination-id",link="west-to-east",task="{TaskName.TOPIC_CONFIGS}"}}'
    wanted = {"runs_total": 9, "failures_total": 2, "changes_total": 4, "errors": 3}
    assert {name: shown[f"clusterlink_task_{name}{configs}"] for name in wanted} == wanted
    assert shown[f"clusterlink_task_last_success_timestamp_seconds{configs}"] == NOW.timestamp()
    groups = configs.replace(TaskName.TOPIC_CONFIGS, TaskName.CONSUMER_OFFSETS)
    assert shown[f"clusterlink_task_runs_total{groups}"] == 1
    assert f"clusterlink_task_last_success_timestamp_seconds{groups}" not in shown  # it never succeeded


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

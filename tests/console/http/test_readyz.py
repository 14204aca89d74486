"""Health, readiness and metrics, with the real Redis and without."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.http.metrics import verify_samples
from console.links.task_queries import list_tasks
from console.models import ClampedOffset, ClusterLink, CopyWorker, Drill, GapRange, LinkTask, MirrorPartition, MirrorTopic
from console.redis import heartbeats as redis_health
from console.redis import redis_client
from console.tasks.clusters import probe_spark
from devcluster.ports import free_port
from linkctl import __version__
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror


@pytest.fixture
def no_redis(settings: Any) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def own_redis(settings: Any, redis_url: str) -> None:
    settings.REDIS_URL = redis_url.rsplit("/", 1)[0] + "/7"  # a database of its own: other tests are workers too
    redis_client().flushdb()


def test_healthz_needs_nothing_but_the_process(client: Client, no_redis: None) -> None:
    assert client.get("/healthz").json() == {"status": "up"}


@pytest.mark.django_db
def test_readyz_needs_database_redis_and_a_worker(client: Client, own_redis: None) -> None:
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"] == {
        "database": "ok",
        "redis": "ok",
        "worker": "no worker heartbeat in the last hour",
        "rounds": response.json()["parts"]["rounds"],
        "links": "unknown",
        "copy workers": "unknown",
        "mirrors": "unknown",
        "schedule": "unknown",
        "clocks": "ok",
        "spark": "unknown: no worker has reported on Spark in the last 90 s",
        "copy": "ok",
    }
    assert response.json()["spark_slots"] is None

    redis_health.note_worker()
    assert client.get("/readyz").status_code == 503  # it is alive, but no pass has succeeded
    for step in redis_health.STEPS:
        redis_health.note_step_success(step)

    response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "ready")


@pytest.mark.django_db
def test_copy_workers_that_do_not_run_are_reported_with_the_reason(client: Client, own_redis: None) -> None:
    redis_health.note_worker()
    for step in redis_health.STEPS:
        redis_health.note_step_success(step)
    CopyWorker.objects.create(number=0)
    CopyWorker.objects.create(number=3, problem="No Spark.")

    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json()["parts"]["copy workers"] == "1 copy worker of the pool not running: copy worker 3: No Spark."
    metrics = client.get("/metrics").content.decode()
    assert 'clusterlink_copy_workers{running="yes"} 1' in metrics
    assert 'clusterlink_copy_workers{running="no"} 1' in metrics


@pytest.mark.django_db
def test_worker_heartbeat_in_the_future_counts_as_unknown(client: Client, own_redis: None) -> None:
    ahead = timezone.now() + timedelta(hours=1)  # the clock was set back since
    redis_client().set("console:worker-seen", int(ahead.timestamp() * 1000))

    assert client.get("/readyz").status_code == 503


@pytest.mark.django_db
def test_without_redis_nothing_is_ready(client: Client, no_redis: None) -> None:
    response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json()["parts"]["redis"] == "does not respond"
    assert response.json()["parts"]["worker"].startswith("unknown")


def test_losses_of_a_drill_are_no_alarm_of_the_link(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    drill = Drill.objects.create(link=link, status="PREPARING", status_since=NOW, requested_by="owner", requested_at=NOW)
    copy = make_mirror("orders.clusterlink-drill-1", drill=drill, error_code="INTERNAL_ERROR", error_message="no")
    GapRange.objects.create(mirror=copy, partition=0, start=1, end=5, reason="LOST", filled=4, noted_at=NOW)
    ClampedOffset.objects.create(mirror=copy, stopping_since=NOW, at=NOW, group="app", partition=0)
    copy.transition_errors.create(code="RECORDS_LOST", message="4 lost.", since=NOW, last_seen_at=NOW)

    samples = [line for line in client.get("/metrics").content.decode().splitlines() if not line.startswith("#")]

    assert not [line for line in samples if line.startswith(("clusterlink_lost_records", "clusterlink_clamped_offsets"))]
    assert 'clusterlink_alarms{cluster="destination-id",code="RECORDS_LOST",link="west-to-east"} 0.0' in samples
    assert list_tasks(link=link)[0].errors == ()


def test_verification_of_scratch_copies_is_not_counted_for_the_link(link: ClusterLink, make_mirror: MakeMirror) -> None:
    drill = Drill.objects.create(link=link, status="CHECKING", status_since=NOW, requested_by="owner", requested_at=NOW)
    assert figures() == {"clusterlink_differing_records": 0, "clusterlink_verified_offsets": 0}
    for name, of in (("orders", None), ("orders.clusterlink-drill-1", drill)):
        mirror = make_mirror(name, drill=of)
        for start, differences in ((0, 0), (7, 2)):
            dated = {"first_verified_at": NOW, "verified_at": NOW}
            mirror.verified_ranges.create(partition=0, start=start, end=start + 7, differences=differences, **dated)

    assert figures() == {"clusterlink_differing_records": 2, "clusterlink_verified_offsets": 7}


def figures() -> dict[str, float]:
    """Return the verification metrics of the only link."""
    return {name: value for name, _, _, samples in verify_samples() for _, value in samples}


def test_metrics_are_prometheus_text(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    MirrorPartition.objects.filter(partition=0).update(
        source_end=17, last_high_watermark=17, caught_up_at=NOW, bytes_copied=1024
    )
    GapRange.objects.create(mirror=mirror, partition=0, start=1, end=5, reason="LOST", filled=4, noted_at=NOW)

    response = client.get("/metrics")
    lines = response.content.decode().splitlines()

    labels = '{cluster="destination-id",link="west-to-east"}'
    of_topic = labels.replace("}", ',topic="orders"}')
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in (
        'clusterlink_links{state="ACTIVE"} 1.0',
        'clusterlink_mirror_topics{state="ACTIVE"} 1.0',
        'clusterlink_mirror_topics{state="FAILED"} 0.0',
        f"clusterlink_max_lag_messages{labels} 7.0",
        f"clusterlink_copied_bytes_total{of_topic} 1024.0",
        f"clusterlink_lost_records_total{of_topic} 4.0",
    ):
        assert line in lines
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    exposed = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in exposed} <= names


def samples(client: Client) -> dict[str, float]:
    lines = client.get("/metrics").content.decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_time_lag_is_measured_grows_without_reports_and_is_never_invented(
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
    shown = samples(client)
    assert f"clusterlink_max_lag_seconds{of_link}" not in shown
    assert shown[f"clusterlink_unknown_age_partitions{of_link}"] == 2


def test_first_copy_does_not_hide_the_lag_of_other_partitions(
    client: Client, link: ClusterLink, make_mirror: MakeMirror
) -> None:
    of_link = '{cluster="destination-id",link="west-to-east"}'
    now, old = timezone.now(), timezone.now() - timedelta(minutes=10)
    make_mirror().partitions.update(source_end=40, last_high_watermark=40, last_source_seen_at=now, caught_up_at=old)
    make_mirror("first copy", partitions=1).partitions.update(
        last_high_watermark=20, last_source_seen_at=old, caught_up_at=None
    )
    make_mirror("not set up", partitions=0)

    shown = samples(client)

    assert shown[f"clusterlink_max_lag_messages{of_link}"] == 30
    assert 600 <= shown[f"clusterlink_max_lag_seconds{of_link}"] < 1200
    assert shown[f"clusterlink_unknown_age_partitions{of_link}"] == 2
    assert shown[f"clusterlink_unknown_lag_partitions{of_link}"] == 2


def test_each_recurring_task_has_its_metrics(client: Client, link: ClusterLink, mirror: MirrorTopic) -> None:
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


def test_counters_do_not_fall_when_a_mirror_is_deleted(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    gone, stays = make_mirror("gone"), make_mirror("stays")
    MirrorPartition.objects.update(bytes_copied=500, records_copied=5)
    GapRange.objects.create(mirror=gone, partition=0, start=1, end=5, reason="LOST", filled=4, noted_at=NOW)
    GapRange.objects.create(mirror=stays, partition=0, start=1, end=9, reason="HEAD", filled=8, noted_at=NOW)
    before = counters(client)
    lost = 'clusterlink_lost_records_total{cluster="destination-id",link="west-to-east",topic="%s"}'
    assert (before[lost % "gone"], before[lost % "stays"]) == (4, 0)  # increase() needs the 0 before

    gone.delete()

    after = counters(client)
    assert len(after) == len(before) - 3
    assert {name: value for name, value in before.items() if name in after} == after


def counters(client: Client) -> dict[str, float]:
    return {name: value for name, value in samples(client).items() if "_total{" in name}


def test_errors_of_a_task_end_with_its_last_mirror(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    errors = f'clusterlink_task_errors{{cluster="destination-id",link="west-to-east",task="{TaskName.TOPIC_CONFIGS}"}}'
    LinkTask.objects.create(link=link, name=TaskName.TOPIC_CONFIGS, error_count=3)
    mirror = make_mirror()
    assert samples(client)[errors] == 3

    type(mirror).objects.update(state=MirrorState.STOPPED)

    assert samples(client)[errors] == 0


def test_copy_without_reports_raises_the_silence_metric(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    silence = 'clusterlink_copy_silence_seconds{cluster="destination-id",link="west-to-east"}'
    now = timezone.now()
    mirror = make_mirror()
    mirrors = type(mirror).objects
    mirrors.update(state_since=now - timedelta(seconds=50))
    assert 50 <= samples(client)[silence] < 70  # no report yet

    mirror.partitions.update(observed_at=now)
    assert samples(client)[silence] < 20
    mirror.partitions.filter(partition=1).update(observed_at=now - timedelta(seconds=40))
    assert 40 <= samples(client)[silence] < 60  # a single partition is enough
    mirror.partitions.filter(partition=1).update(observed_at=now + timedelta(hours=1))  # a clock was set back
    assert 50 <= samples(client)[silence] < 70

    mirrors.update(state=MirrorState.PAUSED)
    assert silence not in samples(client)


def test_alarms_are_counted_starting_with_0(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    name = 'clusterlink_alarms{cluster="destination-id",code="%s",link="west-to-east"}'
    for topic in ("a", "b"):
        trouble = {"message": "Keys may be left over.", "since": NOW, "last_seen_at": NOW}
        make_mirror(topic).transition_errors.create(code="TOMBSTONES_MISSED", **trouble)

    shown = samples(client)

    assert [shown[name % code] for code in ("RECORDS_LOST", "RECORDS_DIFFER", "TOMBSTONES_MISSED")] == [0, 0, 2]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
@pytest.mark.parametrize("host", ["10.1.2.3:8000", "clusterlink-web.prod.svc", "not a host", "[", ""])
@pytest.mark.django_db
def test_probe_paths_accept_any_host_header(client: Client, path: str, host: str, own_redis: None) -> None:
    assert client.get(path, headers={"Host": host}).status_code == (503 if path == "/readyz" else 200)  # no worker runs


@pytest.mark.parametrize(
    "path", ["/", "/healthz/", "/metrics/x", "/links/", "/api/v1/x", "/kafka/v3/clusters", "/sign-in/", "/admin/"]
)
@pytest.mark.django_db
def test_other_paths_refuse_an_unknown_host(client: Client, path: str) -> None:
    assert client.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 400


@pytest.mark.django_db
def test_readyz_reports_spark_slots_and_problems(client: Client, own_redis: None) -> None:
    redis_health.note_spark(slots=18)
    response = client.get("/readyz").json()
    assert (response["parts"]["spark"], response["spark_slots"]) == ("ok", 18)

    redis_health.note_spark(problem="does not respond")
    response = client.get("/readyz").json()
    assert response["parts"]["spark"].startswith("does not respond: nothing is copied")
    assert response["spark_slots"] is None

    old_ms = int(timezone.now().timestamp() * 1000) - redis_health.STALE_MS - 1000
    redis_client().set("console:spark", json.dumps({"at_ms": old_ms, "slots": 18, "problem": ""}))
    response = client.get("/readyz").json()
    assert response["parts"]["spark"].startswith("unknown")
    assert response["spark_slots"] is None


@pytest.mark.spark
@pytest.mark.django_db
def test_spark_probe_finds_the_slots_or_the_outage(
    client: Client, own_redis: None, settings: Any, spark_connect_url: str
) -> None:
    settings.SPARK_URL = spark_connect_url
    probe_spark()
    assert client.get("/readyz").json()["spark_slots"] == 16

    settings.SPARK_URL = f"sc://127.0.0.1:{free_port()}"
    probe_spark()
    response = client.get("/readyz").json()
    assert (response["parts"]["spark"][:16], response["spark_slots"]) == ("does not respond", None)


def test_readyz_names_links_that_copy_nothing(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    mirror = make_mirror()
    mirror.partitions.update(observed_at=timezone.now())
    assert client.get("/readyz").json()["parts"]["copy"] == "ok"

    old = timezone.now() - timedelta(seconds=50)
    type(mirror).objects.update(state_since=old)
    ClusterLink.objects.update(state_since=old)
    mirror.partitions.update(observed_at=old)

    assert re.match(
        r"no report from a copy worker on 1 link: west-to-east \(5\d s\)", client.get("/readyz").json()["parts"]["copy"]
    )


def test_each_mirror_topic_has_its_lag_unless_unknown(client: Client, link: ClusterLink, make_mirror: MakeMirror) -> None:
    of_topic = '{cluster="destination-id",link="west-to-east",topic="%s"}'
    now, old = timezone.now(), timezone.now() - timedelta(minutes=10)
    for name in ("behind", "half seen", "unseen age"):
        make_mirror(name).partitions.update(source_end=40, last_high_watermark=40, last_source_seen_at=now, caught_up_at=old)
    MirrorPartition.objects.filter(mirror__name="half seen", partition=0).update(last_source_seen_at=old)
    MirrorPartition.objects.filter(mirror__name="unseen age", partition=0).update(caught_up_at=None)

    shown = samples(client)

    lags, ages = "clusterlink_mirror_lag_messages" + of_topic, "clusterlink_mirror_lag_seconds" + of_topic
    expected = sum((p.source_end or 0) - (p.mirror_end or 0) for p in MirrorPartition.objects.filter(mirror__name="behind"))
    assert shown[lags % "behind"] == shown[lags % "unseen age"] == expected > 0
    assert 600 <= shown[ages % "behind"] < 1200
    assert lags % "half seen" not in shown
    assert ages % "unseen age" not in shown


@pytest.mark.django_db
def test_waiting_messages_are_counted(client: Client, own_redis: None) -> None:
    redis_client().rpush("spark", "a", "b")

    shown = samples(client)

    assert (shown['clusterlink_queue_messages{queue="control"}'], shown['clusterlink_queue_messages{queue="spark"}']) == (0, 2)


@pytest.mark.django_db
def test_an_unreachable_queue_has_no_depth(client: Client, no_redis: None) -> None:
    assert not [name for name in samples(client) if name.startswith("clusterlink_queue_messages")]


@pytest.mark.django_db
def test_request_times_are_counted_by_area_method_and_status(client: Client) -> None:
    def count(area: str, method: str, status: int) -> float:
        labels = f'{{area="{area}",method="{method}",status="{status}"}}'
        return samples(client).get(f"clusterlink_request_seconds_count{labels}", 0)

    before = (count("rest", "GET", 401), count("page", "GET", 200), count("page", "OTHER", 405))
    client.get("/kafka/v3/clusters")
    client.get("/sign-in/")
    client.generic("BREW", "/sign-in/")

    assert (count("rest", "GET", 401), count("page", "GET", 200), count("page", "OTHER", 405)) == tuple(n + 1 for n in before)


@pytest.mark.django_db
def test_build_info_is_exposed(client: Client) -> None:
    (line,) = [name for name in samples(client) if name.startswith("clusterlink_build_info{")]

    assert f'version="{__version__}"' in line
    assert 'revision="unknown"' in line


@pytest.mark.django_db
def test_every_response_has_a_request_id_and_strict_headers(client: Client) -> None:
    response = client.get("/metrics", headers={"X-Request-ID": "my-request-1"})

    assert response["X-Request-ID"] == "my-request-1"
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert client.get("/healthz", headers={"X-Request-ID": "bad id\n"})["X-Request-ID"].isalnum()


def test_metrics_take_the_same_number_of_queries_for_many_rows(
    client: Client, link: ClusterLink, make_mirror: MakeMirror
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            client.get("/metrics")
        return len(queries)

    make_mirror("first")
    cost_of_single = cost()
    for number in range(20):
        make_mirror(f"m{number}")

    assert cost() == cost_of_single

"""The tasks of a mirror on real clusters, each run twice: set up, copy, sync, verify, promote, fail over, delete."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from django.utils import timezone

from console.actors import SYSTEM
from console.links.actions import LinkConfigChange, alter_configs
from console.mirrors.operation_actions import operate
from console.models import (
    ClusterLink,
    CopyWorker,
    GateRun,
    MirrorPartition,
    MirrorTopic,
    StateTransition,
    VerifyRun,
)
from console.reconciling import plans
from console.redis import locks, redis_client
from console.tasks.links import reconcile_link, run_copy_worker
from console.tasks.mirrors import advance_gate, advance_stop, continue_runs, delete_mirror, setup_mirror, verify_mirror
from console.workflows import pool, stopping, syncs
from devcluster.kafka import KafkaCluster
from linkengine.coordination.lease import RedisLease
from linkengine.domain.configs import mirror_configs
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until
from tests.console.workflows.reversal import set_up, state_of
from tests.topics import create_topics

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S = MirrorState
Worker = Callable[[], None]


def events() -> list[str]:
    return list(StateTransition.objects.order_by("pk").values_list("event", flat=True))


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that has been set up."""
    return set_up(new_mirror)


def test_a_mirror_is_set_up_once(new_mirror: MirrorTopic, destination_admin: AdminClient) -> None:
    for _ in range(2):
        setup_mirror(mirror_id=new_mirror.pk)

    row = MirrorTopic.objects.get()
    assert (row.state, row.num_partitions, row.read_only) == (S.ACTIVE, 2, True)
    assert row.source_topic_id != row.mirror_topic_id != ""
    assert row.source_configs
    assert MirrorPartition.objects.count() == 2
    assert events() == ["setup-done"]
    assert len(destination_admin.list_topics(row.name).topics[row.name].partitions) == 2


def test_setup_is_retried_while_the_source_is_unavailable(new_mirror: MirrorTopic, link: ClusterLink) -> None:
    link.properties = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}
    link.save()

    setup_mirror(mirror_id=new_mirror.pk)

    row = MirrorTopic.objects.get()
    assert (row.state, row.retry_count) == (S.PENDING_SETUP, 1)
    assert row.retry_at is not None
    assert row.transition_errors.get().code == "BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR"


def test_setup_fails_if_the_topic_exists_at_several_attempts(new_mirror: MirrorTopic, destination_admin: AdminClient) -> None:
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    create_topics(destination_admin, NewTopic(new_mirror.name, 1, 1))

    setup_mirror(mirror_id=new_mirror.pk)
    assert (
        MirrorTopic.objects.get().state == S.PENDING_SETUP
    )  # a broker may have old metadata, so a single error does not count
    for _ in range(4):
        setup_mirror(mirror_id=new_mirror.pk)

    row = MirrorTopic.objects.get()
    assert (row.state, row.error_code) == (S.FAILED, "TOPIC_EXISTS_ERROR")


def test_setup_fails_if_the_source_was_created_anew_with_fewer_partitions(
    new_mirror: MirrorTopic, destination_admin: AdminClient
) -> None:
    """An earlier attempt has created the mirror topic; with more partitions than the source it cannot be used."""
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415

    create_topics(destination_admin, NewTopic(new_mirror.name, 3, 1, config=mirror_configs({})))

    setup_mirror(mirror_id=new_mirror.pk)

    row = MirrorTopic.objects.get()
    assert (row.state, row.error_code) == (S.FAILED, "SOURCE_PARTITIONS_DECREASED")


def test_partitions_follow_the_source(mirror: MirrorTopic, source_admin: AdminClient) -> None:
    source_admin.create_partitions([NewPartitions(mirror.source_topic, 4)])[mirror.source_topic].result(30)

    for _ in range(2):
        assert syncs.follow_topics(mirror.link).errors == ()

    assert MirrorTopic.objects.get().num_partitions == 4


def test_a_failover_needs_no_source(mirror: MirrorTopic, link: ClusterLink, destination_admin: AdminClient) -> None:
    ClusterLink.objects.update(properties={"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"})
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)

    for _ in range(2):
        advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED
    assert events() == ["setup-done", "failover", "fenced"]
    assert list(MirrorPartition.objects.values_list("stopped_end", flat=True)) == [0, 0]


def test_promotion_waits_for_lag_zero_and_shows_the_lag(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "DRAIN_S", 0.5)
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)

    advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.PENDING_STOPPED
    error = mirror.transition_errors.get()
    assert error.code == "WAITING_FOR_LAG"
    assert "200 offsets" in error.message


def test_failover_replaces_a_promotion_in_progress(mirror: MirrorTopic) -> None:
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)
    with locks.lock(f"stop:promote:{mirror.pk}"):  # as the task of the promotion does
        operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)
        advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED


def test_mirror_whose_topic_was_deleted_can_be_failed_over(mirror: MirrorTopic, destination_admin: AdminClient) -> None:
    destination_admin.delete_topics([mirror.name])[mirror.name].result(30)
    operate(mirror=mirror, operation=MirrorEvent.FAILOVER, by=SYSTEM, now=NOW)

    advance_stop(mirror_id=mirror.pk)

    assert state_of(mirror) == S.STOPPED


def test_delete_removes_topic_and_row(mirror: MirrorTopic, destination_admin: AdminClient, settings: Any) -> None:
    generations = [f"generation:{{{key}}}" for key in plans.partition_keys(mirror)]
    delete_mirror(mirror_id=mirror.pk)
    assert MirrorTopic.objects.exists()
    RedisLease(settings.REDIS_URL, ttl_ms=1).acquire_all(plans.partition_keys(mirror), "a copier")
    assert redis_client().exists(*generations) == 2
    operate(mirror=mirror, operation=MirrorEvent.DELETE, by=SYSTEM, now=NOW)

    for _ in range(2):
        delete_mirror(mirror_id=mirror.pk)

    assert all(redis_client().pttl(key) > 0 for key in generations)  # kept for a day because of stale writers
    assert not MirrorTopic.objects.exists()
    assert mirror.name not in destination_admin.list_topics(timeout=10).topics


def test_link_is_reconciled_by_one_worker_at_a_time(link: ClusterLink, sent: list[tuple[str, dict[str, Any]]]) -> None:
    with locks.lock(f"link:{link.pk}"):
        reconcile_link(link_id=link.pk)
        assert sent == []
        assert locks.pop_recheck(f"link:{link.pk}")
    reconcile_link(link_id=link.pk)
    assert sent == [("probe_link", {"link_id": link.pk})]
    reconcile_link(link_id=0)


def test_mirror_that_is_deleted_during_a_reconcile_pass_is_skipped(link: ClusterLink, monkeypatch: pytest.MonkeyPatch) -> None:
    dated = {"state_since": NOW, "created_at": NOW}
    MirrorTopic.objects.create(link=link, name="gone", source_topic="gone", state=S.ACTIVE, num_partitions=2, **dated)
    real = MirrorTopic.ensure_partitions

    def overtaken(mirror: MirrorTopic) -> list[MirrorPartition]:
        MirrorTopic.objects.all().delete()
        return real(mirror)

    monkeypatch.setattr(MirrorTopic, "ensure_partitions", overtaken)
    reconcile_link(link_id=link.pk)

    assert not MirrorPartition.objects.exists()


def test_unavailable_spark_server_is_shown_on_the_link(mirror: MirrorTopic, link: ClusterLink, settings: Any) -> None:
    settings.SPARK_URL = "sc://127.0.0.1:9"
    pool.maintain_workers()

    for _ in range(2):
        run_copy_worker(number=0)
    reconcile_link(link_id=link.pk)

    link.refresh_from_db()
    assert link.engine_error.startswith("Copy engine unavailable: No Spark Connect server responds")
    row = CopyWorker.objects.get()
    assert row.failures == 2
    assert row.retry_at is not None


def test_queued_verification_is_sent_again_and_an_abandoned_one_is_ended(
    mirror: MirrorTopic, sent: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_TTL_S", 1.0)
    queued = VerifyRun.objects.create(mirror=mirror, requested_by="test", requested_at=NOW)
    left, held = (
        VerifyRun.objects.create(mirror=mirror, requested_by="test", requested_at=NOW, started_at=NOW, status="RUNNING")
        for _ in range(2)
    )

    with locks.lock(f"verify:{held.pk}"):
        while VerifyRun.objects.filter(pk=left.pk, status="RUNNING").exists():
            continue_runs(now=NOW + timedelta(minutes=1))
            time.sleep(0.1)

    assert sent == [("verify_mirror", {"run_id": queued.pk})]
    assert dict(VerifyRun.objects.values_list("pk", "status")) == {queued.pk: "QUEUED", left.pk: "ERROR", held.pk: "RUNNING"}


@pytest.mark.spark
def test_a_mirror_is_copied_verified_paused_and_promoted(
    mirror: MirrorTopic,
    link: ClusterLink,
    worker: Worker,
    until: Until,
    spark_connect_url: str,
    source_cluster: KafkaCluster,
    destination_admin: AdminClient,
) -> None:
    def beat(check: Callable[[], Any]) -> Callable[[], Any]:
        def once() -> Any:
            reconcile_link(link_id=link.pk)
            worker()
            return check()

        return once

    def ends() -> list[int | None]:
        return list(MirrorPartition.objects.filter(mirror=mirror).values_list("mirror_end", flat=True))

    until(beat(lambda: ends() == [100, 100]))
    rows = MirrorPartition.objects.filter(mirror=mirror)
    assert [(row.lag, row.records_copied, row.phase) for row in rows] == [(0, 100, "COPYING")] * 2

    # Another user and mechanism: copying ends and resumes with the new credentials; no Spark job is started.
    other = source_cluster.client_properties("app", mechanism="SCRAM-SHA-256")
    changes = [LinkConfigChange(name=name, value=value) for name, value in other.items() if link.properties[name] != value]
    alter_configs(link=link, changes=changes, by=SYSTEM, now=timezone.now())
    producer = Producer(source_cluster.client("admin"))
    for number in range(10):
        producer.produce(mirror.source_topic, f"later {number}", partition=number % 2)
    assert producer.flush(30) == 0
    until(beat(lambda: ends() == [105, 105]))
    assert CopyWorker.objects.count() == 1

    run = VerifyRun.objects.create(mirror=mirror, requested_by="test", requested_at=NOW)
    for _ in range(2):
        verify_mirror(run_id=run.pk)
    run.refresh_from_db()
    assert (run.status, run.records_compared, run.error_message) == ("EQUAL", 210, "")

    gate = GateRun.objects.create(mirror=mirror, status="RUNNING", requested_by="test", requested_at=NOW, verify_run=run)
    for _ in range(2):
        advance_gate(run_id=gate.pk)
    gate.refresh_from_db()
    assert (gate.status, {check["name"]: check["state"] for check in gate.checks if check["state"] != "PASSED"}) == (
        "GREEN",
        {"GROUPS_SYNCED": "NOT_APPLICABLE", "ACLS_SYNCED": "NOT_APPLICABLE"},
    )

    destination_admin.delete_records([TopicPartition(mirror.name, 1, 30)])[TopicPartition(mirror.name, 1)].result(30)
    GateRun.objects.filter(pk=gate.pk).update(status="RUNNING")
    advance_gate(run_id=gate.pk)
    gate.refresh_from_db()
    assert [check["detail"] for check in gate.checks if check["state"] == "FAILED"] == [
        "30 offsets that the source still holds are no longer on the mirror (partition 1: [0, 30))."
    ]

    operate(mirror=mirror, operation=MirrorEvent.PAUSE, by=SYSTEM, now=NOW)
    until(beat(lambda: {row.phase for row in rows.all()} == {"RELEASED"}))
    assert set(rows.values_list("worker_id", flat=True)) == {""}

    mirror = MirrorTopic.objects.select_related("link__destination__environment").get()
    operate(mirror=mirror, operation=MirrorEvent.PROMOTE, by=SYSTEM, now=NOW)
    until(beat(lambda: state_of(mirror) == S.STOPPED))
    assert [row.stopped_end for row in rows.all()] == [105, 105]
    assert events() == ["setup-done", "pause", "promote", "fenced"]

"""TopicConfigsSync on real clusters: what is synced, what is reverted and reported, and what fails permanently."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from django.utils import timezone

from console.actors import ENGINE
from console.http.metrics import prometheus_text
from console.mirrors.queries import list_mirrors
from console.models import AuditEvent, ClusterLink, ConfigRevert, GateRun, LinkConfig, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.tasks.clusters import refresh_topics
from console.tasks.links import run_link_task
from console.tasks.mirrors import advance_gate, setup_mirror
from console.workflows import syncs
from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskName, TaskOutcome
from linkengine.domain.states import MirrorState
from linkengine.jobs import syncing
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.topics import observe_sources
from tests.console.conftest import NOW
from tests.topics import create_topics

pytestmark = pytest.mark.kafka


@pytest.fixture
def mirror(new_mirror: MirrorTopic) -> MirrorTopic:
    """A mirror that has just been set up."""
    setup_mirror(mirror_id=new_mirror.pk)
    return MirrorTopic.objects.select_related("link__destination", "link__source").get()


def run(link: ClusterLink) -> TaskOutcome:
    return syncs.follow_topics(ClusterLink.objects.select_related("destination", "source").get(pk=link.pk))


def test_local_edit_is_reverted_and_shown(mirror: MirrorTopic) -> None:
    here = ClusterAdmin(mirror.link.destination.address)
    here.set_configs(mirror.name, {"retention.ms": "60000"})

    outcome = run(mirror.link)

    assert (outcome.errors, outcome.changes) == ((), 1)
    assert here.describe(mirror.name).configs["retention.ms"] == "-1"
    note = ConfigRevert.objects.get()
    assert (note.name, note.found, note.restored) == ("retention.ms", "60000", "-1")
    event = AuditEvent.objects.get(action="RevertTopicConfigs")
    assert (event.actor, event.resource.endswith(mirror.name)) == ("engine", True)
    assert run(mirror.link).changes == 0


def test_mirror_gets_its_own_retention_if_the_link_does_not_sync_it(
    mirror: MirrorTopic, destination_admin: AdminClient
) -> None:
    assert plans.assignments_of(mirror)[0].follows_start
    LinkConfig.objects.create(link=mirror.link, name="topic.config.sync.include", value="delete.retention.ms")

    outcome = run(mirror.link)

    assert outcome.errors == ()
    fresh = MirrorTopic.objects.select_related("link").get()
    assert not any(partition.follows_start for partition in plans.assignments_of(fresh))
    resource = ConfigResource(ConfigResource.Type.TOPIC, mirror.name)
    entries = destination_admin.describe_configs([resource])[resource].result(30)
    assert entries["retention.ms"].is_default
    assert not ConfigRevert.objects.exists()


def test_lag_is_unknown_if_a_partition_cannot_be_created(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = mirror.num_partitions, timezone.now()
    ClusterAdmin(plans.source_address(mirror.link)).add_partitions(mirror.source_topic, total=before + 1)
    level = {"source_end": 5, "mirror_end": 5, "last_high_watermark": 5, "last_source_seen_at": now, "caught_up_at": now}
    MirrorPartition.objects.update(**level, observed_at=now)
    assert list_mirrors(by=ENGINE)[0].max_lag == 0
    refusal = LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "User 'link' may not alter the topic. Grant it ALTER.")

    with monkeypatch.context() as patch:
        patch.setattr(syncing, "grow_mirror", Mock(side_effect=refusal))
        outcome = run(mirror.link)
    missing = MirrorPartition.objects.get(mirror=mirror, partition=before)
    summary = list_mirrors(by=ENGINE)[0]

    assert [error.code for error in outcome.errors] == [ErrorCode.AUTHORIZATION_ERROR]
    assert (missing.error_code, missing.error_message) == (refusal.code, refusal.message)
    assert (summary.max_lag, summary.total_lag, summary.lag_ms) == (None, None, None)
    assert re.search(r"clusterlink_unknown_lag_partitions{.*} 1.0\n", prometheus_text())
    assert run(mirror.link).errors == ()
    assert MirrorTopic.objects.get().num_partitions == before + 1


def test_new_partition_is_copied_although_the_source_configs_may_not_be_read(
    mirror: MirrorTopic, source_cluster: KafkaCluster, source_admin: AdminClient
) -> None:
    before = mirror.num_partitions
    assert run(mirror.link).errors == ()
    known = MirrorTopic.objects.get().source_configs
    ClusterLink.objects.update(properties=source_cluster.client_properties("app"))
    user = (ResourceType.TOPIC, mirror.source_topic, ResourcePatternType.LITERAL, "User:app", "*")
    create_acls(source_admin, [AclBinding(*user, AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)])
    ClusterAdmin(plans.source_address(mirror.link)).add_partitions(mirror.source_topic, total=before + 1)

    outcome = run(mirror.link)

    assert [error.code for error in outcome.errors] == [ErrorCode.AUTHORIZATION_ERROR]
    grown = MirrorTopic.objects.get()
    assert (grown.num_partitions, grown.source_configs) == (before + 1, known)
    assert len(plans.partition_keys(grown)) == before + 1


def test_new_partition_does_not_wait_for_a_long_interval(mirror: MirrorTopic, sent: list[tuple[str, dict[str, Any]]]) -> None:
    before, link = mirror.num_partitions, mirror.link
    LinkConfig.objects.create(link=link, name="topic.config.sync.ms", value="86400000")
    run_link_task(link_id=link.pk, task=TaskName.TOPIC_CONFIGS)
    there = ClusterAdmin(plans.source_address(link))
    refresh_topics(link_id=link.pk)
    there.add_partitions(mirror.source_topic, total=before + 1)
    now = timezone.now()
    level = {"source_end": 5, "mirror_end": 5, "last_high_watermark": 5, "last_source_seen_at": now, "caught_up_at": now}
    MirrorTopic.objects.get().ensure_partitions()
    MirrorPartition.objects.update(**level, observed_at=now)
    assert list_mirrors(by=ENGINE)[0].lag_ms == 0
    sent.clear()

    refresh_topics(link_id=link.pk)
    summary = list_mirrors(by=ENGINE)[0]
    assert (summary.max_lag, summary.total_lag, summary.lag_ms) == (None, None, None)
    assert re.search(r"clusterlink_unknown_lag_partitions{.*} 1.0\n", prometheus_text())
    requested = [kwargs for task, kwargs in sent if task == "run_link_task"]
    for kwargs in requested:
        run_link_task(**kwargs)

    assert requested == [{"link_id": link.pk, "task": TaskName.TOPIC_CONFIGS}]
    assert MirrorTopic.objects.get().num_partitions == before + 1
    sent.clear()
    refresh_topics(link_id=link.pk)
    assert "run_link_task" not in [task for task, _ in sent]


@pytest.mark.parametrize(
    "facts",
    [
        {"state": MirrorState.STOPPED},
        {"state": MirrorState.PENDING_STOPPED, "stop_reason": "failover"},
        {"state": MirrorState.PENDING_STOPPED, "stop_reason": "promote", "fencing_at": NOW},
        {"deletion_requested_at": NOW},
    ],
)
def test_mirror_that_is_stopped_during_a_sync_keeps_its_configs(
    mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object]
) -> None:
    here = ClusterAdmin(mirror.link.destination.address)

    def stop_meanwhile(*arguments: Any, **options: Any) -> Any:
        MirrorTopic.objects.update(**facts)
        here.set_configs(mirror.name, {"retention.ms": "60000"})
        return observe_sources(*arguments, **options)

    monkeypatch.setattr(syncing, "observe_sources", stop_meanwhile)
    outcome = run(mirror.link)

    assert (outcome.errors, outcome.changes) == ((), 0)
    assert here.describe(mirror.name).configs["retention.ms"] == "60000"
    assert not ConfigRevert.objects.exists()


def test_gate_of_a_stopped_topic_changes_nothing_and_is_red(mirror: MirrorTopic) -> None:
    here = ClusterAdmin(mirror.link.destination.address)
    MirrorTopic.objects.update(state=MirrorState.STOPPED)
    here.set_configs(mirror.name, {"retention.ms": "60000"})
    gate = GateRun.objects.create(mirror=mirror, status="RUNNING", requested_by="test", requested_at=NOW)

    advance_gate(run_id=gate.pk)

    gate.refresh_from_db()
    assert gate.status == "RED"
    assert {check["state"] for check in gate.checks} == {"FAILED"}
    assert here.describe(mirror.name).configs["retention.ms"] == "60000"


def test_mirror_whose_topic_was_deleted_fails(mirror: MirrorTopic) -> None:
    ClusterAdmin(mirror.link.destination.address).delete_topic(mirror.name)

    outcome = run(mirror.link)

    assert [error.code for error in outcome.errors] == ["MIRROR_TOPIC_MISSING"]
    assert MirrorTopic.objects.get().state == MirrorState.FAILED
    assert run(mirror.link).errors == ()  # nothing is left to compare


@pytest.fixture
def second(mirror: MirrorTopic, source_admin: AdminClient) -> MirrorTopic:
    """Another mirror of the link, set up as well."""
    topic, dated = f"{mirror.name}.second", {"state_since": NOW, "created_at": NOW}
    create_topics(source_admin, NewTopic(topic, 1, 1))
    row = MirrorTopic.objects.create(link=mirror.link, name=topic, source_topic=topic, state="PENDING_SETUP", **dated)
    setup_mirror(mirror_id=row.pk)
    return MirrorTopic.objects.get(pk=row.pk)


def test_failed_change_is_retried_by_the_next_run(mirror: MirrorTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may request a run at any time: a run that checked nothing would remove the error."""
    refusal = LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "User 'link' may not alter the topic. Grant it ALTER.")
    monkeypatch.setattr(syncing, "grow_mirror", Mock(side_effect=refusal))

    outcomes = [run(mirror.link), run(mirror.link)]

    assert [[error.code for error in outcome.errors] for outcome in outcomes] == [[refusal.code]] * 2


def test_run_syncs_all_mirrors_and_reports_all_errors(
    mirror: MirrorTopic, second: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "MIRRORS_AT_ONCE", 1)
    ClusterAdmin(mirror.link.destination.address).set_configs(second.name, {"retention.ms": "60000"})
    readable = ClusterAdmin.effective_configs_of
    monkeypatch.setattr(
        ClusterAdmin,
        "effective_configs_of",
        lambda admin, names: readable(admin, [name for name in names if name == second.name]),
    )

    outcome = run(mirror.link)

    assert [(error.code, mirror.name in error.message) for error in outcome.errors] == [("AUTHORIZATION_ERROR", True)]
    assert (outcome.changes, outcome.more) == (1, False)
    assert outcome.summary.startswith("2 mirror topics compared")


def test_run_out_of_time_reports_the_rest_and_the_next_run_starts_with_it(
    mirror: MirrorTopic, second: MirrorTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncs, "MIRRORS_AT_ONCE", 1)
    monkeypatch.setattr(syncs, "RUN_S", -1.0)
    here = ClusterAdmin(mirror.link.destination.address)
    for name in (mirror.name, second.name):
        here.set_configs(name, {"retention.ms": "60000"})

    outcome = run(mirror.link)

    assert [(error.code, error.message.startswith("1 mirror topic not synced")) for error in outcome.errors] == [
        ("TIMEOUT_ERROR", True)
    ]
    assert outcome.more
    assert [here.describe(name).configs["retention.ms"] for name in (mirror.name, second.name)] == ["-1", "60000"]
    assert run(mirror.link).more
    assert here.describe(second.name).configs["retention.ms"] == "-1"

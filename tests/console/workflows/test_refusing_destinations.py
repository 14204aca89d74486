"""A destination that refuses configs (alter.config.policy) and deletes no topics (delete.topic.enable=false)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from console.actors import SYSTEM
from console.errors import ConflictError
from console.links.actions import delete_link
from console.mirrors.actions import request_deletion, retry_refused_configs
from console.mirrors.rules import refused_steps, why_not
from console.models import AuditEvent, Cluster, ClusterLink, MirrorTopic, StopReport
from console.models.mirrors import CONFIGS_REFUSED, DELETION_REFUSED
from console.tasks import mirrors
from console.tasks.clusters import probe_cluster
from console.tasks.links import reconcile_link
from console.tasks.mirrors import advance_stop
from console.verification.drill_actions import start_drill
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import MirrorEvent, MirrorState, can
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, set_up, states, write
from tests.policies import Policy

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
S, E = MirrorState, MirrorEvent
WEEK_MS, MONTH_MS = 604_800_000, "2592000000"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return Policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def destination_cluster(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A destination for this module."""
    settings = {**policy.settings, "delete.topic.enable": "false"}
    directory = tmp_path_factory.mktemp("refusing")
    with KafkaCluster("refusing", directory=directory, extra=settings).with_classes(policy.classes) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_rules(policy: Policy) -> None:
    policy.forget()


@pytest.fixture
def active(new_mirror: MirrorTopic, there: ClusterAdmin, sent: list[Any]) -> MirrorTopic:
    """A mirror whose source keeps records for 30 days; nothing is copied yet."""
    there.set_configs(new_mirror.source_topic, {"retention.ms": MONTH_MS})
    mirror = set_up(new_mirror)
    assert mirror.state == S.ACTIVE
    return mirror


def put_into(mirror: MirrorTopic, state: MirrorState) -> MirrorTopic:
    """Set the row of an active mirror to another state."""
    facts = {"stop_reason": "promote"} if state is S.PENDING_STOPPED else {}
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=state, prior_state=S.ACTIVE, **facts)
    return fresh(mirror)


def stop(mirror: MirrorTopic) -> None:
    request_operation(mirror, E.FAILOVER)
    advance_stop(mirror_id=mirror.pk)


@pytest.mark.parametrize("state", [state for state in S if state is not S.STOPPED])
def test_mirror_whose_deletion_is_refused_keeps_its_state_and_can_fail_over(
    active: MirrorTopic, destination_cluster: KafkaCluster, state: MirrorState
) -> None:
    mirror = put_into(active, state)
    if can(state, E.DELETE):
        request_deletion(mirror=mirror, by=SYSTEM, now=NOW)  # the brokers' setting was not read yet
        mirrors.delete_mirror(mirror_id=mirror.pk)
        mirror = fresh(mirror)
        (error,) = mirror.transition_errors.all()
        assert (mirror.state, mirror.deletion_requested_at) == (state, None)
        assert (error.code, mirror.link.destination.deletes_topics) == (DELETION_REFUSED, False)
        assert "delete.topic.enable=true" in error.message
        assert AuditEvent.objects.filter(action="DeleteMirrorTopic", result="FAILURE", actor="engine").exists()

    stop(mirror)

    assert states(mirror) == [S.STOPPED]
    assert not mirror.transition_errors.filter(code=DELETION_REFUSED).exists()
    assert write(destination_cluster, mirror.name, "written after the failover") == [None]


def test_deletion_is_refused_in_advance_once_the_setting_is_known(
    active: MirrorTopic, destination: Cluster, link: ClusterLink
) -> None:
    probe_cluster(cluster_pk=destination.pk)
    mirror = fresh(active)

    with pytest.raises(ConflictError, match=r"delete\.topic\.enable=false") as refused:
        request_deletion(mirror=mirror, by=SYSTEM, now=NOW)
    with pytest.raises(ConflictError, match=r"scratch topics could not be deleted"):
        start_drill(link=ClusterLink.objects.get(pk=link.pk), by=SYSTEM, now=NOW)

    assert refused.value.code == ErrorCode.TOPIC_DELETION_DISABLED
    assert fresh(mirror).deletion_requested_at is None
    assert "Fail the mirror over" in why_not(mirror, E.DELETE)
    assert why_not(mirror, E.FAILOVER) == ""


def test_forced_deletion_of_a_link_keeps_a_topic_that_cannot_be_deleted(
    active: MirrorTopic, link: ClusterLink, here: ClusterAdmin
) -> None:
    request_deletion(mirror=active, by=SYSTEM, now=NOW)
    mirrors.delete_mirror(mirror_id=active.pk)

    delete_link(link=fresh(active).link, force=True, by=SYSTEM, now=NOW)
    advance_stop(mirror_id=active.pk)
    reconcile_link(link_id=link.pk)

    assert not ClusterLink.objects.filter(pk=link.pk).exists()
    assert here.find(active.name) is not None


@pytest.mark.usefixtures("copier")
@pytest.mark.parametrize("event", [E.FAILOVER, E.PROMOTE])
def test_config_that_a_policy_refuses_is_reported_and_can_be_retried(
    new_mirror: MirrorTopic,
    there: ClusterAdmin,
    here: ClusterAdmin,
    destination_cluster: KafkaCluster,
    policy: Policy,
    drive: Drive,
    event: MirrorEvent,
) -> None:
    """The policy was set after the mirror was created; the source keeps records for 30 days."""
    there.set_configs(new_mirror.source_topic, {"retention.ms": MONTH_MS})
    mirror = set_up(new_mirror)
    drive(lambda: len(records(destination_cluster, mirror.name)) == 200)
    policy.limit(retention_ms=WEEK_MS)

    request_operation(mirror, event)
    drive(lambda: states(mirror) == [S.STOPPED])

    (step,) = refused_steps(fresh(mirror))
    report = StopReport.objects.get(mirror=mirror)
    assert (step.name, step.value, step.code) == ("retention.ms", MONTH_MS, "POLICY_VIOLATION_ERROR")
    assert (report.refused[0]["message"], report.records_not_copied) == (step.message, 0)
    assert f"may be {WEEK_MS} at most" in step.message
    assert list(mirror.transition_errors.values_list("code", flat=True)) == [CONFIGS_REFUSED]
    assert write(destination_cluster, mirror.name, "new") == [None]
    assert here.describe(mirror.name).configs["retention.ms"] == "-1"

    (again,) = retry_refused_configs(mirror=fresh(mirror), by=SYSTEM, now=timezone.now())
    policy.forget()
    assert list(retry_refused_configs(mirror=fresh(mirror), by=SYSTEM, now=timezone.now())) == []

    assert again.name == "retention.ms"
    assert refused_steps(fresh(mirror)) == []
    assert not mirror.transition_errors.exists()
    assert here.describe(mirror.name).configs["retention.ms"] == MONTH_MS


def test_delete_topic_enable_is_read_from_the_brokers(destination: Cluster, source: Cluster) -> None:
    assert jobs.deletes_topics(destination.address) is False
    assert jobs.deletes_topics(source.address) is True

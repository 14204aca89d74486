"""Workers are killed at every step of operations on several mirrors: a bulk failover, a drill, a move to another source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from celery import Celery
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from console.actors import SYSTEM, Actor
from console.errors import ConflictError, UnavailableError
from console.mirrors import bulk_actions, reparenting
from console.mirrors.operation_actions import AUDIT_NAMES, operate_many
from console.mirrors.reparenting import reparent
from console.models import (
    AuditEvent,
    BulkOperation,
    Cluster,
    ClusterLink,
    Drill,
    Environment,
    MirrorPartition,
    MirrorTopic,
    StateTransition,
    StopReport,
)
from console.queue import dispatch
from console.verification.drill_actions import start_drill
from devcluster.kafka import KafkaCluster
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.conftest import MakeCluster
from tests.console.conftest import NOW
from tests.console.workflows.conftest import MakeTopic, register
from tests.console.workflows.kills import CrashingWorkers, after, around, phases
from tests.console.workflows.reversal import fresh, records, request_operation, states, write
from tests.console.workflows.test_shapes_of_links import link_to, mirror_on

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("sent", "spark_connect_url", "transactional_db"),
]
S, E = MirrorState, MirrorEvent
# a worker that crashes within the batch leaves marked mirrors behind, which are then stopped singly
TOGETHER = around("write_assignments", task="stop_many") | {"stop_many.before-stop_mirrors"}
DRILL = around("move", "try_writing", task="advance_drill")
TOPICS = 45  # of an operation; the crashing worker changes at most 20 together
BULK = around("move", "carry-out", task="advance_bulk_operation")


@pytest.fixture
def responded(own_redis: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send the actions of this process to the real workers."""
    with Celery("asking", broker=settings.REDIS_URL) as client:
        client.conf.task_default_queue = "control"
        monkeypatch.setattr(dispatch, "app", client)
        yield


def test_drill_and_bulk_failover_survive_worker_crashes(
    link: ClusterLink,
    make_topic: MakeTopic,
    crashing_workers: CrashingWorkers,
    destination_cluster: KafkaCluster,
    destination_admin: AdminClient,
) -> None:
    topic = make_topic()
    names = [topic, f"{topic}-b", f"{topic}-c"]
    row = {"link": link, "source_topic": topic, "state": S.PENDING_SETUP, "state_since": NOW, "created_at": NOW}
    mirrors = [MirrorTopic.objects.create(name=name, **row) for name in names]
    crashing_workers.wait_for(lambda: states(*mirrors) == [S.ACTIVE] * 3)
    crashing_workers.wait_for(lambda: all(len(records(destination_cluster, name)) == 200 for name in names))

    crashing_workers.crash_at("advance_drill")
    drill = start_drill(link=link, names=names[:1], start_spec="earliest", by=SYSTEM, now=timezone.now())
    crashing_workers.wait_for(lambda: Drill.objects.filter(status__in=("PASSED", "FAILED")).exists())
    drill.refresh_from_db()
    assert (drill.status, drill.problem) == ("PASSED", ""), drill.report
    assert drill.report[0]["records_compared"] >= 200
    assert crashing_workers.steps() >= DRILL
    assert not [name for name in destination_admin.list_topics(timeout=10).topics if "drill" in name and topic in name]
    assert states(*mirrors) == [S.ACTIVE] * 3

    crashing_workers.crash_at("stop_many", "advance_stop")
    operate_many(link=link, pattern=".*", operation=E.FAILOVER, by=SYSTEM, now=timezone.now())
    crashing_workers.wait_for(lambda: states(*mirrors) == [S.STOPPED] * 3)
    assert crashing_workers.steps() >= TOGETHER
    assert set(MirrorPartition.objects.values_list("stopped_end", flat=True)) == {100}
    assert StopReport.objects.filter(mirror__in=mirrors).count() == 3
    for name in names:
        assert write(destination_cluster, name, "mine now") == [None]


def test_bulk_operations_survive_worker_crashes_and_change_each_topic_once(
    link: ClusterLink, crashing_workers: CrashingWorkers
) -> None:
    """A pause changes 20 topics per transaction, and the last five singly; a resume changes all singly."""
    user = User.objects.create_superuser("root")
    row = {"link": link, "state": S.ACTIVE, "state_since": NOW, "created_at": NOW}
    names = [f"topic-{number:02}" for number in range(TOPICS)]
    MirrorTopic.objects.bulk_create(MirrorTopic(name=name, source_topic=name, **row) for name in names)

    for operation, state in ((E.PAUSE, S.PAUSED), (E.RESUME, S.ACTIVE)):
        crashing_workers.crash_at("advance_bulk_operation")
        topics = {mirror.name: mirror for mirror in link.mirrors.all()}
        started = bulk_actions.start(
            link=link, operation=operation, topics=topics, by=Actor(name=user.username, user=user), now=timezone.now()
        )
        crashing_workers.wait_for(BulkOperation.objects.filter(pk=started.pk).exclude(finished_at=None).exists)
        assert Counter(started.topics.values_list("status", "message")) == {("ACCEPTED", ""): len(names)}
        assert crashing_workers.steps() >= BULK
        assert started.topics.values("done_at").distinct().count() >= 3  # with crashes in between
        assert set(states(*topics.values())) == {state}
        assert Counter(StateTransition.objects.filter(event=operation).values_list("mirror__name", flat=True)) == Counter(names)
        assert AuditEvent.objects.filter(action=AUDIT_NAMES[operation]).count() == len(names)


def test_reparenting_is_measured_again_after_a_worker_crash(
    source: Cluster,
    destination: Cluster,
    environment: Environment,
    make_topic: MakeTopic,
    make_cluster: MakeCluster,
    crashing_workers: CrashingWorkers,
    responded: None,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A is mirrored to B, which is failed over, and to C, whose mirror moves to B as its source."""
    topic, third_cluster = make_topic(), make_cluster("third")
    third = register(environment, "Third", third_cluster)
    heir = mirror_on(link_to(destination, source, "to-heir"), topic)
    child = mirror_on(link_to(third, source, "to-rest"), topic)
    onward = link_to(third, destination, "onward")
    crashing_workers.wait_for(lambda: len(records(third_cluster, topic)) == len(records(destination_cluster, topic)) == 200)
    request_operation(child, E.PAUSE)
    request_operation(heir, E.FAILOVER)
    crashing_workers.wait_for(lambda: states(heir) == [S.STOPPED] and phases(child) == {PartitionPhase.RELEASED})

    crashing_workers.crash_at("measure_reparenting")
    refusals: list[str] = []
    timeout_s = 4.0
    for _ in range(20):
        monkeypatch.setattr(reparenting, "MEASURE_TIMEOUT_S", timeout_s)
        workers = crashing_workers.count()
        try:
            reparent(mirror=fresh(child), link_name=onward.name, by=SYSTEM, now=timezone.now(), validate_only=False)
            break
        except UnavailableError:  # no reply: the worker crashed, or was slow
            timeout_s += 0 if crashing_workers.count() > workers else 2.0
        except ConflictError as error:  # it held the leases; the next worker cannot distinguish it from a copy worker
            refusals.append(error.message)
            request_operation(child, E.RESUME)
            crashing_workers.wait_for(lambda: phases(child) == {PartitionPhase.COPYING})
            request_operation(child, E.PAUSE)
            crashing_workers.wait_for(lambda: phases(child) == {PartitionPhase.RELEASED})
    assert fresh(child).link == onward
    assert all("may have crashed" in refusal for refusal in refusals)
    assert crashing_workers.steps() >= around("write_assignments", task="measure_reparenting") | after(
        "find_topic", "log_ranges", task="measure_reparenting"
    )

    assert write(destination_cluster, topic, "written at the new source") == [None]
    request_operation(child, E.RESUME)
    crashing_workers.wait_for(lambda: len(records(third_cluster, topic)) == 201)
    assert records(third_cluster, topic) == records(destination_cluster, topic)

"""A is mirrored to B and C, A is lost, B is failed over: the mirror on C continues from B, or the reason is shown."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from django.db import connection

from console.actors import SYSTEM
from console.celery import app
from console.errors import ConflictError
from console.mirrors.reparenting import possible_links, reparent
from console.models import Cluster, ClusterLink, Environment, LineageRange, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.workflows.leases import Taken, check_released
from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import MirrorEvent, MirrorState
from linkengine.domain.workers import Grant
from tests.conftest import MakeCluster
from tests.console.conftest import NOW
from tests.console.workflows.conftest import register
from tests.console.workflows.reversal import Drive, fresh, records, request_operation, states, write
from tests.console.workflows.test_shapes_of_links import link_to, mirror_on

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier", "responded")]
S, E = MirrorState, MirrorEvent


@pytest.fixture
def responded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tasks of waiting callers in a thread."""

    def run(name: str, *, kwargs: dict[str, Any], **_: object) -> None:
        def work() -> None:
            app.tasks[name](**kwargs)
            connection.close()

        Thread(target=work, daemon=True).start()

    monkeypatch.setattr(app, "send_task", run)


@pytest.fixture
def lost(make_cluster: MakeCluster) -> KafkaCluster:
    """The cluster that will be lost: two topics of two partitions."""
    cluster = make_cluster("lost")
    admin = AdminClient(cluster.client("admin"))
    for name, made in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("ahead", 2, 1)]).items():
        made.result(30)
        for partition in (0, 1):
            write(cluster, name, *(f"{name} {partition} {number}" for number in range(100)), partition=partition)
    return cluster


def move(mirror: MirrorTopic, link: ClusterLink, *, validate_only: bool = False) -> Any:
    return reparent(mirror=fresh(mirror), link_name=link.name, validate_only=validate_only, by=SYSTEM, now=NOW)


def released(*rows: MirrorTopic) -> bool:
    """Return whether every partition is released."""
    return not MirrorPartition.objects.filter(mirror__in=rows).exclude(phase=PartitionPhase.RELEASED).exists()


@pytest.mark.parametrize(
    ("grant", "complete", "code"),
    [
        ({"generation": 2, "clean": True}, False, ErrorCode.TIMEOUT_ERROR),
        ({"generation": 2, "clean": False}, True, ErrorCode.ILLEGAL_STATE),  # the previous owner's lease expired
        ({"generation": 1, "clean": True}, True, ErrorCode.ILLEGAL_STATE),  # the previous owner is unknown
    ],
)
def test_offsets_are_compared_only_if_the_previous_owner_released_every_partition(
    grant: dict[str, Any], complete: bool, code: ErrorCode
) -> None:
    lease = Grant(key="mirror/0", valid_until=0.0, **grant)
    taken = Taken(complete=complete, grants=[lease])

    with pytest.raises(LinkEngineError) as refused:
        check_released(MirrorTopic(name="orders"), taken)

    assert refused.value.code == code
    assert taken.grants == ([] if code is ErrorCode.ILLEGAL_STATE else [lease])  # the next owner must not get it as clean


def test_mirrors_of_a_lost_cluster_continue_from_a_failed_over_copy(
    lost: KafkaCluster,
    environment: Environment,
    source: Cluster,
    destination: Cluster,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    drive: Drive,
) -> None:
    origin = register(environment, "Lost", lost)
    heir, rest = link_to(source, origin, "to-heir"), link_to(destination, origin, "to-rest")
    onward = link_to(destination, source, "onward")
    parents = [mirror_on(heir, name) for name in ("orders", "ahead")]
    children = [mirror_on(rest, name) for name in ("orders", "ahead")]

    drive(lambda: all(len(records(source_cluster, parent.name)) == 200 for parent in parents))
    drive(lambda: all(len(records(destination_cluster, child.name)) == 200 for child in children))
    request_operation(children[0], E.PAUSE)
    request_operation(parents[1], E.PAUSE)
    drive(lambda: released(children[0], parents[1]))
    write(lost, "orders", "copied to the new source")
    write(lost, "ahead", "not copied to the new source")
    drive(
        lambda: [len(records(*place)) for place in ((source_cluster, "orders"), (destination_cluster, "ahead"))] == [201, 201]
    )
    lost.kill_all()
    request_operation(children[1], E.PAUSE)
    for parent in parents:
        request_operation(parent, E.FAILOVER)
    drive(lambda: states(*parents) == [S.STOPPED] * 2)
    assert write(source_cluster, "orders", "written at the new source") == [None]

    producers = [partition.producer_id for partition in plans.assignments_of(fresh(children[0]))]
    assert possible_links(fresh(children[0]), SYSTEM) == [onward]
    preview = move(children[0], onward, validate_only=True)
    assert [(point.end, point.fence, point.to_copy) for point in preview.points] == [(100, 101, 3), (100, 100, 1)]
    assert fresh(children[0]).link == rest
    with pytest.raises(ConflictError, match="partition 0 ends at offset 101, 1 beyond offset 100"):
        move(children[1], onward)

    move(children[0], onward)
    request_operation(children[0], E.RESUME)
    drive(lambda: len(records(destination_cluster, "orders")) == 202)

    assert records(destination_cluster, "orders") == records(source_cluster, "orders")
    assert [partition.producer_id for partition in plans.assignments_of(fresh(children[0]))] == producers
    assert (fresh(children[0]).link, fresh(children[1]).link) == (onward, rest)
    drive(lambda: states(children[0]) == [S.ACTIVE])
    origins = LineageRange.objects.filter(mirror=children[0], partition=0).values_list("start", "origin_cluster_id")
    assert list(origins) == [(0, origin.cluster_id), (100, source.cluster_id)]

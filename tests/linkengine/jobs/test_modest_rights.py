"""Set-up, stop and deletion of a mirror by a principal with rights on topics and transactions, but not on the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.states import StopReason
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.stops import stop_mirror

pytestmark = pytest.mark.kafka
_OPERATIONS = (AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DELETE, AclOperation.DESCRIBE)


def test_a_mirror_is_set_up_stopped_and_deleted_without_rights_on_the_cluster(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    destination_as_app: ClusterAddress,
    destination_cluster: KafkaCluster,
    source_topic: str,
    send_there: Callable[..., None],
) -> None:
    place = (ResourceType.TOPIC, source_topic, ResourcePatternType.LITERAL, "User:app", "*")
    admin = AdminClient(destination_cluster.client("admin"))
    acls = [AclBinding(*place, operation, AclPermissionType.ALLOW) for operation in _OPERATIONS]
    create_acls(admin, acls)
    send_there(source_topic, partition=1, count=50)
    there.trim(source_topic, {1: 20})
    setup = replace(setup_plan, destination=destination_as_app, guard=False)

    def by_transactions(partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            replace(assignment, transactional_id=f"clusterlink-{source_topic}-{assignment.partition}")
            for assignment in assignments(partitions, topic_id)
        )

    created = jobs.set_up_mirror_topic(setup, assignments_factory=by_transactions)
    stopped = stop_mirror(
        MirrorStop(
            source=setup.source,
            destination=setup.destination,
            assignments=by_transactions(2, created.source_topic_id),
            reason=StopReason.FAILOVER,
            generation=9,
            source_topic=source_topic,
            mirror_topic=source_topic,
            guard=False,
        )
    )

    here = ClusterAdmin(destination_as_app)
    assert (created.read_only, created.seeded) == (False, ((1, 20),))
    assert stopped.ends == ((0, 0), (1, 20))
    assert here.offsets(source_topic, OffsetKind.END) == {0: 1, 1: 21}
    assert jobs.delete_mirror_topic(
        destination=destination_as_app, mirror_topic=source_topic, mirror_topic_id=created.mirror_topic_id, guard=False
    )

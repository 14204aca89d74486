"""Helpers for the tests of consumer groups: records, committed offsets, runs of the sync and of the migration gate."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from django.conf import settings

from console.models import ClusterLink, GateRun, MirrorPartition, MirrorTopic
from console.reconciling import plans
from console.tasks.mirrors import advance_gate
from console.workflows import syncs
from devcluster.kafka import KafkaCluster
from linkengine.coordination.lease import RedisLease
from linkengine.domain.groups import Committed
from linkengine.domain.linktasks import TaskOutcome
from linkengine.kafka.admin import ClusterAdmin
from tests.console.conftest import NOW

WAIT_S = 60


def fill(cluster: KafkaCluster, topic: str, *, records: range) -> None:
    producer = Producer(cluster.client("admin"))
    for number in records:
        for partition in range(2):
            producer.produce(topic, f"value {number * 2 + partition}", partition=partition)
    assert producer.flush(WAIT_S) == 0


def copy_in(cluster: KafkaCluster, mirror: MirrorTopic, *, records: range) -> None:
    """Write records to the mirror's partitions and store their ends, as if copied and reported."""
    fill(cluster, mirror.name, records=records)
    MirrorPartition.objects.filter(mirror=mirror).update(mirror_end=records.stop)


def release_cleanly(mirror: MirrorTopic, *, end: int) -> None:
    """Leave the leases as a copy worker does that has copied every partition up to ``end`` and releases them."""
    lease = RedisLease(settings.REDIS_URL, ttl_ms=4_000)
    grants = lease.acquire_all([partition.key for partition in plans.assignments_of(mirror)], "a copier")
    assert len(grants) == mirror.num_partitions
    for grant in grants:
        lease.release(grant, seen=(0, end))


def commit(admin: ClusterAdmin, group: str, topic: str, offsets: dict[int, int]) -> None:
    wanted = {(topic, partition): Committed(offset=offset) for partition, offset in offsets.items()}
    deadline = time.monotonic() + WAIT_S
    while any(refused := list(admin.commit({group: wanted})[group].values())):
        assert time.monotonic() < deadline, refused
        time.sleep(0.2)


def offsets_of(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    found, _ = admin.committed([group])
    return {partition: offset.offset for (name, partition), offset in found[group].items() if name == topic}


def checks_of(mirror: MirrorTopic) -> list[tuple[str, str]]:
    """Run the migration gate once. Returns state and detail of its checks of groups and ACLs."""
    row = GateRun.objects.create(mirror=mirror, status="RUNNING", requested_by="test", requested_at=NOW)
    advance_gate(run_id=row.pk)
    row.refresh_from_db()
    assert row.status == "RED"  # no record was compared
    return [(check["state"], check["detail"]) for check in row.checks if check["name"] in ("GROUPS_SYNCED", "ACLS_SYNCED")]


def run(mirror: MirrorTopic) -> TaskOutcome:
    return syncs.follow_groups(ClusterLink.objects.get(pk=mirror.link_id))

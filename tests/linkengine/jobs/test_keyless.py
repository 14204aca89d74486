"""A source that became compacted after records without a key were written to it: its mirror gets all of them."""

from dataclasses import replace

import pytest

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorSync
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin
from tests.linkengine.copyjob.copying import Copier, assert_equal_topics, ends_of, plan_for, producer_for

pytestmark = pytest.mark.kafka
PARTITIONS = 2


def test_a_mirror_accepts_keyless_records_and_is_compacted_once_it_has_them(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, there: ClusterAdmin, here: ClusterAdmin, source_topic: str,
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster,
) -> None:  # fmt: skip
    producer = producer_for(source_cluster)
    for number in range(30):
        producer.produce(source_topic, value=f"v {number}", key="k" if number % 3 else None, partition=number % PARTITIONS)
    producer.flush()
    there.set_configs(source_topic, {"cleanup.policy": "compact"})
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    sync = MirrorSync(
        source=setup_plan.source, destination=setup_plan.destination, source_topic=source_topic, mirror_topic=source_topic,
        source_topic_id=created.source_topic_id, previous=created.source_configs,
    )  # fmt: skip
    given = tuple(assignments(PARTITIONS, created.source_topic_id))

    with Copier(plan_for(setup_plan.source, setup_plan.destination, given)) as copier:
        copier.wait_until(lambda report: report.error_code == ErrorCode.KEYLESS_RECORDS)
        opened = jobs.sync_mirror(replace(sync, keyless=True))
        open_policy = here.describe(source_topic).configs["cleanup.policy"]
        copier.wait_for_ends(ends_of(source_cluster, source_topic, partitions=PARTITIONS))
        closed = jobs.sync_mirror(sync)
        producer.produce(source_topic, value="a later one", key="k", partition=0)
        producer.flush()
        ends = ends_of(source_cluster, source_topic, partitions=PARTITIONS)
        copier.wait_until(lambda report: report.mirror_end == ends[int(report.key[-1])] and not report.error_code)

    assert open_policy == "delete"
    assert (opened.changed, closed.changed) == (("cleanup.policy",), ("cleanup.policy",))
    assert (opened.reverted, closed.reverted) == ((), ())
    assert here.describe(source_topic).configs["cleanup.policy"] == "compact,delete"
    assert assert_equal_topics(source_cluster, source_topic, destination_cluster, source_topic, partitions=PARTITIONS) == 31
    assert jobs.sync_mirror(sync).changed == ()

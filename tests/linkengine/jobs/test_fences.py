"""Whether a copy still has the fence at which it was stopped, on real brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka


def write(cluster: KafkaCluster, topic: str, *, commit: bool) -> None:
    """Leave two records and a marker behind them."""
    producer = Producer({**cluster.client("admin"), "transactional.id": f"{topic}-fence"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(2):
        producer.produce(topic, "value", partition=0)
    producer.flush(60)
    (producer.commit_transaction if commit else producer.abort_transaction)(60)


def test_a_copy_is_believed_as_long_as_its_fence_is_there_or_was_removed_from_the_front(
    setup_plan: MirrorSetup, source_topic: str, source_cluster: KafkaCluster, there: ClusterAdmin
) -> None:
    write(source_cluster, source_topic, commit=True)
    write(source_cluster, source_topic, commit=False)

    def lost(offset: int, *, by_markers: bool = False) -> list[int]:
        return jobs.lost_fences(setup_plan.source, source_topic, fences={0: offset, 99: offset}, by_markers=by_markers)

    assert lost(2) == []
    assert lost(2, by_markers=True) == [0]  # an application's commit, which has come to stand there
    assert lost(1) == [0]  # a record
    assert lost(5) == [0]  # another marker: a fence commits
    assert lost(6) == [0]  # the log ends before
    there.trim(source_topic, {0: 4})
    assert lost(1) == lost(2) == []

"""A source whose replica.selector.class sends readers to followers (KIP-392), on real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka import requests
from linkengine.kafka.protocol import compact_string
from tests.linkengine.copyjob.copying import Copier, assert_equal_topics, create_topic, plan_of, producer_for

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def two_racks(tmp_path: Path) -> Iterator[KafkaCluster]:
    """Two brokers in different racks that redirect consumers to the replica in their rack."""
    cluster = KafkaCluster("racks", directory=tmp_path / "racks", brokers=2)
    cluster._plans = [
        replace(plan, extra={"broker.rack": f"rack-{plan.node}", "replica.selector.class": SELECTOR}) for plan in cluster._plans
    ]
    yield cluster.start()
    cluster.stop()


def test_leader_that_redirects_to_a_follower_breaks_the_link_and_does_not_count_as_empty(
    two_racks: KafkaCluster, destination_cluster: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stock selector uses the client's rack, which a link does not send; others use its address or principal."""
    admin = AdminClient(two_racks.client("admin"))
    admin.create_topics([NewTopic(topic_name, replica_assignment=[[0, 1]], num_partitions=1)])[topic_name].result(60)
    create_topic(destination_cluster, topic_name)
    producer = producer_for(two_racks, acks="all")
    for number in range(40):
        producer.produce(topic_name, value=f"{number}")
    assert producer.flush(60) == 0
    monkeypatch.setattr(requests, "_NO_RACK", compact_string("rack-1"))

    with Copier(plan_of((two_racks, destination_cluster), topic_name)) as copier:
        broken = (PartitionPhase.LINK_BROKEN, ErrorCode.MISCONFIGURATION_ERROR)
        copier.wait_until(
            lambda progress: (
                (progress.phase, progress.error_code) == broken and (progress.source_end, progress.mirror_end) == (None, 0)
            )
        )
        monkeypatch.setattr(requests, "_NO_RACK", compact_string("rack-0"))
        copier.wait_for_ends({0: 40})
        copier.wait_until(lambda progress: progress.phase is PartitionPhase.COPYING)

    (result,) = copier.join()
    assert not result.gaps
    assert assert_equal_topics(two_racks, topic_name, destination_cluster, topic_name) == 40

"""Sources that no longer hold what was read, on real brokers: after an unclean election, or restored from a snapshot."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from tests.linkengine.copyjob.copying import Copier, Pair, create_pair, create_topic, ends_of, plan_of, producer_for, wait_for

TOPIC = "rewound"


def write(cluster: KafkaCluster, count: int) -> None:
    producer = Producer({**cluster.client("admin"), "acks": "all"})
    for number in range(count):
        producer.produce(TOPIC, value=f"{number}")
    assert producer.flush(60) == 0


def leader_of(cluster: KafkaCluster) -> tuple[int, list[int]]:
    """Return the leader and the in-sync replicas."""
    partition = AdminClient(cluster.client("admin")).list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return (partition[0].leader, list(partition[0].isrs)) if partition else (-1, [])


@pytest.mark.timeout(600)
def test_mirror_fails_if_an_unclean_election_truncated_the_source(
    make_cluster: Callable[..., KafkaCluster], destination_cluster: KafkaCluster
) -> None:
    source = make_cluster(brokers=3, extra={"unclean.leader.election.enable": "true"})
    admin = AdminClient(source.client("admin"))
    wanted = NewTopic(TOPIC, replica_assignment=[[0, 1]], num_partitions=1, config={"min.insync.replicas": "1"})
    admin.create_topics([wanted])[TOPIC].result(60)
    create_topic(destination_cluster, TOPIC)
    write(source, 40)
    source.kill(1)
    wait_for(lambda: leader_of(source)[1] == [0], deadline_s=90)
    write(source, 60)
    plan = plan_of((source, destination_cluster), TOPIC)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 100})
        copier.wait_until(lambda progress: progress.source_epoch is not None)
        epoch = copier.progress.latest[plan.assignments[0].key].source_epoch
        assert epoch is not None
        source.kill(0)
        source.restart(1, wait=False)
        wait_for(lambda: leader_of(source)[0] == 1, deadline_s=120)
        write(source, 100)
        # reported by the copy that ran all the time
        copier.wait_until(lambda progress: progress.error_code == ErrorCode.UNEXPECTED_TRUNCATION)
    assert ends_of(source, TOPIC)[0] == 140
    assert ends_of(destination_cluster, TOPIC) == {0: 100}

    (assignment,) = plan.assignments
    with Copier(replace(plan, assignments=(replace(assignment, source_seen=(epoch, 100)),))) as copier:
        copier.wait_until(
            lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.FAILED, ErrorCode.UNEXPECTED_TRUNCATION)
        )
        message = copier.progress.latest[assignment.key].error_message
        assert copier.progress.latest[assignment.key].source_kept == 40

    assert "up to offset 40 only; they were read up to offset 100" in message
    assert ends_of(destination_cluster, TOPIC) == {0: 100}


def test_mirror_fails_if_the_source_was_restored_from_a_snapshot(clusters: Pair, topic_name: str) -> None:
    """A snapshot of the volumes has the topic but not the epoch; other records took the offsets since."""
    source, destination = clusters
    create_pair(clusters, topic_name)
    producer = producer_for(source)
    for number in range(30):
        producer.produce(topic_name, value=f"{number}")
    assert producer.flush(30) == 0
    plan = plan_of(clusters, topic_name)
    (assignment,) = plan.assignments

    with Copier(replace(plan, assignments=(replace(assignment, source_seen=(99, 20)),))) as copier:
        copier.wait_until(lambda progress: progress.error_code == ErrorCode.TIMEOUT_ERROR)
        copier.wait_until(
            lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.FAILED, ErrorCode.UNEXPECTED_TRUNCATION)
        )
        message = copier.progress.latest[assignment.key].error_message
        assert copier.progress.latest[assignment.key].source_kept == 0  # it is not known what the source still has

    assert "Every broker names this leader" in message
    assert ends_of(destination, topic_name) == {0: 0}

"""Nothing may be appended behind a batch that was refused, on real brokers.

A leader that remembers no sequence of the producer accepts any, so it would accept the next batch at the offset of the
refused.
"""

from __future__ import annotations

from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.producers import ProducerState
from tests.conftest import MakeCluster
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    create_topic,
    plan_of,
    producer_for,
    producer_state,
    set_config,
    wait_for,
)

OLD_MS = 1_500_000_000_000
ACCEPTED, REFUSED = 10, 1_200_000  # bytes


def create_narrow_pair(clusters: Pair, topic: str) -> None:
    """Create a mirror that accepts smaller batches than its source."""
    for cluster, largest in zip(clusters, ("4000000", "1000000"), strict=True):
        create_topic(cluster, topic, max_message_bytes=largest, retention_ms="-1")


def transactional_producer(cluster: KafkaCluster, topic: str) -> Producer:
    producer = producer_for(cluster, message_max_bytes=4_000_000, transactional_id=topic)
    producer.init_transactions()
    return producer


def write_at_once(producer: Producer, topic: str, sizes: list[int]) -> None:
    """Write a batch of each size in a single transaction, so that all become readable together."""
    producer.begin_transaction()
    for size in sizes:
        producer.produce(topic, value=b"v" * size, timestamp=OLD_MS)
        producer.flush()
    producer.commit_transaction()


def let_through(copier: Copier, destination: KafkaCluster, topic: str, *, refused_at: int, end: int) -> None:
    """Check that the mirror stops where a batch was refused, then raise the limit and wait for its end."""
    copier.wait_until(lambda progress: progress.error_code == ErrorCode.MISCONFIGURATION_ERROR)
    assert [progress.mirror_end for progress in copier.progress.latest.values()] == [refused_at]
    set_config(destination, topic, "max.message.bytes", "4000000")
    copier.wait_for_ends({0: end})


def test_nothing_is_appended_behind_a_refused_first_batch_of_a_new_mirror(clusters: Pair, topic_name: str) -> None:
    create_narrow_pair(clusters, topic_name)
    write_at_once(transactional_producer(clusters[0], topic_name), topic_name, [REFUSED, ACCEPTED, ACCEPTED])

    with Copier(plan_of(clusters, topic_name)) as copier:
        let_through(copier, clusters[1], topic_name, refused_at=0, end=4)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 3


def test_nothing_is_appended_behind_a_refused_batch_after_the_producer_expired(
    source_cluster: KafkaCluster, make_cluster: MakeCluster, topic_name: str
) -> None:
    """Producers expire by the timestamps of their records, so a producer of old records expires at the next check."""
    forgetful = make_cluster("forgetful", extra={"producer.id.expiration.check.interval.ms": 200})
    clusters = source_cluster, forgetful
    create_narrow_pair(clusters, topic_name)
    producer = producer_for(source_cluster)
    producer.produce(topic_name, value=b"first", timestamp=OLD_MS)
    producer.flush()

    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        wait_for(lambda: producer_state(forgetful, copier.plan) == ProducerState())
        write_at_once(transactional_producer(source_cluster, topic_name), topic_name, [REFUSED, ACCEPTED, ACCEPTED])
        let_through(copier, forgetful, topic_name, refused_at=1, end=5)

    assert assert_equal_topics(source_cluster, topic_name, forgetful, topic_name) == 4

"""Gaps on real brokers: transactions, compaction, retention. Every record keeps its offset."""

import time
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason
from linkengine.domain.workers import CoordinationUnavailableError
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    copy_all,
    create_pair,
    create_topic,
    ends_of,
    plan_of,
    producer_for,
    read_topic,
    set_config,
    starts_of,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryProgress


class FailingOnce(MemoryProgress):
    """Refuses to persist a loss the first time; notes where the mirror ended at each request."""

    def __init__(self, end: Callable[[], int]) -> None:
        super().__init__()
        self.ends: list[int] = []
        self._end = end

    def report_loss(self, link_id: str, loss: tuple[str, OffsetRange]) -> None:
        self.ends.append(self._end())
        if len(self.ends) == 1:
            raise CoordinationUnavailableError("Redis is not available.")
        super().report_loss(link_id, loss)


def transactional_producer(cluster: KafkaCluster, name: str) -> Producer:
    producer = producer_for(cluster, transactional_id=name)
    producer.init_transactions()
    return producer


def write_transaction(producer: Producer, topic: str, count: int, *, commit: bool) -> None:
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, value=f"{'kept' if commit else 'dropped'} {number}")
    producer.flush()
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def test_offsets_are_equal_after_committed_and_aborted_transactions(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = transactional_producer(clusters[0], topic_name)
    for number in range(12):
        write_transaction(producer, topic_name, 10 + number, commit=number % 3 != 2)

    (result,) = copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == result.records_copied
    reasons = {reason: sum(len(gap.range) for gap in result.gaps if gap.reason is reason) for reason in GapReason}
    assert reasons[GapReason.ABORTED] == 12 + 15 + 18 + 21
    assert reasons[GapReason.TRANSACTION_MARKER] == 12
    assert result.mirror_end == result.records_copied + sum(reasons.values())


def test_interleaved_transactions_are_separated(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    first, second = (transactional_producer(clusters[0], f"{topic_name}-{number}") for number in range(2))
    plain = producer_for(clusters[0])
    for number in range(6):
        first.begin_transaction()
        second.begin_transaction()
        for step in range(5):
            for producer, name in ((first, "one"), (plain, "plain"), (second, "other")):
                producer.produce(topic_name, value=f"{name} {number} {step}")
                producer.flush()
        first.commit_transaction() if number % 2 else first.abort_transaction()
        plain.produce(topic_name, value="between")
        plain.flush()
        second.abort_transaction() if number % 3 else second.commit_transaction()

    copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 6 * 6 + 3 * 5 + 2 * 5


def test_log_of_markers_only_is_copied(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = transactional_producer(clusters[0], topic_name)
    for _ in range(5):
        write_transaction(producer, topic_name, 3, commit=False)

    (result,) = copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 0
    assert (result.mirror_end, result.records_copied) == (20, 0)


def test_copy_stops_at_an_open_transaction(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plain = producer_for(clusters[0])
    plain.produce(topic_name, value="before")
    plain.flush()
    producer = transactional_producer(clusters[0], topic_name)
    producer.begin_transaction()
    producer.produce(topic_name, value="undecided")
    producer.flush()
    plain.produce(topic_name, value="behind the transaction")
    plain.flush()

    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_until(lambda progress: progress.mirror_end == 1 and progress.source_end == 1)
        time.sleep(0.7)  # longer than a long poll: nothing more may be copied
        copier.wait_until(lambda progress: progress.mirror_end == 1)
        producer.commit_transaction()
        copier.wait_for_ends({0: 4})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 3


def test_gaps_of_a_compacted_topic_are_kept(clusters: Pair, topic_name: str) -> None:
    create_topic(
        clusters[0], topic_name, cleanup_policy="compact", segment_ms="300", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="100000",
    )  # fmt: skip
    create_topic(clusters[1], topic_name)
    producer = producer_for(clusters[0])
    for number in range(600):
        value = None if number % 50 == 7 else f"value {number}"
        producer.produce(topic_name, key=f"key {number % 13}", value=value)
        if number % 40 == 0:
            producer.flush()
    producer.flush()
    wait_until_compacted(clusters[0], topic_name, producer, fewer_than=300)

    (result,) = copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == result.records_copied
    assert {gap.reason for gap in result.gaps} == {GapReason.COMPACTED}


def test_offsets_are_kept_where_compaction_removed_parts_of_transactions(clusters: Pair, topic_name: str) -> None:
    """Compaction removes expired markers and aborted data.

    It leaves empty batches for their producer's state, and tombstones with a delete horizon.
    """
    source, destination = clusters
    create_topic(
        source, topic_name, cleanup_policy="compact", segment_ms="300", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="100", retention_ms="-1",
    )  # fmt: skip
    create_topic(destination, topic_name)
    first, second = (transactional_producer(source, f"{topic_name}-{number}") for number in range(2))
    for number in range(40):
        producer = second if number % 5 == 0 else first
        producer.begin_transaction()
        for step in range(6):
            producer.produce(topic_name, key=f"key {step}", value=None if (number + step) % 7 == 0 else f"value {number}")
        producer.flush()
        producer.commit_transaction() if number % 3 else producer.abort_transaction()
    wait_until_compacted(source, topic_name, producer_for(source), fewer_than=30)
    set_config(source, topic_name, "cleanup.policy", "delete")  # compaction pauses while both sides are compared

    (result,) = copy_all(clusters, topic_name)

    assert assert_equal_topics(source, topic_name, destination, topic_name) == result.records_copied
    assert GapReason.COMPACTED in {gap.reason for gap in result.gaps}
    assert result.records_copied + sum(gap.filled for gap in result.gaps) == result.mirror_end


def wait_until_compacted(cluster: KafkaCluster, topic: str, producer: Producer, *, fewer_than: int) -> None:
    """Write records that roll segments until compaction has run."""

    def cleaned() -> bool:
        producer.produce(topic, key="roll", value="roll")
        producer.flush()
        time.sleep(0.35)
        return len(read_topic(cluster, topic)) < fewer_than

    wait_for(cleaned)


def test_offsets_deleted_by_retention_are_filled_and_reported_as_lost(clusters: Pair, topic_name: str) -> None:
    source, _ = clusters
    create_pair(clusters, topic_name)
    producer = producer_for(source)
    for number in range(100):
        producer.produce(topic_name, value=f"{number}")
    producer.flush()
    copy_all(clusters, topic_name)
    for number in range(1_500):
        producer.produce(topic_name, value=f"more {number}")
    producer.flush()
    admin = AdminClient(source.client("admin"))
    admin.delete_records([TopicPartition(topic_name, 0, 1_400)])[TopicPartition(topic_name, 0)].result(30)

    progress = FailingOnce(lambda: ends_of(clusters[1], topic_name)[0])

    with Copier(plan_of(clusters, topic_name), progress=progress) as copier:
        copier.wait_for_ends(ends_of(source, topic_name))
    (result,) = copier.join()

    (next_record, *_) = read_topic(source, topic_name)
    assert progress.ends == [100, 100]  # no marker is written before the loss is persisted
    assert progress.lost == [(result.key, OffsetRange(100, 1_400))]
    assert result.gaps == (Gap(OffsetRange(100, 1_400), GapReason.LOST, after_ms=next_record[4][1]),)
    assert [record[1:] for record in read_topic(clusters[1], topic_name) if record[1] >= 100] == [
        record[1:] for record in read_topic(source, topic_name)
    ]


def test_log_start_of_the_mirror_follows_the_source(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    producer = producer_for(source)
    for number in range(100):
        producer.produce(topic_name, value=f"{number}")
    producer.flush()
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends(ends_of(source, topic_name))
        admin = AdminClient(source.client("admin"))
        admin.delete_records([TopicPartition(topic_name, 0, 60)])[TopicPartition(topic_name, 0)].result(30)

        copier.wait_until(lambda progress: progress.mirror_start == 60)

    assert starts_of(destination, topic_name) == {0: 60}
    assert assert_equal_topics(source, topic_name, destination, topic_name) == 40


def test_log_start_of_a_mirror_with_its_own_retention_stays(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name, partitions=2)
    producer = producer_for(source)
    for number in range(200):
        producer.produce(topic_name, value=f"{number}", partition=number % 2)
    producer.flush()
    plan = plan_of(clusters, topic_name, partitions=2)
    follower, independent = plan.assignments
    plan = replace(plan, assignments=(follower, replace(independent, follows_start=False)))
    with Copier(plan) as copier:
        copier.wait_for_ends(ends_of(source, topic_name, partitions=2))
        moved = [TopicPartition(topic_name, partition, 60) for partition in range(2)]
        admin = AdminClient(source.client("admin"))
        for future in admin.delete_records(moved).values():
            future.result(30)

        copier.wait_until(lambda progress: progress.source_start == 60)
        copier.wait_until(lambda progress: progress.mirror_start == (60 if progress.key == follower.key else 0))

    assert starts_of(destination, topic_name, partitions=2) == {0: 60, 1: 0}

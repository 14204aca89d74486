"""The copy loop on real brokers: equal topics, quick stops, clean hand-overs."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from linkengine.domain.leases import OrdersSnapshot
from linkengine.domain.plans import PartitionPhase
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    address,
    assert_equal_topics,
    assignments_for,
    copy_all,
    create_pair,
    create_topic,
    ends_of,
    plan_for,
    plan_of,
    producer_for,
    producer_state,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryLease


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_mirror_is_equal_whatever_the_codec(clusters: Pair, topic_name: str, codec: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0], compression_type=codec)
    for number in range(5_000):
        producer.produce(topic_name, key=str(number % 7), value=f"value {number} " * 5)
        if number % 500 == 0:
            producer.flush()
    producer.flush()

    (result,) = copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 5_000
    assert result.phase is PartitionPhase.RELEASED
    assert (result.records_copied, result.mirror_end, result.source_end, result.gaps) == (5_000, 5_000, 5_000, ())
    assert result.caught_up_at_ms is not None
    assert result.last_timestamp_ms is not None


def test_null_keys_null_values_and_odd_headers_arrive_as_they_are(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    yesterday_ms = time.time_ns() // 1_000_000 - 86_400_000
    header_sets: list[list[tuple[str, bytes | None]]] = [
        [],
        [("a", b"1"), ("a", b"2"), ("a", None)],
        [("", b""), ("ключ", "значение".encode())],
    ]
    for number in range(300):
        key = (None, b"", b"key")[number % 3]
        value = (None, b"", b"x" * 3_000)[number // 3 % 3]
        producer.produce(
            topic_name, key=key, value=value, headers=header_sets[number % 3], timestamp=yesterday_ms + number * 7 % 1_000
        )
        if number % 11 == 0:
            producer.flush()  # many small batches: they are merged on the way
    producer.flush()

    copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 300


def test_many_partitions_are_copied_together(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, partitions=6)
    producer = producer_for(clusters[0])
    for number in range(12_000):
        producer.produce(topic_name, value=f"{number}" * 20, partition=number % 5)  # the sixth stays empty
        producer.poll(0)
    producer.flush()

    results = copy_all(clusters, topic_name, partitions=6, fetch_partition_max_bytes=20_000, fetch_max_bytes=60_000)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name, partitions=6) == 12_000
    assert sum(one.records_copied for one in results) == 12_000


def test_records_larger_than_any_limit_of_the_fetch_are_copied(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, max_message_bytes="8000000")
    producer = producer_for(clusters[0], message_max_bytes=8_000_000)
    for size in (10, 5_000_000, 10, 3_000_000):
        producer.produce(topic_name, value=b"z" * size)
        producer.flush()

    copy_all(clusters, topic_name, fetch_partition_max_bytes=1_000, fetch_max_bytes=1_000)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 4


def test_new_records_arrive_while_the_loop_waits(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0], linger_ms=0)
    with Copier(plan_of(clusters, topic_name, progress_ms=5)) as copier:
        copier.wait_for_ends({0: 0})
        for number in range(20):
            producer.produce(topic_name, value=f"late {number}")
            producer.flush()
            copier.wait_for_ends({0: number + 1}, deadline_s=10)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 20


@pytest.mark.parametrize(
    "change",
    [
        lambda _: {"wanted": {}},
        lambda _: {"revision": 2},
        lambda mirror: {"lives": {mirror: "of topics that a restore has made"}},
    ],
    ids=["mirror not wanted", "newer revision", "another life"],
)
def test_orders_stop_the_copy_within_a_second(clusters: Pair, topic_name: str, change: Callable[[str], dict[str, Any]]) -> None:
    create_pair(clusters, topic_name)
    plan = plan_of(clusters, topic_name)
    mirror, life = plan.assignments[0].mirror_id, plan.assignments[0].life
    with Copier(plan) as copier:
        copier.orders.snapshot = before = OrdersSnapshot(revision=1, wanted={mirror: True}, lives={mirror: life})
        copier.wait_for_ends({0: 0})
        ordered_at = time.monotonic()
        copier.orders.snapshot = replace(before, **change(mirror))
        copier.wait_until(lambda one: one.phase is PartitionPhase.RELEASED)
        took_s = time.monotonic() - ordered_at

    assert took_s < 1.0
    assert copier.lease.acquire(plan.assignments[0].key, "next") is not None


def test_a_slice_ends_by_itself(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    started_at = time.monotonic()

    with Copier(plan_of(clusters, topic_name, slice_ms=1_500)) as copier:
        results = copier.join()

    assert 1.4 < time.monotonic() - started_at < 5
    assert [one.phase for one in results] == [PartitionPhase.RELEASED]


def test_overlapping_slices_hand_over_without_a_gap_or_a_raised_epoch(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    source, destination = clusters
    assignments = assignments_for(source, topic_name, topic_name)
    lease = MemoryLease()
    producer = producer_for(source, transactional_id=topic_name, linger_ms=0)
    producer.init_transactions()

    def transact(count: int) -> None:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic_name, value=f"{number}")
        producer.commit_transaction()

    previous: Copier | None = None
    for number in range(3):
        transact(50)
        plan = plan_for(  # long enough for the next one to start beside it, also on a loaded machine
            address(source), address(destination), assignments, slice_id=f"slice-{number}", slice_ms=6_000, progress_ms=20
        )
        copier = Copier(plan, lease=lease).__enter__()
        wait_for(lambda due=number + 1: lease.generations.get(assignments[0].key) == due)
        transact(50)
        if previous is not None:
            previous.join()
        previous = copier
    ends = ends_of(source, topic_name)
    copier.wait_for_ends(ends)
    copier.join()

    assert assert_equal_topics(source, topic_name, destination, topic_name) == 300
    assert producer_state(destination, plan).epoch == 0


def test_two_mirrors_of_one_source_topic_are_both_copied_by_one_task(clusters: Pair, topic_name: str) -> None:
    """As in a rehearsal of a failover: the scratch copy and the mirror read the same partitions, each where it stands."""
    create_pair(clusters, topic_name, partitions=2)
    second = f"{topic_name}-second"
    create_topic(clusters[1], second, partitions=2)
    producer = producer_for(clusters[0])
    for number in range(2_000):
        producer.produce(topic_name, f"value {number}", partition=number % 2)
    producer.flush()
    plan = plan_of(clusters, topic_name, partitions=2)
    others = assignments_for(clusters[0], topic_name, second, partitions=2)

    with Copier(replace(plan, assignments=(*plan.assignments, *others))):
        for number in range(2_000):
            producer.produce(topic_name, f"later {number}", partition=number % 2)
            if number % 200 == 0:
                producer.flush()
        producer.flush()
        for mirror in (topic_name, second):
            wait_for(lambda mirror=mirror: ends_of(clusters[1], mirror, partitions=2) == {0: 2_000, 1: 2_000})

    for mirror in (topic_name, second):
        assert assert_equal_topics(clusters[0], topic_name, clusters[1], mirror, partitions=2) == 4_000

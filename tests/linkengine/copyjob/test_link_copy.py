"""The copy loop on real brokers: equal topics, quick stops, clean hand-overs."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from linkengine.copyjob import link_copy
from linkengine.domain.plans import CopyPlan, PartitionPhase
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    assignments_for,
    copy_all,
    create_pair,
    create_topic,
    ends_of,
    plan_of,
    producer_for,
    producer_state,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryLease

ENDLESS_S = 600.0  # a lease that is released was not left to expire


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_mirror_equals_its_source_with_every_codec(clusters: Pair, topic_name: str, codec: str) -> None:
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


def test_null_keys_null_values_and_unusual_headers_are_copied_unchanged(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    yesterday_ms = time.time_ns() // 1_000_000 - 86_400_000
    header_sets: list[list[tuple[str, str | bytes | None]]] = [
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
            producer.flush()  # many small batches, which the copy merges
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
    assert sum(result.records_copied for result in results) == 12_000


def test_records_larger_than_the_fetch_limits_are_copied(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, max_message_bytes="8000000")
    producer = producer_for(clusters[0], message_max_bytes=8_000_000)
    for size in (10, 5_000_000, 10, 3_000_000):
        producer.produce(topic_name, value=b"z" * size)
        producer.flush()

    copy_all(clusters, topic_name, fetch_partition_max_bytes=1_000, fetch_max_bytes=1_000)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 4


def test_new_records_are_copied_while_the_loop_waits(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0], linger_ms=0)
    with Copier(plan_of(clusters, topic_name, progress_ms=5)) as copier:
        copier.wait_for_ends({0: 0})
        for number in range(20):
            producer.produce(topic_name, value=f"late {number}")
            producer.flush()
            copier.wait_for_ends({0: number + 1})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 20


def _without_partitions(plan: CopyPlan) -> CopyPlan:
    return replace(plan, assignments=())


def _with_another_topic(plan: CopyPlan) -> CopyPlan:
    return replace(plan, assignments=(replace(plan.assignments[0], mirror_topic_id="created by a restore"),))


@pytest.fixture
def patient_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make releases wait for responses as long as a busy machine needs: otherwise the lease is left to expire."""
    monkeypatch.setattr(link_copy, "DRAIN_S", ENDLESS_S)


@pytest.mark.usefixtures("patient_drain")
@pytest.mark.parametrize("change", [_without_partitions, _with_another_topic], ids=["not assigned", "topic replaced"])
def test_partition_is_released_before_its_lease_expires(
    clusters: Pair, topic_name: str, change: Callable[[CopyPlan], CopyPlan]
) -> None:
    create_pair(clusters, topic_name)
    plan = plan_of(clusters, topic_name)
    with Copier(plan, lease=MemoryLease(ttl_s=ENDLESS_S)) as copier:
        copier.wait_for_ends({0: 0})
        copier.assignments.assign(change(plan))
        wait_for(lambda: (plan.assignments[0].key, PartitionPhase.RELEASED, "") in copier.progress.history)
        if change is _without_partitions:
            assert copier.lease.acquire_all([plan.assignments[0].key], "next")


def test_new_revision_continues_with_new_connections(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plan = plan_of(clusters, topic_name)
    producer = producer_for(clusters[0])
    with Copier(plan) as copier:
        producer.produce(topic_name, "before")
        producer.flush()
        copier.wait_for_ends({0: 1})
        copier.assignments.assign(replace(plan, revision=2, tuning=replace(plan.tuning, fetch_wait_ms=100)))
        wait_for(lambda: copier.lease.generations[plan.assignments[0].key] == 2)
        producer.produce(topic_name, "after")
        producer.flush()
        copier.wait_for_ends({0: 2})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 2


@pytest.mark.usefixtures("patient_drain")
def test_producer_epoch_stays_when_a_partition_moves_to_another_worker(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    source, destination = clusters
    plan = plan_of(clusters, topic_name, progress_ms=20)
    lease = MemoryLease(ttl_s=ENDLESS_S)  # it is handed over, and does not expire
    producer = producer_for(source, transactional_id=topic_name, linger_ms=0)
    producer.init_transactions()

    def transact(count: int) -> None:
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic_name, value=f"{number}")
        producer.commit_transaction()

    def has_copied(copier: Copier, end: int) -> bool:
        return copier.progress.latest[plan.assignments[0].key].mirror_end == end

    with (
        Copier(plan, lease=lease) as first,
        Copier(replace(plan, assignments=()), lease=lease, worker_id="0001-other") as second,
    ):
        for number in range(4):
            previous, following = (first, second) if number % 2 == 0 else (second, first)
            transact(50)
            previous.release_buffers()
            following.assignments.assign(plan)
            transact(50)
            end = ends_of(source, topic_name)[0]
            wait_for(partial(has_copied, following, end))

    assert assert_equal_topics(source, topic_name, destination, topic_name) == 400
    assert producer_state(destination, plan).epoch == 0


def test_two_mirrors_of_the_same_source_topic_are_copied_by_the_same_worker(clusters: Pair, topic_name: str) -> None:
    """As in a failover drill: the scratch copy and the mirror read the same partitions, each at its own position."""
    create_pair(clusters, topic_name, partitions=2)
    second = f"{topic_name}-second"
    create_topic(clusters[1], second, partitions=2)
    producer = producer_for(clusters[0])
    for number in range(2_000):
        producer.produce(topic_name, f"value {number}", partition=number % 2)
    producer.flush()
    plan = plan_of(clusters, topic_name, partitions=2)
    others = assignments_for(clusters[0], topic_name, second, partitions=2)

    def has_ends(mirror: str) -> bool:
        return ends_of(clusters[1], mirror, partitions=2) == {0: 2_000, 1: 2_000}

    with Copier(replace(plan, assignments=(*plan.assignments, *others))):
        for number in range(2_000):
            producer.produce(topic_name, f"later {number}", partition=number % 2)
            if number % 200 == 0:
                producer.flush()
        producer.flush()
        for mirror in (topic_name, second):
            wait_for(partial(has_ends, mirror))

    for mirror in (topic_name, second):
        assert assert_equal_topics(clusters[0], topic_name, clusters[1], mirror, partitions=2) == 4_000

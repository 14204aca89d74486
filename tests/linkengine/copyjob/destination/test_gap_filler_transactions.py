"""Gaps filled by empty transactions, on real brokers: the destination's principal may only write with transactions."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.copyjob.destination.head_seed import seed_head
from linkengine.copyjob.stop.takeover import foreign_starts
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import CopyPlan, PartitionPhase
from linkengine.domain.producers import TransactionalProducer
from linkengine.domain.states import GapReason
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.requests import MARKERS_VERSION
from linkengine.kafka.transactions import EmptyTransactions
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    address,
    assert_equal_topics,
    create_pair,
    ends_of,
    fence,
    plan_of,
    producer_for,
    read_topic,
    wait_for,
)
from tests.linkengine.copyjob.destination.test_gap_filler import transactional_producer, write_transaction
from tests.linkengine.copyjob.memory import MemoryLease
from tests.linkengine.copyjob.rawwriter import read_batches_of
from tests.linkengine.copyjob.stop.test_fence import application_writing


def transactional(plan: CopyPlan, clusters: Pair) -> CopyPlan:
    """Return the plan for a principal without cluster permissions at the destination."""
    assignments = tuple(
        replace(assignment, transactional_id=f"clusterlink-{assignment.mirror_topic}-{assignment.key}")
        for assignment in plan.assignments
    )
    return replace(plan, destination=address(clusters[1], "app"), assignments=assignments)


def copied_plan(clusters: Pair, topic: str) -> CopyPlan:
    """Copy a transaction of two records and its marker; return the plan."""
    create_pair(clusters, topic)
    plan = transactional(plan_of(clusters, topic), clusters)
    write_transaction(transactional_producer(clusters[0], topic), topic, 2, commit=True)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 3})
    return plan


def test_transactional_fills_keep_the_offsets_over_several_owners(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plan, lease = transactional(plan_of(clusters, topic_name), clusters), MemoryLease()
    producer, other = (transactional_producer(clusters[0], f"{topic_name}-{number}") for number in range(2))
    for _ in range(3):
        for number in range(4):
            write_transaction(producer, topic_name, 5, commit=number % 2 == 0)
            write_transaction(other, topic_name, 3, commit=number % 3 == 0)
        with Copier(plan, lease=lease) as copier:
            copier.wait_for_ends(ends_of(clusters[0], topic_name))
        (result,) = copier.join()

    assert {gap.reason for gap in result.gaps} == {GapReason.ABORTED, GapReason.TRANSACTION_MARKER}
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 3 * (2 * 5 + 2 * 3)


def test_open_transaction_of_a_crashed_owner_is_settled_before_writing(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    (assignment,) = plan.assignments
    plain, producer = producer_for(clusters[0]), transactional_producer(clusters[0], topic_name)
    plain.produce(topic_name, value="first")
    plain.flush()
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 1})
    write_transaction(producer, topic_name, 2, commit=False)
    plain.produce(topic_name, value="last")
    plain.flush()
    session = Cluster(plan.destination)
    session.topics([topic_name])
    dead = EmptyTransactions(session, assignment.transactional_id)
    owner = dead.fence()
    assert dead._add(owner, topic=topic_name, partition=0) == (0, None)  # the owner crashed at the gap
    lease = MemoryLease()
    lease._holds[assignment.key] = (7, time.monotonic())

    with Copier(plan, lease=lease) as copier:
        copier.wait_for_ends({0: 5})
    session.close()

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 2


def test_fence_is_recognised_and_fences_stale_copy_workers(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    producer = transactional_producer(clusters[0], topic_name)
    write_transaction(producer, topic_name, 9, commit=True)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 10})
        ends = [fence(plan) for _ in range(2)]
        write_transaction(producer, topic_name, 9, commit=True)
        wait_for(lambda: copier.progress.latest[plan.assignments[0].key].phase is PartitionPhase.RELEASED)

    assert ends == [{0: 10}, {0: 10}]
    assert ends_of(clusters[1], topic_name) == {0: 11}
    assert len(read_topic(clusters[1], topic_name)) == 9


@pytest.mark.parametrize("later", [False, True], ids=["its owner", "a later owner"])
def test_fence_at_a_gap_does_not_count_as_a_filler(clusters: Pair, topic_name: str, later: bool) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    producer = transactional_producer(clusters[0], topic_name)
    write_transaction(producer, topic_name, 9, commit=True)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 10})
        if later:
            copier.stop()
            copier.join()
        assert fence(plan) == {0: 10}
        write_transaction(producer, topic_name, 2, commit=False)
        write_transaction(producer, topic_name, 3, commit=True)
        found = (plan.assignments[0].key, PartitionPhase.RELEASED, ErrorCode.MIRROR_WAS_STOPPED)
        with Copier(plan) if later else nullcontext(copier) as late:  # without lease state
            wait_for(lambda: found in late.progress.history or ends_of(clusters[1], topic_name) != {0: 11})

    assert ends_of(clusters[1], topic_name) == {0: 11}
    shown = late.progress.latest[plan.assignments[0].key]
    assert (shown.phase, shown.error_code) == (PartitionPhase.RELEASED, ErrorCode.MIRROR_WAS_STOPPED)


def test_fence_interrupted_between_its_two_steps_counts_no_offset(clusters: Pair, topic_name: str) -> None:
    plan = copied_plan(clusters, topic_name)
    session = Cluster(plan.destination)
    session.topics([topic_name])
    transactions = EmptyTransactions(session, plan.assignments[0].transactional_id)
    assert transactions._add(transactions.fence(), topic=topic_name, partition=0) == (0, None)
    session.close()

    ends = [fence(plan) for _ in range(2)]

    assert ends == [{0: 3}, {0: 3}]
    assert ends_of(clusters[1], topic_name) == {0: 4}


def test_fence_in_the_log_ends_the_mirrored_range_without_other_state(clusters: Pair, topic_name: str) -> None:
    """Behind a fill of the same producer, and before an application's records."""
    plan = copied_plan(clusters, topic_name)
    assert fence(plan) == {0: 3}
    producer = producer_for(clusters[1])
    producer.produce(topic_name, value="an application's")
    producer.flush()

    fences = fence(plan, generation=101)

    assert fences == {0: 5}
    for copied in (3, 0):
        assert foreign_starts(plan.destination, plan.assignments, fences=fences, copied={0: copied}) == {0: 3}


@pytest.mark.timeout(120)
def test_mirror_with_a_foreign_writer_is_fenced_immediately(clusters: Pair, topic_name: str) -> None:
    plan = copied_plan(clusters, topic_name)

    with application_writing(clusters[1], topic_name):
        fences = fence(plan)

    markers = [view.base_offset for view, _ in read_batches_of(clusters[1], topic_name) if view.is_control]
    assert markers == [2, fences[0]]


def test_head_is_seeded_by_the_transactional_producer(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    (assignment,) = plan.assignments
    for cluster in clusters:
        seed_head(address(cluster), assignment, start=5_000)
    write_transaction(transactional_producer(clusters[0], topic_name), topic_name, 4, commit=True)

    with Copier(plan) as copier:
        copier.wait_for_ends({0: 5_005})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 4


def write_once_more(clusters: Pair, producer: TransactionalProducer, topic: str) -> None:
    """Write the marker again, as a coordinator does that has moved or got no response."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    again = marker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    session = Cluster(address(clusters[1]))
    try:
        leader = session.newest_topics([topic])[topic].partitions[0].broker
        response: Any = session.call(
            leader, lambda _: WriteTxnMarkersRequest(version=MARKERS_VERSION, markers=[again]), response=WriteTxnMarkersResponse
        )
        assert response.markers[0].topics[0].partitions[0].error_code == 0
    finally:
        session.close()


def test_marker_written_twice_by_the_coordinator_is_counted(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    producer = transactional_producer(clusters[0], topic_name)
    write_transaction(producer, topic_name, 2, commit=False)  # three offsets without a record
    write_transaction(producer, topic_name, 1, commit=True)
    write_marker, written = EmptyTransactions.write_marker, list[TransactionalProducer]()

    def twice_at_first(self: EmptyTransactions, owner: TransactionalProducer, **where: Any) -> None:
        write_marker(self, owner, **where)
        if not written:
            write_once_more(clusters, owner, topic_name)
        written.append(owner)

    monkeypatch.setattr(EmptyTransactions, "write_marker", twice_at_first)

    with Copier(plan) as copier:
        copier.wait_for_ends({0: 5})

    assert len(written) == 3  # instead of four
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 1


def test_nothing_follows_a_marker_until_its_transaction_is_complete(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    plan = transactional(plan_of(clusters, topic_name), clusters)
    describe, ends = EmptyTransactions._describe, []

    def late_to_complete(self: EmptyTransactions) -> Any:
        ends.append(ends_of(clusters[1], topic_name)[0])
        return SimpleNamespace(transaction_state="PrepareAbort") if len(ends) <= 6 else describe(self)

    with Copier(plan) as copier:
        copier.wait_for_ends({0: 0})
        monkeypatch.setattr(EmptyTransactions, "_describe", late_to_complete)
        write_transaction(transactional_producer(clusters[0], topic_name), topic_name, 2, commit=False)
        write_transaction(transactional_producer(clusters[0], topic_name), topic_name, 1, commit=True)
        copier.wait_for_ends({0: 5})

    assert max(ends[:7]) == 1
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 1

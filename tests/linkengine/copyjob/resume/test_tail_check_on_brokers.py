"""The tail check on real brokers: last records that differ from the source's are found before anything is appended."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.producer_state import coordinator_epoch_for
from linkengine.copyjob.resume.log_end import read_log_ends
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionAssignment, PartitionPhase, PartitionProgress
from linkengine.kafka.admin_topics import is_compacted
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.requests import MARKERS_VERSION
from linkengine.kafka.transactions import EmptyTransactions
from tests.linkengine.copyjob.copying import (
    DEADLINE_S,
    Copier,
    Pair,
    address,
    assert_equal_topics,
    create_pair,
    create_topic,
    ends_of,
    noted_location,
    plan_of,
    producer_for,
    topic_id,
    wait_for,
)
from tests.linkengine.copyjob.memory import MemoryLease


def write(cluster: KafkaCluster, topic: str, *values: str, partition: int = 0) -> None:
    producer = producer_for(cluster)
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    assert producer.flush(60) == 0


def write_late_marker(cluster: KafkaCluster, assignment: PartitionAssignment) -> None:
    """Write a marker as a stale owner does, before a newer owner has raised the epoch."""
    session = Cluster(address(cluster))
    try:
        log_end = read_log_ends(session, [LogEndQuery(assignment=assignment, clean=False)])[assignment.key]
        assert isinstance(log_end, LogEnd)
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        late = marker(
            producer_id=assignment.producer_id,
            producer_epoch=log_end.producer.epoch,
            transaction_result=False,
            topics=[marker.WritableTxnMarkerTopic(name=assignment.mirror_topic, partition_indexes=[assignment.partition])],
            coordinator_epoch=coordinator_epoch_for(1),
        )
        response: Any = session.call(
            log_end.leader.broker,
            lambda _: WriteTxnMarkersRequest(version=MARKERS_VERSION, markers=[late]),
            response=WriteTxnMarkersResponse,
        )
        assert response.markers[0].topics[0].partitions[0].error_code == 0
    finally:
        session.close()


def write_transaction(cluster: KafkaCluster, topic: str, *, empty: bool) -> None:
    """Write to a topic as an application that aborts its records, or commits an empty transaction."""
    if not empty:
        producer = producer_for(cluster, transactional_id=f"{topic}-stranger")
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value="theirs", partition=0)
        producer.flush()
        producer.abort_transaction(30)
        return
    session = Cluster(address(cluster))
    try:
        transactions = EmptyTransactions(session, f"{topic}-stranger")
        transactions.write_marker(transactions.fence(), topic=topic, partition=0, commit=True)
    finally:
        session.close()


def failed_with(code: ErrorCode) -> Callable[[PartitionProgress], bool]:
    return lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.FAILED, code)


def test_next_owner_finds_a_late_marker_at_the_mirrors_end(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, partitions=2)
    for partition in (0, 1):
        write(clusters[0], topic_name, "a", "b", partition=partition)
    plan = plan_of(clusters, topic_name, partitions=2)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 2, 1: 2})
    for assignment in plan.assignments:
        write_late_marker(clusters[1], assignment)
    write(
        clusters[0], topic_name, "c", "d"
    )  # at the marker's offset the source has a record in partition 0 and nothing in partition 1

    with Copier(plan) as copier:
        copier.wait_until(failed_with(ErrorCode.MARKER_OVERRUN))

        messages = {progress.error_message for progress in copier.progress.latest.values()}
    assert all("at offset 2" in message and "create it again" in message for message in messages)
    assert ends_of(clusters[1], topic_name, partitions=2) == {0: 3, 1: 3}


def test_late_marker_before_an_append_is_distinguished_from_a_foreign_write(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "a")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 1})
        write_late_marker(clusters[1], plan.assignments[0])
        write(clusters[0], topic_name, "b")

        copier.wait_until(failed_with(ErrorCode.MARKER_OVERRUN))

        (progress,) = copier.progress.latest.values()
        assert "offset 1," in progress.error_message


def test_next_owner_finds_records_that_the_source_replaced(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    create_topic(clusters[0], f"{topic_name}-after")
    write(clusters[0], topic_name, "a", "b", "lost")
    write(clusters[0], f"{topic_name}-after", "a", "b", "instead", "more")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 3})
    (assignment,) = plan.assignments
    rewound = replace(assignment, source_topic=f"{topic_name}-after", source_topic_id="")

    with Copier(replace(plan, assignments=(rewound,))) as copier:
        copier.wait_until(failed_with(ErrorCode.UNEXPECTED_TRUNCATION))
        # even the first record differs, by its timestamp
        assert [progress.source_kept for progress in copier.progress.latest.values()] == [0]

    assert ends_of(clusters[1], topic_name) == {0: 3}


def test_foreign_write_between_two_owners_is_found_with_and_without_lease_state(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "a")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as first:
        first.wait_for_ends({0: 1})
    assert list(first.lease.seen.values()) == [(0, 1)]  # the source's leader epoch and the mirror's end
    write(clusters[1], topic_name, "theirs")

    for lease in (first.lease, MemoryLease()):
        with Copier(plan, lease=lease) as copier:
            copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))
        write(clusters[0], topic_name, "b")  # the second time the source has a record at that offset
    assert ends_of(clusters[1], topic_name) == {0: 2}


def test_source_reset_during_a_pause_is_found_although_its_leader_epoch_is_the_same(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    create_topic(clusters[0], f"{topic_name}-again")
    write(clusters[0], topic_name, "a", "b", "lost")
    write(clusters[0], f"{topic_name}-again", "a", "b", "instead", "more")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 3})
    (assignment,), lease = plan.assignments, copier.lease
    assert lease.seen == {assignment.key: (0, 3)}
    lease.rested_ms = 3_600_000
    (held,) = lease.acquire_all([assignment.key], "previous owner")
    set_back = replace(assignment, source_topic=f"{topic_name}-again", source_topic_id="")
    is_located = noted_location(monkeypatch)

    with Copier(replace(plan, assignments=(set_back,)), lease=lease) as after:
        assert is_located.wait(DEADLINE_S)  # before that the previous owner's end is not used
        lease.release(held, seen=(0, 3))
        after.wait_until(failed_with(ErrorCode.UNEXPECTED_TRUNCATION))

    assert ends_of(clusters[1], topic_name) == {0: 3}


@pytest.mark.parametrize("empty", [False, True], ids=["aborted", "empty"])
def test_foreign_transaction_without_visible_records_is_found(clusters: Pair, topic_name: str, empty: bool) -> None:
    """Consumers do not see it, but the source's next records would be skipped in its place."""
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "a")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 1})
    write_transaction(clusters[1], topic_name, empty=empty)
    end = 2 if empty else 3
    wait_for(lambda: ends_of(clusters[1], topic_name) == {0: end})
    write(clusters[0], topic_name, "b", "c", "d")

    with Copier(plan) as copier:
        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))

        (message,) = {progress.error_message for progress in copier.progress.latest.values()}
    assert "offset 1." in message
    assert ends_of(clusters[1], topic_name) == {0: end}


def test_deleted_foreign_record_is_found_by_the_mirrors_log_start(clusters: Pair, topic_name: str) -> None:
    """There is nothing left to compare, and the source's next record would be skipped."""
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "a")
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as first:
        first.wait_for_ends({0: 1})
    write(clusters[1], topic_name, "theirs")
    admin, everything = AdminClient(clusters[1].client("admin")), TopicPartition(topic_name, 0, 2)
    admin.delete_records([everything])[everything].result(30)
    write(clusters[0], topic_name, "b")
    reported = replace(plan.assignments[0], source_seen=(0, 1))

    with Copier(replace(plan, assignments=(reported,)), lease=first.lease) as copier:
        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))

    (message,) = {progress.error_message for progress in copier.progress.latest.values()}
    assert "offset 1." in message


def test_copying_resumes_when_the_tail_check_finds_no_difference(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0], transactional_id=topic_name)
    producer.init_transactions(30)
    plan, lease = plan_of(clusters, topic_name), MemoryLease()
    for number in range(3):  # ends with a marker each time, once behind aborted records
        producer.begin_transaction()
        producer.produce(topic_name, value=f"{number}", headers=[("h", None), ("h", b"2")])
        producer.flush()
        producer.abort_transaction(30) if number == 1 else producer.commit_transaction(30)
        lease.seen.clear()  # the (epoch, end) of the previous owner
        with Copier(plan, lease=lease) as copier:
            copier.wait_for_ends({0: 2 * number + 2})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 2


def test_compacted_source_is_recognised(source_cluster: KafkaCluster, topic_name: str) -> None:
    create_topic(source_cluster, topic_name)
    create_topic(source_cluster, f"{topic_name}-both", cleanup_policy="compact,delete")
    session = Cluster(address(source_cluster))
    try:
        leader = session.topics([topic_name])[topic_name].partitions[0]
        found = {suffix: is_compacted(session, leader.broker, topic_name + suffix) for suffix in ("", "-both", "-missing")}
    finally:
        session.close()
    assert found == {"": False, "-both": True, "-missing": True}


@pytest.mark.parametrize(
    ("known", "code"),
    [(True, ErrorCode.MIRROR_TOPIC_MISSING), (False, ErrorCode.FOREIGN_WRITE)],
    ids=["its id is known", "it is only shorter"],
)
def test_recreated_topic_does_not_count_as_the_mirror(clusters: Pair, topic_name: str, known: bool, code: ErrorCode) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "a", "b", "c")
    (assignment,), lease = plan_of(clusters, topic_name).assignments, MemoryLease()
    mirror_id = topic_id(clusters[1], topic_name)
    plan = replace(
        plan_of(clusters, topic_name), assignments=(replace(assignment, mirror_topic_id=mirror_id if known else ""),)
    )
    with Copier(plan, lease=lease) as copier:
        copier.wait_for_ends({0: 3})
    admin = AdminClient(clusters[1].client("admin"))
    admin.delete_topics([topic_name])[topic_name].result(30)
    wait_for(lambda: topic_name not in admin.list_topics(timeout=10).topics)
    create_topic(clusters[1], topic_name)
    write(clusters[1], topic_name, "theirs")

    with Copier(plan, lease=lease) as copier:
        copier.wait_until(failed_with(code))

    assert ends_of(clusters[1], topic_name) == {0: 1}

"""Failures of the source, on real brokers: each has its phase, its error code and a helpful message."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.broker_link import BrokerLink
from linkengine.copyjob.buffers import Buffer, BufferPool
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.source import fetcher, leaders, side
from linkengine.copyjob.source.fetch_planner import FetchPlanner
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase, PartitionProgress, TopicPartition
from linkengine.domain.workers import Grant
from linkengine.kafka.channel import Channel
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import EARLIEST_LOCAL, list_offsets
from linkengine.kafka.protocol import KafkaCode
from linkengine.kafka.requests import FetchedPartition, FetchResponse, decode_fetch
from tests.linkengine.copyjob.copying import (
    DEADLINE_S,
    Copier,
    Pair,
    address,
    assert_equal_topics,
    assignments_for,
    create_pair,
    create_topic,
    ends_of,
    noted_location,
    plan_for,
    plan_of,
    producer_for,
    wait_for,
)

PIECE, PIECE_S = 64 << 10, 0.1  # bytes and time of a receive on a slow network: 4 MB take six seconds
HELD_S = 1.0  # a response stops for this long; shorter than ``fetcher.GRACE_S``
Found = dict[TopicPartition, tuple[int, int]]


def write(cluster: KafkaCluster, topic: str, count: int) -> None:
    producer = producer_for(cluster)
    for number in range(count):
        producer.produce(topic, value=f"{number}")
    producer.flush()


def write_large(clusters: Pair, topic: str) -> None:
    """Create a topic on both sides, with a record of 4 MB at the source."""
    create_pair(clusters, topic, max_message_bytes="8000000")
    producer = producer_for(clusters[0], message_max_bytes=8_000_000)
    producer.produce(topic, value=b"x" * 4_000_000)
    assert producer.flush(30) == 0


def shows(phase: PartitionPhase, code: str) -> Callable[[PartitionProgress], bool]:
    return lambda progress: (progress.phase, progress.error_code) == (phase, code)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_breaks_the_link_and_is_not_shown(clusters: Pair, topic_name: str, mechanism: str) -> None:
    create_pair(clusters, topic_name)
    plan = plan_of(clusters, topic_name)
    wrong = replace(address(clusters[0], mechanism=mechanism), sasl_password="not-the-password")

    with Copier(replace(plan, source=wrong)) as copier:
        copier.wait_until(shows(PartitionPhase.LINK_BROKEN, ErrorCode.AUTHENTICATION_ERROR))
        message = copier.progress.latest[plan.assignments[0].key].error_message

    assert "'link'" in message
    assert "sasl.jaas.config" in message
    assert "not-the-password" not in message


def test_missing_permission_breaks_the_link_until_it_is_granted(clusters: Pair, topic_name: str) -> None:
    source, _ = clusters
    create_pair(clusters, topic_name)
    write(source, topic_name, 10)
    admin = AdminClient(source.client("admin"))
    wanted = (ResourceType.TOPIC, topic_name, ResourcePatternType.LITERAL, "User:app", "*", AclOperation.READ)
    admin.create_acls([AclBinding(*wanted, AclPermissionType.DENY)])
    plan = replace(plan_of(clusters, topic_name), source=address(source, "app"))

    with Copier(plan) as copier:
        copier.wait_until(shows(PartitionPhase.LINK_BROKEN, ErrorCode.AUTHORIZATION_ERROR))
        removed = admin.delete_acls([AclBindingFilter(*wanted, AclPermissionType.DENY)])
        for deletion in removed.values():
            deletion.result(30)
        copier.wait_for_ends({0: 10})
        copier.wait_until(shows(PartitionPhase.COPYING, ""))


def test_response_on_a_slow_network_is_waited_for(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated response would be as large and take as long, so that nothing would ever be copied."""
    write_large(clusters, topic_name)
    lost: list[LinkEngineError] = []
    receive, lose = Channel.receive, BrokerLink.lose

    def narrow(channel: Channel, into: memoryview) -> int:
        if len(into) > PIECE:
            time.sleep(PIECE_S)
        return receive(channel, into[:PIECE])

    def noted(link: BrokerLink, error: LinkEngineError) -> None:
        lost.append(error)
        lose(link, error)

    monkeypatch.setattr(fetcher, "GRACE_S", 3.0)
    monkeypatch.setattr(Channel, "receive", narrow)
    monkeypatch.setattr(BrokerLink, "lose", noted)
    plan = plan_of(clusters, topic_name, fetch_wait_ms=100)

    with Copier(plan) as copier:
        copier.wait_for_ends({0: 1})

    assert lost == []


def test_age_of_a_response_counts_from_its_first_bytes(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records produced while it arrives over a slow network are not in it.

    The response is held back in its middle. Other requests observe the source's end in that time; their times do not count.
    """
    write_large(clusters, topic_name)
    responded_ms: list[int] = []
    receive, take = Channel.receive, FetchPlanner.take
    begun, continues = threading.Event(), threading.Event()

    def held(channel: Channel, into: memoryview) -> int:
        if not PIECE < len(into) < 3_000_000 or continues.is_set():
            return receive(channel, into[:PIECE])
        begun.set()
        return 0

    def noted(
        planner: FetchPlanner, partition: PartitionState, fetched: FetchedPartition, buffer: Buffer, **where: Any
    ) -> None:
        if len(fetched.records):
            responded_ms.append(where["responded_ms"])
        take(planner, partition, fetched, buffer, **where)

    monkeypatch.setattr(Channel, "receive", held)
    monkeypatch.setattr(FetchPlanner, "take", noted)

    with Copier(plan_of(clusters, topic_name)) as copier:
        assert begun.wait(DEADLINE_S)
        time.sleep(HELD_S)
        continued_ms = time.time_ns() // 1_000_000
        continues.set()
        copier.wait_for_ends({0: 1})

    assert responded_ms[0] < continued_ms  # it was complete later


def test_connection_is_closed_when_a_broker_stops_within_a_response(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_large(clusters, topic_name)
    receive, lose = Channel.receive, BrokerLink.lose
    whole, lost = threading.Event(), list[str]()

    def frozen(channel: Channel, into: memoryview) -> int:
        return receive(channel, into) if whole.is_set() or len(into) > 3_000_000 or len(into) < PIECE else 0

    def noted(link: BrokerLink, error: LinkEngineError) -> None:
        lost.append(error.message)
        whole.set()
        lose(link, error)

    monkeypatch.setattr(fetcher, "GRACE_S", 0.3)
    monkeypatch.setattr(Channel, "receive", frozen)
    monkeypatch.setattr(BrokerLink, "lose", noted)

    with Copier(plan_of(clusters, topic_name, fetch_wait_ms=100)) as copier:
        copier.wait_for_ends({0: 1})

    assert "may be frozen" in lost[0]


def test_response_without_a_free_buffer_is_read_once_a_buffer_is_free(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, 10)
    take, waited, free = BufferPool.take, threading.Event(), threading.Event()

    def hold_back(pool: BufferPool, size: int) -> Buffer | None:
        waited.set()
        return take(pool, size) if free.is_set() else None

    monkeypatch.setattr(BufferPool, "take", hold_back)
    with Copier(plan_of(clusters, topic_name)) as copier:
        assert waited.wait(60)
        free.set()
        copier.wait_for_ends({0: 10})


def test_leader_with_a_failed_disk_is_located_again(clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, 10)
    requested, failed = list[int](), [True]

    def decode_failed(body: memoryview, *, version: int) -> FetchResponse:
        response = decode_fetch(body, version=version)
        error = KafkaCode.KAFKA_STORAGE_ERROR if failed[0] else KafkaCode.NONE
        return response._replace(partitions=[part._replace(error=error) for part in response.partitions])

    def located(*args: Any, **seen: Any) -> Any:
        requested.append(1)
        return leaders.locate_sources(*args, **seen)

    monkeypatch.setattr(fetcher, "decode_fetch", decode_failed)
    monkeypatch.setattr(side, "locate_sources", located)
    with Copier(plan_of(clusters, topic_name)) as copier:
        wait_for(lambda: len(requested) > 2)
        copier.wait_until(shows(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.TIMEOUT_ERROR))
        failed[0] = False
        copier.wait_for_ends({0: 10})


def test_unknown_source_topic_is_reported_and_retried(clusters: Pair, topic_name: str) -> None:
    create_topic(clusters[1], topic_name)
    create_topic(clusters[0], f"{topic_name}-other")
    (other,) = assignments_for(clusters[0], f"{topic_name}-other", topic_name)
    assignment = replace(other, source_topic=topic_name, source_topic_id="")
    plan = plan_for(address(clusters[0]), address(clusters[1]), (assignment,))

    with Copier(plan) as copier:
        copier.wait_until(shows(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED))
        create_topic(clusters[0], topic_name)
        write(clusters[0], topic_name, 5)
        copier.wait_for_ends({0: 5})


def test_leader_located_before_the_lease_is_checked_against_the_previous_owners_end(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy worker locates leaders before it has leases. The owner until then may have read from a later leader."""
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, 10)
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as before:
        before.wait_for_ends({0: 10})
    key = plan.assignments[0].key
    before.lease.acquire_all([key], "former owner")
    is_located = noted_location(monkeypatch)

    with Copier(plan, lease=before.lease) as copier:
        copier.wait_until(lambda progress: progress.phase == PartitionPhase.WAITING)
        assert is_located.wait(DEADLINE_S)
        write(clusters[0], topic_name, 5)
        former = Grant(key=key, generation=before.lease.generations[key], clean=True, valid_until=0.0)
        before.lease.release(former, seen=(7, 10))
        copier.wait_until(shows(PartitionPhase.FAILED, ErrorCode.UNEXPECTED_TRUNCATION))

    assert ends_of(clusters[1], topic_name) == {0: 10}


def test_recreated_source_topic_fails_the_mirror(clusters: Pair, topic_name: str) -> None:
    source, _ = clusters
    create_pair(clusters, topic_name)
    write(source, topic_name, 20)
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 20})
        admin = AdminClient(source.client("admin"))
        admin.delete_topics([topic_name])[topic_name].result(30)
        wait_for(lambda: topic_name not in admin.list_topics(timeout=10).topics)
        create_topic(source, topic_name)
        write(source, topic_name, 50)

        copier.wait_until(shows(PartitionPhase.FAILED, ErrorCode.SOURCE_TOPIC_ID_CHANGED))

    assert ends_of(clusters[1], topic_name) == {0: 20}


def test_source_shorter_than_its_mirror_fails_the_mirror(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_pair(clusters, topic_name)
    write(source, topic_name, 30)
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as before:
        before.wait_for_ends({0: 30})
    create_topic(source, f"{topic_name}-short")
    write(source, f"{topic_name}-short", 10)

    shorter = replace(plan.assignments[0], source_topic=f"{topic_name}-short", source_topic_id="")
    with Copier(plan_for(address(source), address(destination), (shorter,))) as copier:
        copier.wait_until(shows(PartitionPhase.FAILED, ErrorCode.UNEXPECTED_TRUNCATION))
        assert [progress.source_kept for progress in copier.progress.latest.values()] == [
            0
        ]  # it has other records at these offsets


def test_unreachable_source_is_retried_until_it_responds(
    destination_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster], topic_name: str
) -> None:
    own = make_cluster()
    clusters = own, destination_cluster
    create_pair(clusters, topic_name)
    write(own, topic_name, 10)
    plan = plan_of(clusters, topic_name)
    own.kill()

    with Copier(plan) as copier:
        expected = shows(PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR)
        copier.wait_until(expected)
        own.restart()
        copier.wait_for_ends({0: 10})

    assert assert_equal_topics(own, topic_name, destination_cluster, topic_name) == 10


def test_records_in_slow_remote_storage_do_not_count_as_compacted(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a remote read lasts, a Fetch below the local log start returns no records and no error (KIP-405)."""
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, 10)
    empty_responses, slow = [0], [True]

    def decode_emptied(body: memoryview, *, version: int) -> FetchResponse:
        response = decode_fetch(body, version=version)
        if not slow[0]:
            return response
        empty_responses[0] += 1
        return response._replace(partitions=[part._replace(records=part.records[:0]) for part in response.partitions])

    def with_local_start(cluster: Cluster, broker: int, places: list[TopicPartition], *, timestamp: int) -> Found:
        found = list_offsets(cluster, broker, places, timestamp=timestamp)
        return dict.fromkeys(places, (0, 10)) if timestamp == EARLIEST_LOCAL else found

    monkeypatch.setattr(fetcher, "decode_fetch", decode_emptied)
    monkeypatch.setattr(leaders, "list_offsets", with_local_start)
    with Copier(plan_of(clusters, topic_name)) as copier:
        wait_for(lambda: empty_responses[0] > 5)
        copier.wait_until(lambda progress: (progress.source_end, progress.mirror_end) == (10, 0))
        slow[0] = False
        copier.wait_for_ends({0: 10})

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 10

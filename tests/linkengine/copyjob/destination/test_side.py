"""Errors at the destination, on real brokers."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.copyjob.resume import log_end as log_end_module
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.kafka import requests
from linkengine.kafka.offsets import log_ends
from linkengine.kafka.protocol import Bytes
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
)
from tests.linkengine.copyjob.destination.test_gap_filler_transactions import transactional
from tests.linkengine.copyjob.rawwriter import send_batches


def write(cluster: KafkaCluster, topic: str, *values: str) -> None:
    producer = producer_for(cluster)
    for value in values:
        producer.produce(topic, value=value)
    producer.flush()


def failed_with(code: ErrorCode) -> Callable[[PartitionProgress], bool]:
    return lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.FAILED, code)


def has_source_end(end: int) -> Callable[[PartitionProgress], bool]:
    return lambda progress: progress.source_end == end


def test_foreign_write_is_found_while_the_mirror_is_idle(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "own")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        write(clusters[1], topic_name, "foreign")

        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))

        (progress,) = copier.progress.latest.values()
        assert "offset 1" in progress.error_message
        assert "create it again" in progress.error_message


def test_foreign_write_is_found_while_the_log_end_keeps_moving(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "own")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})

        def ends_while_they_write(*requested: Any, **rest: Any) -> Any:
            write(clusters[1], topic_name, "foreign")
            return log_ends(*requested, **rest)

        monkeypatch.setattr(log_end_module, "log_ends", ends_while_they_write)
        write(clusters[1], topic_name, "foreign")

        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE), deadline_s=20)


@pytest.mark.parametrize("by_transactions", [False, True], ids=["markers", "transactions"])
def test_foreign_write_at_the_offset_of_a_refused_batch_is_found(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch, by_transactions: bool
) -> None:
    """The mirror is shorter than what was sent, so its length alone does not show the write."""
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "first")
    encode, lost = requests.encode_produce, list[str]()

    def encode_damaged(batches: Mapping[bytes, list[tuple[int, Bytes]]], **settings: int) -> list[Bytes]:
        if lost:
            return encode(batches, **settings)
        write(clusters[1], topic_name, "foreign")
        lost.append(topic_name)
        damaged = {topic: [(number, bytes(batch)[:-1] + b"!") for number, batch in group] for topic, group in batches.items()}
        return encode(damaged, **settings)

    plan = plan_of(clusters, topic_name)
    with Copier(transactional(plan, clusters) if by_transactions else plan) as copier:
        copier.wait_for_ends({0: 1})
        monkeypatch.setattr(requests, "encode_produce", encode_damaged)
        write(clusters[0], topic_name, "second", "third", "fourth")

        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))

        (progress,) = copier.progress.latest.values()
    assert "offset 1." in progress.error_message
    assert ends_of(clusters[1], topic_name) == {0: 2}


def test_foreign_write_between_two_own_appends_is_found_by_its_offset(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "first")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        write(clusters[1], topic_name, "foreign")
        write(clusters[0], topic_name, "second", "third")

        copier.wait_until(failed_with(ErrorCode.FOREIGN_WRITE))
        write(clusters[0], topic_name, "fourth")

    assert b"fourth" not in [record[3] for record in read_topic(clusters[1], topic_name)]


@pytest.mark.parametrize("records", [1, 3_000])
def test_mirror_fails_at_once_if_its_broker_replaces_timestamps(clusters: Pair, topic_name: str, records: int) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "with its own time")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        set_config(clusters[1], topic_name, "message.timestamp.type", "LogAppendTime")
        write(clusters[0], topic_name, *[f"{number}" for number in range(records)])

        copier.wait_until(failed_with(ErrorCode.TIMESTAMPS_REPLACED))
        (progress,) = copier.progress.latest.values()
        write(clusters[0], topic_name, "after it")

    assert "from offset 1 on" in progress.error_message
    (result,) = copier.join()
    assert result.mirror_end == ends_of(clusters[1], topic_name)[0] <= 1 + records
    values = [record[3] for record in read_topic(clusters[1], topic_name)]
    assert values[0] == b"with its own time"
    assert b"after it" not in values


def test_duplicate_response_is_not_mistaken_for_a_replaced_timestamp(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to a duplicate has the timestamp of the stored batch."""
    create_pair(clusters, topic_name)
    encode, decode, responses = requests.encode_produce, requests.decode_produce, list[requests.ProducedPartition]()

    def encode_after_another(batches: Mapping[bytes, list[tuple[int, Bytes]]], **settings: int) -> list[Bytes]:
        before = [bytes(batch) for group in batches.values() for _, batch in group]
        assert [response.error for response in send_batches(clusters[1], topic_name, before)] == [0]
        return encode(batches, **settings)

    def decode_and_keep(body: memoryview, *, version: int) -> tuple[int, list[requests.ProducedPartition]]:
        decoded = decode(body, version=version)
        responses.extend(decoded[1])
        return decoded

    monkeypatch.setattr(requests, "encode_produce", encode_after_another)
    monkeypatch.setattr(requests, "decode_produce", decode_and_keep)
    write(clusters[0], topic_name, "first")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        write(clusters[0], topic_name, "second")
        copier.wait_for_ends({0: 2})

    assert [(response.error, response.base_offset, response.log_append_time > 0) for response in responses] == [
        (0, 0, True),
        (0, 1, True),
    ]
    assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name)


def test_mirror_fails_if_its_topic_is_deleted(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    write(clusters[0], topic_name, "one")
    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_for_ends({0: 1})
        admin = AdminClient(clusters[1].client("admin"))
        admin.delete_topics([topic_name])[topic_name].result(30)
        write(clusters[0], topic_name, "two")

        copier.wait_until(failed_with(ErrorCode.MIRROR_TOPIC_MISSING))


def test_failed_partition_does_not_stop_another(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name, partitions=2)
    with Copier(plan_of(clusters, topic_name, partitions=2)) as copier:
        copier.wait_for_ends({0: 0, 1: 0})
        producer = producer_for(clusters[1])
        producer.produce(topic_name, value="foreign", partition=0)
        producer.flush()
        keys = sorted(copier.progress.latest)
        copier.wait_until(lambda progress: progress.key != keys[0] or progress.phase is PartitionPhase.FAILED)

        healthy = producer_for(clusters[0])
        healthy.produce(topic_name, value="own", partition=1)
        healthy.flush()
        copier.wait_until(lambda progress: progress.key != keys[1] or progress.mirror_end == 1)


def test_copy_starts_when_an_unreachable_destination_returns(
    source_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster], topic_name: str
) -> None:
    own = make_cluster()
    for cluster in (source_cluster, own):
        create_topic(cluster, topic_name)
    write(source_cluster, topic_name, "a", "b")
    plan = plan_of((source_cluster, own), topic_name)
    own.kill()

    with Copier(plan) as copier:
        copier.wait_until(lambda progress: progress.phase is PartitionPhase.DESTINATION_UNREACHABLE)
        for end, value in ((3, "c"), (4, "d")):  # the source is read all the same, so that a growing lag is shown
            write(source_cluster, topic_name, value)
            copier.wait_until(has_source_end(end))
        own.restart()
        copier.wait_for_ends({0: 4})

    assert assert_equal_topics(source_cluster, topic_name, own, topic_name) == 4
    assert ends_of(own, topic_name) == {0: 4}


def test_batches_shrink_to_the_limit_of_the_mirror(clusters: Pair, topic_name: str) -> None:
    create_topic(clusters[0], topic_name)
    create_topic(clusters[1], topic_name, max_message_bytes="9000")
    producer = producer_for(clusters[0])
    for number in range(200):
        producer.produce(topic_name, value=f"{number}" * 300)
        if number % 5 == 0:
            producer.flush()
    producer.flush()

    copy_all(clusters, topic_name)

    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 200

"""Batches that cannot be read or are refused, on real brokers: nothing is copied past them, and the error is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from tests.conftest import MakeCluster
from tests.linkengine.batches.batchlog import ZSTD, Rec, dense
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    assert_equal_topics,
    create_pair,
    create_topic,
    ends_of,
    plan_of,
    producer_for,
    set_config,
)
from tests.linkengine.copyjob.rawwriter import read_batches_of, send_batches

OLD_MS = 1_700_000_000_000


def change_byte(cluster: KafkaCluster, topic: str, offset: int) -> Callable[[], None]:
    """Damage the last byte of the batch at an offset in a running broker's log file; return a function that repairs it."""
    before = [view.size for view, _ in read_batches_of(cluster, topic) if view.base_offset < offset]
    (size,) = (view.size for view, _ in read_batches_of(cluster, topic) if view.base_offset == offset)
    segment = next(Path(cluster.directory).glob(f"broker-0/data/{topic}-0/{0:020}.log"))
    place = sum(before) + size - 1

    def flip() -> None:
        with segment.open("r+b") as file:
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 0x55]))

    flip()
    return flip


@pytest.mark.parametrize(("count", "codec"), [(3, 0), (400, ZSTD)], ids=["merged", "passed through"])
def test_copying_stops_at_a_damaged_batch_until_it_is_repaired(clusters: Pair, topic_name: str, count: int, codec: int) -> None:
    create_pair(clusters, topic_name, retention_ms="-1")
    batches = [dense(0, [Rec(OLD_MS, b"k", b"value %d" % number) for number in range(count)], codec=codec) for _ in range(6)]
    send_batches(clusters[0], topic_name, [batch.encode() for batch in batches])
    repair = change_byte(clusters[0], topic_name, 4 * count)

    with Copier(plan_of(clusters, topic_name)) as copier:
        expected = f"offset {4 * count} does not have the checksum"
        copier.wait_until(lambda progress: progress.mirror_end == 4 * count and expected in progress.error_message)
        shown = next(iter(copier.progress.latest.values()))
        repair()
        copier.wait_for_ends({0: 6 * count})

    assert (shown.phase, shown.error_code) == (PartitionPhase.SOURCE_UNREACHABLE, ErrorCode.CORRUPT_RECORDS)
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 6 * count


@pytest.mark.parametrize(("name", "small"), [("max.message.bytes", "1000000"), ("segment.bytes", "1048576")])
def test_record_too_large_for_the_mirror_topic_waits_for_its_config(
    clusters: Pair, topic_name: str, name: str, small: str
) -> None:
    source, destination = clusters
    create_topic(source, topic_name, max_message_bytes="4000000")
    create_topic(destination, topic_name, max_message_bytes="4000000")
    set_config(destination, topic_name, name, small)
    producer = producer_for(source, message_max_bytes=4_000_000)
    for size in (10, 2_000_000, 10):
        producer.produce(topic_name, value=b"v" * size)
        producer.flush()

    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_until(lambda progress: progress.mirror_end == 1 and progress.error_code == ErrorCode.MISCONFIGURATION_ERROR)
        shown = next(iter(copier.progress.latest.values()))
        set_config(destination, topic_name, name, "4000000")
        copier.wait_for_ends({0: 3})

    assert "the batch at offset 1 (1 record, 2000" in shown.error_message
    assert f"Raise {name} of the mirror topic" in shown.error_message
    assert assert_equal_topics(source, topic_name, destination, topic_name) == 3


def test_record_too_large_for_the_destinations_brokers_is_named_and_affects_no_other_partition(
    source_cluster: KafkaCluster, make_cluster: MakeCluster, topic_name: str
) -> None:
    small = make_cluster("small", extra={"socket.request.max.bytes": 3_000_000})
    clusters = (source_cluster, small)
    create_pair(clusters, topic_name, partitions=2, max_message_bytes="8000000")
    producer = producer_for(source_cluster, message_max_bytes=8_000_000)
    for size in (10, 5_000_000):
        producer.produce(topic_name, value=b"v" * size, partition=0)
        producer.flush()

    with Copier(plan_of(clusters, topic_name, partitions=2)) as copier:
        first, second = (assignment.key for assignment in copier.plan.assignments)

        def first_shows_error(progress: PartitionProgress) -> bool:
            return progress.key == second or progress.error_code == ErrorCode.MISCONFIGURATION_ERROR

        copier.wait_until(first_shows_error)
        message = copier.progress.latest[first].error_message
        producer.produce(topic_name, value=b"unaffected", partition=1)
        producer.flush()
        copier.wait_for_ends({0: 1, 1: 1})

    assert "socket.request.max.bytes" in message
    assert "the batch at offset 1 (1 record, 5000" in message
    assert ends_of(small, topic_name, partitions=2) == {0: 1, 1: 1}

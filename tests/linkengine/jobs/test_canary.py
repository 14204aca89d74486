"""The records that an ordinary consumer reads from a mirror, compared with its source."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.jobs import read_canary
from linkengine.kafka import committed
from linkengine.kafka.admin import ClusterAdmin
from tests.linkengine.batches.batchlog import Rec, at, dense
from tests.linkengine.copyjob.bombs import MEGABYTE, bomb
from tests.linkengine.copyjob.copying import create_topic
from tests.linkengine.copyjob.rawwriter import send_batches
from tests.topics import create_topics

pytestmark = pytest.mark.kafka
TIMEOUT_S = 90.0
NOW_MS = int(time.time() * 1000)  # the same on both sides; retention would delete records with an old timestamp


@pytest.fixture
def topic(topic_name: str, source_admin: AdminClient, destination_admin: AdminClient) -> str:
    """A topic of three partitions on both sides."""
    for admin in (source_admin, destination_admin):
        create_topics(admin, NewTopic(topic_name, 3, 1))
    return topic_name


def write(cluster: KafkaCluster, topic: str, *records: tuple[int, str | None]) -> None:
    producer = Producer(cluster.client("admin"))
    for partition, value in records:
        producer.produce(topic, value, "key", partition=partition, timestamp=NOW_MS)
    assert producer.flush(TIMEOUT_S) == 0


def read_mirror(
    source: ClusterAddress, destination: ClusterAddress, topic: str, *, compacted: bool = False
) -> list[CanaryRead]:
    return read_canary(source=source, destination=destination, source_topic=topic, mirror_topic=topic, compacted=compacted)


def test_the_newest_record_of_each_partition_is_compared(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    write(source_cluster, topic, *((0, f"v{n}") for n in range(30)), (1, "right"))
    write(destination_cluster, topic, *((0, f"v{n}") for n in range(30)), (1, "wrong"))

    reads = read_mirror(source, destination, topic)

    assert [(read.partition, read.offset) for read in reads] == [(0, 29), (1, 0), (2, None)]
    assert [read.problem for read in reads] == ["", "the record at offset 0 has another value than the source's", ""]


def test_a_newest_record_that_is_too_large_is_a_problem_of_its_partition_only(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    for cluster in (source_cluster, destination_cluster):
        send_batches(cluster, topic, [bomb(250 * MEGABYTE, timestamp=NOW_MS)])
        write(cluster, topic, (1, "right"))

    reads = read_mirror(source, destination, topic)

    assert reads[0].problem.startswith("the batch at offset 0, ")
    assert "more than 134,217,728 bytes decompressed" in reads[0].problem
    assert [(read.partition, read.offset, read.problem) for read in reads[1:]] == [(1, 0, ""), (2, None, "")]


def abort_transactions(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Append aborted transactions to partition 0, which take two offsets each: a record and a marker."""
    producer = Producer({**cluster.client("admin"), "transactional.id": f"canary-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(topic, "aborted", partition=0)
        producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)


@pytest.mark.parametrize("aborted", [1, 10])
def test_a_record_before_offsets_without_records_is_measured_before_it_is_read(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    monkeypatch: pytest.MonkeyPatch,
    aborted: int,
) -> None:
    for cluster in (source_cluster, destination_cluster):
        send_batches(cluster, topic, [bomb(250 * MEGABYTE, timestamp=NOW_MS)])
        abort_transactions(cluster, topic, aborted)
    read: list[tuple[int, int]] = []

    class Recording(Consumer):
        def assign(self, partitions: list[TopicPartition]) -> None:
            read.extend((place.partition, place.offset) for place in partitions)
            super().assign(partitions)

    monkeypatch.setattr(committed, "Consumer", Recording)

    reads = read_mirror(source, destination, topic)

    assert "more than 134,217,728 bytes decompressed" in reads[0].problem
    assert (0, 0) not in read
    assert [offset for partition, offset in read if partition == 0 and offset > 0]


@pytest.mark.parametrize("many", [(100, 100), (45, 45, 45)])
def test_batches_that_are_fetched_together_are_measured_together(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    many: tuple[int, ...],
) -> None:
    """A consumer decompresses all batches of a response, also those behind the record that it reads."""
    write(destination_cluster, topic, (0, "v"))
    write(source_cluster, topic, (0, "v"))
    send_batches(source_cluster, topic, [bomb(size * MEGABYTE, timestamp=NOW_MS) for size in many])

    reads = read_mirror(source, destination, topic)

    assert "more than 134,217,728 bytes decompressed" in reads[0].problem


def test_a_record_of_100_megabytes_is_read(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    for cluster in (source_cluster, destination_cluster):
        send_batches(cluster, topic, [bomb(100 * MEGABYTE, timestamp=NOW_MS) for _ in range(3)])

    reads = read_mirror(source, destination, topic)

    assert (reads[0].offset, reads[0].problem) == (2, "")


def test_a_record_that_the_source_does_not_have_is_a_problem(
    topic: str, source: ClusterAddress, destination: ClusterAddress, destination_cluster: KafkaCluster
) -> None:
    write(destination_cluster, topic, (2, "mine"))

    reads = read_mirror(source, destination, topic)

    assert reads[2].problem == "the source has no record at offset 0"


def test_a_record_that_the_source_has_deleted_since_is_not_a_problem(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    there: ClusterAdmin,
) -> None:
    for cluster in (source_cluster, destination_cluster):
        write(cluster, topic, (0, "old"), (0, "before the source's start by now"))
    write(source_cluster, topic, (0, "not copied yet"))
    there.trim(topic, {0: 2})

    read = read_mirror(source, destination, topic)[0]

    assert (read.offset, read.problem, read.gone) == (1, "", "deleted at the source since")


@pytest.mark.parametrize(
    ("value", "compacted", "gone"),
    [(None, True, "compacted"), ("v", True, ""), (None, False, "")],
    ids=["tombstone", "value", "not compacted"],
)
def test_only_a_tombstone_may_be_missing_from_a_compacted_source(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    destination_cluster: KafkaCluster,
    value: str | None,
    compacted: bool,
    gone: str,
) -> None:
    write(destination_cluster, topic, (0, value))

    read = read_mirror(source, destination, topic, compacted=compacted)[0]

    assert read.gone.partition(" ")[0] == gone
    assert bool(read.problem) == (not gone)


def test_markers_and_aborted_records_at_the_end_are_skipped(
    topic: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    for cluster in (source_cluster, destination_cluster):
        write(cluster, topic, (0, "first"))
        abort_transactions(cluster, topic, 15)

    reads = read_mirror(source, destination, topic)

    assert (reads[0].offset, reads[0].problem) == (0, "")


def test_records_with_unusual_headers_and_timestamps_are_compared_as_far_as_the_reader_shows_them(
    topic_name: str,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
) -> None:
    create_topic(source_cluster, topic_name, message_timestamp_type="LogAppendTime")
    create_topic(destination_cluster, topic_name)
    odd = dense(0, [Rec(5, b"k", b"v", ((b"\xff", b"no text"),))])
    (stamped,) = send_batches(source_cluster, topic_name, [odd.encode()])
    send_batches(destination_cluster, topic_name, [dense(0, [at(odd.records[0], stamped.log_append_time)]).encode()])

    for _ in range(20):  # CPython specializes code that runs often
        (read,) = read_mirror(source, destination, topic_name)
        assert (read.offset, read.problem) == (0, "")


def test_a_missing_mirror_topic_raises(source: ClusterAddress, destination: ClusterAddress, topic_name: str) -> None:
    with pytest.raises(LinkEngineError, match=topic_name):
        read_mirror(source, destination, topic_name)

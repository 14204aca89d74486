"""Offsets by time of real mirrors: equal to the source's for every time, unlike Kafka's own lookup on the mirror."""

from __future__ import annotations

import struct
import time
from bisect import bisect_left
from contextlib import closing
from typing import Any

import pytest
import zstandard
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devcluster.kafka import KafkaCluster
from linkengine.batches.patch import write_checksum
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import GapReason
from linkengine.jobs import browsing
from linkengine.kafka import single_reads
from linkengine.kafka.admin import ClusterAdmin
from tests.fillers import HEAD_START, MAKERS
from tests.linkengine.batches.batchlog import RECORDS_AT, ZSTD, Rec, dense
from tests.linkengine.copyjob.copying import Pair, create_topic, producer_for, read_topic
from tests.linkengine.copyjob.rawwriter import send_batches
from tests.linkengine.sync.conftest import commit, member, offsets_of

pytestmark = pytest.mark.kafka
END = -1
START_MS = int(time.time() * 1000) - 3_600_000  # retention deletes records with an old timestamp


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> Pair:
    """Source and destination."""
    return source_cluster, destination_cluster


def by_kafka(cluster: KafkaCluster, topic: str, moments: list[int]) -> list[int]:
    """Return what an ordinary client's ``offsets_for_times`` returns for each moment; -1 for the end."""
    with closing(Consumer({**cluster.client("admin"), "group.id": "by-time"})) as consumer:
        return [consumer.offsets_for_times([TopicPartition(topic, 0, moment)], timeout=30)[0].offset for moment in moments]


def by_product(destination: ClusterAddress, topic: str, moments: list[int]) -> list[int]:
    found = [browsing.offsets_for_time(destination, topic, moment) for moment in moments]
    assert all(row.is_complete for (row,) in found)
    return [END if row.offset is None else row.offset for (row,) in found]


def next_records(offsets: list[int], starts: list[int]) -> list[int]:
    """Return, for each offset that a consumer would seek to, the first record it would read; -1 for none."""
    places = [bisect_left(offsets, start) if start != END else len(offsets) for start in starts]
    return [offsets[place] if place < len(offsets) else END for place in places]


@pytest.mark.parametrize("reason", list(MAKERS))
def test_offsets_by_time_equal_those_of_the_source(
    clusters: Pair, destination: ClusterAddress, topic_name: str, reason: GapReason
) -> None:
    """The only difference: the source's own lookup also finds markers, which may be younger than the record behind them."""
    source, mirror = clusters
    results = MAKERS[reason](clusters, topic_name)
    assert reason is GapReason.HEAD or reason in {gap.reason for result in results for gap in result.gaps}
    records = [(record[1], record[4][1]) for record in read_topic(mirror, topic_name)]
    start = read_topic(source, topic_name)[0][1]  # the mirror has records from before it that the source has lost
    times = sorted({time for offset, time in records if offset >= start})[1:]
    moments = sorted({*times, *(time + 1 for time in times)})
    offsets = [offset for offset, _ in records]
    truth = [next((offset for offset, time in records if time >= moment), END) for moment in moments]

    found = by_product(destination, topic_name, moments)
    of_source, naive = by_kafka(source, topic_name, moments), by_kafka(mirror, topic_name, moments)

    assert found == truth
    compared = [(product, kafka) for product, kafka in zip(found, of_source, strict=True) if kafka in (*offsets, END)]
    assert len(compared) > len(moments) / 3
    assert all(product == kafka for product, kafka in compared)
    assert all(product == END or -1 < kafka <= product for product, kafka in zip(found, naive, strict=True))  # never later
    assert (next_records(offsets, naive) != found) is (reason is not GapReason.HEAD)  # the reason for the product's lookup


def test_offsets_for_a_time_before_and_after_all_records(clusters: Pair, destination: ClusterAddress, topic_name: str) -> None:
    MAKERS[GapReason.HEAD](clusters, topic_name)

    (first,), (last,) = (browsing.offsets_for_time(destination, topic_name, moment) for moment in (0, 1 << 45))

    assert (first.offset, first.is_complete) == (HEAD_START, True)
    assert (last.offset, last.record_timestamp_ms, last.is_complete, last.log_end_offset) == (None, None, True, HEAD_START + 10)


def test_a_search_has_a_budget_and_continues_where_it_ended(
    clusters: Pair, destination: ClusterAddress, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKERS[GapReason.ABORTED](clusters, topic_name)
    records = read_topic(clusters[1], topic_name)
    moment = records[-1][4][1]
    (whole,) = browsing.offsets_for_time(destination, topic_name, moment)
    monkeypatch.setattr(single_reads, "FEW_BYTES", 1)  # one batch per response

    position, calls = 0, 0
    while True:
        (row,) = single_reads.offsets_for_time(destination, topic_name, moment, positions={0: position}, budget_s=0.0)
        calls += 1
        if row.is_complete:
            break
        assert row.offset is None
        assert row.searched_to > position
        position = row.searched_to

    assert row == whole
    assert row.offset == records[-1][1]
    assert calls > 3


def test_every_partition_is_searched(destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str) -> None:
    create_topic(destination_cluster, topic_name, partitions=3)
    producer = producer_for(destination_cluster)
    for partition, times in enumerate(([100, 50, 300], [10, 20], [])):
        for time_ms in times:
            producer.produce(topic_name, value="x", partition=partition, timestamp=START_MS + time_ms)
            producer.flush()

    rows = browsing.offsets_for_time(destination, topic_name, START_MS + 100)

    assert [(row.partition, row.offset, row.log_end_offset) for row in rows] == [(0, 0, 3), (1, None, 2), (2, None, 0)]
    later = browsing.offsets_for_time(destination, topic_name, START_MS + 101)
    assert [row.offset for row in later] == [2, None, None]


def test_compressed_batches_are_searched_record_by_record(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    create_topic(destination_cluster, topic_name)
    producer = producer_for(destination_cluster, compression_type="zstd", linger_ms=500)
    for number in range(100):
        producer.produce(topic_name, value="x" * 100, timestamp=START_MS + number)
    producer.flush()

    found = [browsing.offsets_for_time(destination, topic_name, START_MS + number)[0].offset for number in (0, 57, 99)]

    assert found == [0, 57, 99]


def test_records_deleted_during_a_search_are_passed_over(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(destination_cluster, topic_name, partitions=2)
    producer = producer_for(destination_cluster)
    for partition in (0, 1):
        for number in range(10):
            producer.produce(topic_name, value="x", partition=partition, timestamp=START_MS + number)
    producer.flush()
    begin = single_reads._begin

    def begin_and_delete(*args: Any, **kwargs: Any) -> list[single_reads._Search]:
        searches = begin(*args, **kwargs)
        deletions = [TopicPartition(topic_name, 0, 7), TopicPartition(topic_name, 1, END)]
        admin = AdminClient(destination_cluster.client("admin"))  # its futures resolve only while the client exists
        for deletion in admin.delete_records(deletions).values():
            deletion.result(30)
        return searches

    monkeypatch.setattr(single_reads, "_begin", begin_and_delete)

    rows = browsing.offsets_for_time(destination, topic_name, START_MS + 3)

    assert [(row.offset, row.is_complete, row.searched_to) for row in rows] == [(7, True, 7), (None, True, 10)]


def abort_transactions(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Append aborted transactions, which take two offsets each and whose markers have the time of the broker."""
    producer = Producer({**cluster.client("admin"), "transactional.id": f"by-time-{topic}"})
    producer.init_transactions(30)
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(topic, "aborted", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)


def timed_batch(times: list[int], *, size: int) -> bytes:
    """Return a zstd batch with a record of zeros for each time."""
    return dense(0, [Rec(START_MS + moment, b"k", bytes(size)) for moment in times], codec=ZSTD).encode()


def test_a_batch_above_the_decompression_limit_is_searched_between_fillers(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    create_topic(destination_cluster, topic_name, partitions=2)
    large = timed_batch(list(range(0, 2000, 100)), size=1 << 20)  # 20 MiB
    abort_transactions(destination_cluster, topic_name, 2)
    send_batches(destination_cluster, topic_name, [large])
    abort_transactions(destination_cluster, topic_name, 2)
    send_batches(destination_cluster, topic_name, [timed_batch([5000], size=10)])
    producer = producer_for(destination_cluster)
    producer.produce(topic_name, value="x", partition=1, timestamp=START_MS + 700)
    producer.flush()

    found = {
        moment: browsing.offsets_for_time(destination, topic_name, START_MS + moment) for moment in (0, 1, 1000, 1900, 1901)
    }

    offsets = {moment: [(row.offset, row.is_complete) for row in rows] for moment, rows in found.items()}
    assert offsets == {
        0: [(4, True), (0, True)],
        1: [(5, True), (0, True)],
        1000: [(14, True), (None, True)],
        1900: [(23, True), (None, True)],
        1901: [(28, True), (None, True)],
    }
    assert found[1000][0].record_timestamp_ms == START_MS + 1000


@pytest.mark.parametrize("batches", [1, 2])
def test_a_batch_that_cannot_be_searched_to_its_end_is_where_the_result_begins(
    destination: ClusterAddress,
    destination_cluster: KafkaCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    batches: int,
) -> None:
    create_topic(destination_cluster, topic_name)
    abort_transactions(destination_cluster, topic_name, 1)  # without it, Kafka's lookup would return the record
    send_batches(destination_cluster, topic_name, [timed_batch([0], size=10)] * (batches - 1))
    send_batches(destination_cluster, topic_name, [timed_batch([0, *range(0, 2000, 100)], size=1 << 20)])
    monkeypatch.setattr(single_reads, "BATCH_S", -1e9)

    (row,) = single_reads.offsets_for_time(destination, topic_name, START_MS + 1000, positions={}, budget_s=-1e9)

    assert (row.offset, row.record_timestamp_ms, row.is_complete) == (1 + batches, None, True)


def test_a_zstd_window_beyond_the_decoders_limit_is_not_an_error(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    create_topic(destination_cluster, topic_name)
    abort_transactions(destination_cluster, topic_name, 1)
    plain = dense(0, [Rec(START_MS + moment, b"k", bytes(400_000)) for moment in range(3)])
    packer = zstandard.ZstdCompressor(level=22).compressobj()
    records = packer.compress(plain.encode()[RECORDS_AT:]) + packer.flush()
    batch = bytearray(dense(0, list(plain.records.values()), codec=ZSTD).encode()[:RECORDS_AT]) + records
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    write_checksum(batch)
    send_batches(destination_cluster, topic_name, [timed_batch([0], size=1), bytes(batch)])

    (row,) = browsing.offsets_for_time(destination, topic_name, START_MS + 2)

    assert (row.offset, row.record_timestamp_ms, row.is_complete) == (3, None, True)


def test_a_missing_topic_is_an_error(destination: ClusterAddress, topic_name: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        browsing.offsets_for_time(destination, topic_name, 0)

    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR


def test_a_group_is_reset_only_on_request_and_only_without_members(
    destination: ClusterAddress, destination_cluster: KafkaCluster, topic_name: str
) -> None:
    admin, group = ClusterAdmin(destination), f"{topic_name}/a group"
    create_topic(destination_cluster, topic_name, partitions=2)
    producer = producer_for(destination_cluster)
    for number in range(10):
        producer.produce(topic_name, value=str(number), partition=0)
    producer.flush()
    commit(admin, group, topic_name, {0: 9})
    wanted = [(0, 4), (1, 0)]

    shown = browsing.reset_group(destination, topic_name, group_id=group, offsets=wanted, execute=False)
    untouched = offsets_of(admin, group, topic_name)
    done = browsing.reset_group(destination, topic_name, group_id=group, offsets=wanted, execute=True)

    assert untouched == {0: 9}
    assert [(row.partition, row.before, row.after, row.is_written) for row in shown] == [(0, 9, 4, False), (1, None, 0, False)]
    assert [(row.partition, row.before, row.after, row.is_written) for row in done] == [(0, 9, 4, True), (1, None, 0, True)]
    assert offsets_of(admin, group, topic_name) == {0: 4, 1: 0}
    with pytest.raises(LinkEngineError, match="no offset 11") as beyond:
        browsing.reset_group(destination, topic_name, group_id=group, offsets=[(0, 11)], execute=True)
    assert beyond.value.code is ErrorCode.INVALID_REQUEST_ERROR
    with member(destination_cluster, group, topic_name), pytest.raises(LinkEngineError, match="active members") as used:
        browsing.reset_group(destination, topic_name, group_id=group, offsets=wanted, execute=True)
    assert used.value.code is ErrorCode.ILLEGAL_STATE

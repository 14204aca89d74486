"""Records of all kinds on real brokers: codecs, timestamps, sizes. The mirror topic has the configs of the product."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import replace

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import AdminClient

from linkengine.copyjob.destination import maintenance
from linkengine.copyjob.source import side
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.configs import AFTER, BEFORE, UNLIMITED, mirror_configs
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.states import GapReason
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.channel import Channel
from linkengine.sync.topics import read_source_configs
from tests.linkengine.batches.batchlog import GZIP, LZ4, SNAPPY, ZSTD, Rec, dense
from tests.linkengine.copyjob.copying import (
    Copier,
    Pair,
    Record,
    assert_equal_topics,
    copy_all,
    create_topic,
    ends_of,
    plan_of,
    producer_for,
    read_topic,
    set_config,
    starts_of,
    wait_for,
)
from tests.linkengine.copyjob.rawwriter import read_records, send_batches

YEAR_MS = 365 * 86_400_000


def create_mirror(clusters: Pair, topic: str, **configs: str) -> None:
    """Create the source topic with these configs, and the mirror topic as the product creates it."""
    source, destination = clusters
    create_topic(source, topic, partitions=1, replicas=1, **configs)
    values = read_source_configs(ClusterAdmin(address_from_properties(source.client_properties("admin"))), topic)
    there = ClusterAdmin(address_from_properties(destination.client_properties("admin")))
    there.create_topic(topic, partitions=1, replication_factor=1, configs=mirror_configs(values))


def moments() -> list[int]:
    """Return timestamps: none, the oldest, current timestamps, and those of future centuries."""
    now_ms = time.time_ns() // 1_000_000
    return [-1, 0, 1, now_ms - 40 * YEAR_MS, now_ms, now_ms + 2 * 3_600_000, now_ms + 900 * YEAR_MS, 1 << 62, -7]


def some_records(number: int, timestamp: int, count: int) -> list[Rec]:
    keys, values = (None, b"", b"key"), (b"value %d " % number * 20, None, b"")
    headers = ((), ((b"a", b"1"), (b"a", None), (b"", b"")), ((b"\xff\xfe", b"no text"),))
    return [Rec(timestamp, keys[at % 3], values[at // 3 % 3], headers[(number + at) % 3]) for at in range(count)]


def test_all_codecs_and_timestamps_in_a_partition_are_copied_unchanged(clusters: Pair, topic_name: str) -> None:
    create_mirror(clusters, topic_name, retention_ms="-1", **{BEFORE: UNLIMITED, AFTER: UNLIMITED})
    batches = [
        dense(0, some_records(number, moment, count), codec=codec)
        for count in (1, 3, 400)  # single records, small batches that are merged, large batches that are passed through
        for codec in (0, GZIP, SNAPPY, LZ4, ZSTD)
        for number, moment in enumerate(moments())
    ]
    batches += [dense(0, [Rec(moment) for moment in moments()], codec=codec) for codec in (0, GZIP)]  # all in one batch

    responses = send_batches(clusters[0], topic_name, [batch.encode() for batch in batches])
    (result,) = copy_all(clusters, topic_name)

    assert {response.error for response in responses} == {0}
    assert read_records(clusters[1], topic_name) == dict(
        enumerate(record for batch in batches for record in batch.records.values())
    )
    assert result.gaps == ()


def test_append_times_become_create_times(clusters: Pair, topic_name: str) -> None:
    create_mirror(clusters, topic_name, message_timestamp_type="LogAppendTime")
    batches = [
        dense(0, [replace(record, headers=()) for record in some_records(count, 7, count)], codec=codec)
        for count in (1, 3, 400)
        for codec in (0, GZIP, SNAPPY, LZ4, ZSTD)
    ]

    send_batches(clusters[0], topic_name, [batch.encode() for batch in batches])
    copy_all(clusters, topic_name)

    stamped, kept = (read_topic(cluster, topic_name) for cluster in clusters)
    assert {record[4][0] for record in stamped} == {TIMESTAMP_LOG_APPEND_TIME}
    assert [(*record[:4], (TIMESTAMP_CREATE_TIME, record[4][1]), record[5]) for record in stamped] == kept
    assert len(kept) == 5 * 404


@pytest.mark.parametrize("stamped_by", ["CreateTime", "LogAppendTime"])
def test_records_of_100_mb_are_copied_and_held_in_memory_once(
    clusters: Pair, topic_name: str, stamped_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side, "STARVED_S", 0.0)  # the destination counts as slow immediately
    copied = note_copies(monkeypatch)
    create_mirror(clusters, topic_name, max_message_bytes="104000000", message_timestamp_type=stamped_by)
    producer = producer_for(clusters[0], message_max_bytes=104_000_000)
    sizes = [10, 100_000_000, 10, 10]
    for size in sizes:
        producer.produce(topic_name, value=secrets.token_bytes(10) * (size // 10))
        assert producer.flush(60) == 0

    copy_all(clusters, topic_name)

    there, here = (digests(read_topic(cluster, topic_name, receive_message_max_bytes=200_000_000)) for cluster in clusters)
    assert there == here
    assert [size for _, size, _, _ in here] == sizes
    assert sum(copied) < 1_000_000


def note_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many bytes are copied because a socket has not accepted them."""
    copied: list[int] = []
    own_unsent = Channel.own_unsent

    def noting(channel: Channel) -> None:
        copied.append(channel.queued_bytes - channel.sent_bytes)
        own_unsent(channel)

    monkeypatch.setattr(Channel, "own_unsent", noting)
    return copied


def digests(records: list[Record]) -> list[tuple[int, int, str, int]]:
    return [
        (record[1], len(record[3] or b""), hashlib.sha256(record[3] or b"").hexdigest(), record[4][1]) for record in records
    ]


def test_transaction_aborted_by_its_timeout_is_filled_and_not_copied(clusters: Pair, topic_name: str) -> None:
    create_mirror(clusters, topic_name)
    producer = producer_for(clusters[0], transactional_id=topic_name, transaction_timeout_ms=1_000, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic_name, value="never to be seen")
    producer.flush()
    plain = producer_for(clusters[0])
    plain.produce(topic_name, value="behind it")
    plain.flush()

    with Copier(plan_of(clusters, topic_name)) as copier:
        copier.wait_until(lambda progress: progress.source_end == 0)  # the open transaction is waited for
        copier.wait_for_ends({0: 3})

    (result,) = copier.join()
    assert assert_equal_topics(clusters[0], topic_name, clusters[1], topic_name) == 1
    assert [(gap.range, gap.reason) for gap in result.gaps] == [
        (OffsetRange(0, 1), GapReason.ABORTED),
        (OffsetRange(2, 3), GapReason.TRANSACTION_MARKER),
    ]


def test_records_deleted_while_they_are_copied_are_lost_and_offsets_stay(clusters: Pair, topic_name: str) -> None:
    source, destination = clusters
    create_mirror(clusters, topic_name)
    producer = producer_for(source)
    admin = AdminClient(source.client("admin"))
    with Copier(plan_of(clusters, topic_name, fetch_partition_max_bytes=20_000, bytes_per_s=3_000_000)) as copier:
        for round_ in range(1, 6):
            for number in range(4_000):
                producer.produce(topic_name, value=f"{round_} {number} " * 20)
            producer.flush()
            cut = TopicPartition(topic_name, 0, round_ * 4_000 - 1_000)  # ahead of the copy, behind it, or within a batch
            admin.delete_records([cut])[cut].result(30)
        copier.wait_for_ends(ends_of(source, topic_name))
        copier.wait_until(lambda progress: progress.mirror_start == 19_000)

    (result,) = copier.join()
    assert assert_equal_topics(source, topic_name, destination, topic_name) == 1_000
    lost = sum(len(gap.range) for gap in result.gaps if gap.reason is GapReason.LOST)
    assert {gap.reason for gap in result.gaps} <= {GapReason.LOST}
    assert result.records_copied + lost == 20_000


def test_retention_of_a_compacted_source_moves_the_mirrors_log_start(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers' retention and log cleaner delete records during the copy; no DeleteRecords is sent to the source."""
    source, destination = clusters
    quick = {"retention_ms": "1500", "segment_ms": "300", "segment_bytes": str(1 << 20), "min_cleanable_dirty_ratio": "0.01"}
    create_mirror(clusters, topic_name, cleanup_policy="compact,delete", **quick)
    monkeypatch.setattr(maintenance, "EVERY_S", 0.2)
    producer = producer_for(source)

    def write() -> None:
        """Write half a segment of keys that occur once, which the cleaner keeps, and ten keys that occur again and again."""
        for number in range(500):
            key = number % 10 if number % 2 else time.monotonic_ns()
            producer.produce(topic_name, key=f"{key}", value=f"{number} ".encode() + secrets.token_bytes(1_000) * 2)
        producer.flush()

    starts: set[int] = set()

    def moved_again() -> bool:
        write()
        starts.add(starts_of(destination, topic_name)[0])
        return len(starts) > 3

    with Copier(plan_of(clusters, topic_name)) as copier:
        wait_for(moved_again)
        set_config(source, topic_name, "retention.ms", "-1")
        write()
        copier.wait_for_ends(ends_of(source, topic_name))
        wait_for(lambda: starts_of(destination, topic_name) == starts_of(source, topic_name))

    (result,) = copier.join()
    assert result.mirror_start == starts_of(source, topic_name)[0]
    assert {gap.reason for gap in result.gaps} <= {GapReason.COMPACTED, GapReason.LOST}
    there, here = ({record[1]: record for record in read_topic(cluster, topic_name)} for cluster in clusters)
    assert {offset: record for offset, record in there.items() if here.get(offset) != record} == {}
    newest, kept = ({record[2]: record for record in side.values()} for side in (there, here))
    assert newest == kept  # other records that only one side has are superseded
    assert len(newest) > 10

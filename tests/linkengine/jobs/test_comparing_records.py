"""The record at one offset on both sides of real mirrors."""

from __future__ import annotations

import time
from base64 import b64decode

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TimedOffset
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.record_views import Presence, RecordComparison, RecordVerdict, SideView, judge
from linkengine.domain.states import GapReason
from linkengine.jobs import RecordSide, compare_record, comparing_records
from linkengine.kafka import single_reads
from tests.fillers import HEAD_START, MAKERS
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.bombs import MEGABYTE, NOW, bomb
from tests.linkengine.copyjob.copying import Pair, address, copy_all, create_pair, ends_of, producer_for, read_topic, topic_id
from tests.linkengine.copyjob.rawwriter import send_batches

pytestmark = pytest.mark.kafka


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> Pair:
    """Source and destination."""
    return source_cluster, destination_cluster


def side(cluster: KafkaCluster, topic: str, *, id_of_topic: str = "") -> RecordSide:
    return RecordSide(address=lambda: address(cluster), topic=topic, topic_id=id_of_topic)


def compare(clusters: Pair, topic: str, offset: int | None = None, *, timestamp_ms: int | None = None) -> RecordComparison:
    source, mirror = (side(cluster, topic) for cluster in clusters)
    return compare_record(source, mirror, partition=0, offset=offset, timestamp_ms=timestamp_ms)


def verdict(found: RecordComparison) -> tuple[RecordVerdict, GapReason | None]:
    """Return the verdict without a gap ledger."""
    result = judge(source=found.source.presence, mirror=found.mirror.presence, differing=found.differing)
    return result.verdict, result.reason


def value_of(view: SideView) -> bytes:
    assert view.record is not None
    assert view.record.value is not None
    return b64decode(view.record.value.base64)


@pytest.mark.parametrize("reason", [GapReason.TRANSACTION_MARKER, GapReason.ABORTED, GapReason.COMPACTED])
def test_every_offset_of_a_mirror_is_equal_or_a_filler_with_its_reason(
    clusters: Pair, topic_name: str, reason: GapReason
) -> None:
    (progress,) = MAKERS[reason](clusters, topic_name)
    truth = {record[1]: record[3] for record in read_topic(clusters[0], topic_name)}
    reasons = {offset: gap.reason for gap in progress.gaps for offset in range(gap.range.start, gap.range.end)}
    offsets = range(ends_of(clusters[1], topic_name)[0])

    seen = {}
    for offset in offsets:
        found = compare(clusters, topic_name, offset)
        seen[offset] = verdict(found)
        if offset in truth:
            assert value_of(found.source) == value_of(found.mirror) == truth[offset]

    equal = dict.fromkeys(truth, (RecordVerdict.EQUAL, None))
    fillers = {offset: (RecordVerdict.FILLER, reasons[offset]) for offset in offsets if offset not in truth}
    assert seen == equal | fillers
    assert reason in {found for _, found in fillers.values()}


def test_next_offset_of_a_compacted_log_passes_over_what_compaction_removed(clusters: Pair, topic_name: str) -> None:
    MAKERS[GapReason.COMPACTED](clusters, topic_name)
    records = [record[1] for record in read_topic(clusters[0], topic_name)]

    visited: list[int] = []
    offset: int | None = 0
    while offset is not None:
        visited.append(offset)
        offset = compare(clusters, topic_name, offset).source.next_offset

    assert [offset for offset in visited if offset in records] == records
    assert len(visited) < ends_of(clusters[0], topic_name)[0]


def test_record_that_another_producer_wrote_differs(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    for cluster, values in zip(clusters, (("same", "source"), ("same", "mirror")), strict=True):
        producer = producer_for(cluster)
        for number, value in enumerate(values):
            headers: list[tuple[str, str | bytes | None]] = [("from", value.encode()), ("null", None)]
            producer.produce(topic_name, key="key", value=value, headers=headers, timestamp=NOW + number)
            producer.flush()

    same, other = compare(clusters, topic_name, 0), compare(clusters, topic_name, 1)

    assert verdict(same) == (RecordVerdict.EQUAL, None)
    assert (verdict(other)[0], other.differing) == (RecordVerdict.DIFFERENT, ("value", "headers"))
    assert (value_of(other.source), value_of(other.mirror)) == (b"source", b"mirror")
    record, batch = other.source.record, other.source.batch
    assert record is not None
    assert batch is not None
    assert (record.timestamp_ms, record.timestamp_type, record.header_count) == (NOW + 1, "CreateTime", 2)
    assert [(header.name, header.value is None) for header in record.headers] == [("from", False), ("null", True)]
    assert (batch.base_offset, batch.next_offset, batch.record_count, batch.compression) == (1, 2, 1, "none")
    assert batch.leader_epoch is not None
    assert (other.source.log_start_offset, other.source.log_end_offset, other.source.next_offset) == (0, 2, None)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_record_of_20_mb_is_compared_whole_and_shown_cut(clusters: Pair, topic_name: str, compression: str) -> None:
    create_pair(clusters, topic_name, max_message_bytes="30000000")
    large = bytes(range(256)) * (20 * MEGABYTE // 256)
    for cluster, value in zip(clusters, (large, large[:-1] + b"!"), strict=True):
        producer = producer_for(cluster, message_max_bytes=30_000_000, compression_type=compression)
        for written in (large, value):
            producer.produce(topic_name, value=written, timestamp=NOW)
            assert producer.flush(60) == 0

    began = time.monotonic()
    same = compare(clusters, topic_name, 0)
    other = compare(clusters, topic_name, 1)

    assert verdict(same) == (RecordVerdict.EQUAL, None)
    assert other.differing == ("value",)  # only the last byte does
    for view in (same.source, same.mirror, other.mirror):
        assert view.record is not None
        assert view.record.value is not None
        assert (view.record.value.size, view.record.value.is_cut) == (len(large), True)
        assert value_of(view) == large[: comparing_records.FIELD_BYTES]
        assert view.batch is not None
        assert view.batch.compression == compression
    assert time.monotonic() - began < 60  # also on a slow machine


def test_batch_that_decompresses_to_hundreds_of_megabytes_is_not_read(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    batch = bomb(10, 300 * MEGABYTE)
    for cluster in clusters:
        assert {result.error for result in send_batches(cluster, topic_name, [batch])} == {0}

    before, inside = compare(clusters, topic_name, 0), compare(clusters, topic_name, 1)

    assert verdict(before) == (RecordVerdict.EQUAL, None)
    assert verdict(inside) == (RecordVerdict.UNKNOWN, None)
    for view in (inside.source, inside.mirror):
        assert (view.presence, view.code) == (Presence.UNREADABLE, ErrorCode.RECORDS_TOO_LARGE)
        assert "offset 1" in view.message


def test_offsets_outside_of_the_logs(clusters: Pair, topic_name: str) -> None:
    MAKERS[GapReason.HEAD](clusters, topic_name)
    producer = producer_for(clusters[0])
    producer.produce(topic_name, value="not copied yet")
    producer.flush()

    below, first = compare(clusters, topic_name, HEAD_START - 1), compare(clusters, topic_name, HEAD_START)
    behind, beyond = compare(clusters, topic_name, HEAD_START + 10), compare(clusters, topic_name, HEAD_START + 11)

    assert (below.source.presence, below.source.next_offset) == (Presence.BEFORE_START, HEAD_START)
    assert verdict(first) == (RecordVerdict.EQUAL, None)
    assert verdict(behind) == (RecordVerdict.NOT_COPIED, None)
    assert verdict(beyond) == (RecordVerdict.NO_RECORD, None)


def test_record_of_an_open_transaction_is_not_shown(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0], transactional_id=topic_name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic_name, value="uncommitted")
    producer.flush()
    try:
        found = compare(clusters, topic_name, 0)
    finally:
        producer.abort_transaction()

    assert (found.source.presence, found.source.record) == (Presence.UNCOMMITTED, None)
    assert verdict(found) == (RecordVerdict.NOT_COPIED, None)


def test_record_is_found_by_time_and_fillers_do_not_count(clusters: Pair, topic_name: str) -> None:
    MAKERS[GapReason.ABORTED](clusters, topic_name)
    records = read_topic(clusters[1], topic_name)
    wanted = records[len(records) // 2]

    found = compare(clusters, topic_name, timestamp_ms=wanted[4][1])

    assert (found.offset, value_of(found.mirror)) == (wanted[1], wanted[3])
    with pytest.raises(LinkEngineError, match="There is no record in partition 0") as late:
        compare(clusters, topic_name, timestamp_ms=1 << 45)
    assert late.value.code is ErrorCode.INVALID_REQUEST_ERROR


def test_side_that_cannot_be_read_does_not_hide_the_other(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    producer.produce(topic_name, value="value")
    producer.flush()
    copy_all(clusters, topic_name)
    here = side(clusters[1], topic_name, id_of_topic=topic_id(clusters[1], topic_name))

    def refuse() -> ClusterAddress:
        raise LinkEngineError(ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR, "The other side is missing.")

    recreated = compare_record(side(clusters[0], topic_name, id_of_topic="another"), here, partition=0, offset=0)
    missing = compare_record(
        RecordSide(address=refuse, topic=topic_name, topic_id=""),
        here,
        partition=0,
        offset=0,
    )

    assert "created again" in recreated.source.message
    assert missing.source.code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR
    for found in (recreated, missing):
        assert verdict(found) == (RecordVerdict.UNKNOWN, None)
        assert value_of(found.mirror) == b"value"


def test_names_and_numbers_of_headers_are_limited(clusters: Pair, topic_name: str) -> None:
    create_pair(clusters, topic_name)
    headers = tuple((b"\xff" * 300, b"v" * 1000) for _ in range(comparing_records.MOST_HEADERS + 5))
    for cluster in clusters:
        send_batches(cluster, topic_name, [dense(0, [Rec(NOW, b"key", b"value", headers)]).encode()])

    found = compare(clusters, topic_name, 0)

    assert verdict(found) == (RecordVerdict.EQUAL, None)
    record = found.source.record
    assert record is not None
    assert (len(record.headers), record.header_count) == (comparing_records.MOST_HEADERS, comparing_records.MOST_HEADERS + 5)
    assert record.headers[0].name == "\\xff" * comparing_records.NAME_BYTES + "…"
    assert record.headers[0].value is not None
    assert (record.headers[0].value.size, record.headers[0].value.is_cut) == (1000, True)


def test_lookup_that_ends_at_a_large_batch_shows_no_other_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset without a timestamp is where the search ended; the record is there or behind."""
    ended = TimedOffset(partition=0, offset=40, record_timestamp_ms=None, searched_to=40, log_end_offset=90, is_complete=True)
    monkeypatch.setattr(single_reads, "offsets_for_time", lambda *_args, **_kwargs: [ended])
    orders = RecordSide(address=lambda: ClusterAddress(bootstrap_servers="127.0.0.1:1"), topic="orders", topic_id="")

    with pytest.raises(LinkEngineError, match="ended at offset 40") as refused:
        compare_record(orders, orders, partition=0, timestamp_ms=5)

    assert refused.value.code == ErrorCode.RECORDS_TOO_LARGE

"""Messages of formats 0 and 1, in segments from before Kafka 0.11: read from current brokers, mirrored as format 2.

Current brokers do not write these formats, so the test puts a segment file into a stopped broker's log directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.kafka import NEWEST, OLDEST, KafkaCluster
from linkengine.domain.states import GapReason
from tests.conftest import MakeCluster
from tests.linkengine.batches.batchlog import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, Rec, message, wrapper
from tests.linkengine.copyjob.copying import (
    copy_all,
    create_topic,
    ends_of,
    producer_for,
)
from tests.linkengine.copyjob.rawwriter import read_batches_of, read_records

OLD_MS = 1_450_000_000_000  # of 2015


def old_log() -> tuple[bytes, dict[int, Rec]]:
    """Return a segment of both formats, plain and wrapped, with compaction gaps, and the expected records by offset."""
    data, shown = b"", {}
    offset = 0

    def records(spread: int) -> dict[int, Rec]:
        nonlocal offset
        chosen = {}
        for number in range(5):
            key, value = (None, b"key", b"")[number % 3], (b"value %d" % offset, None, b"", b"x" * 2_000)[number % 4]
            chosen[offset] = Rec(OLD_MS + 7 * number, key, value)
            offset += spread
        return chosen

    for magic in (0, 1):
        for spread in (1, 3):
            for at, record in records(spread).items():
                data += message(at, magic, record)
                shown[at] = record if magic else Rec(-1, record.key, record.value)
            for codec in (GZIP, SNAPPY, LZ4):
                inner = records(spread)
                data += wrapper(magic, codec, inner)
                shown |= {at: record if magic else Rec(-1, record.key, record.value) for at, record in inner.items()}
    inner = records(1)
    data += wrapper(1, GZIP, inner, bits=LOG_APPEND_TIME, timestamp=OLD_MS + 99)
    shown |= {at: Rec(OLD_MS + 99, record.key, record.value) for at, record in inner.items()}
    return data, shown


def lay_segment(cluster: KafkaCluster, topic: str, data: bytes) -> None:
    """Replace a topic's log on a broker while the broker is stopped."""
    cluster.stop()
    folder = next(Path(cluster.directory).glob(f"broker-0/data/{topic}-0"))
    for file in folder.glob("0*"):
        file.unlink()
    (folder / f"{0:020}.log").write_bytes(data)
    cluster.start()


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_old_message_formats_become_v2_records_at_the_same_offsets(
    make_cluster: MakeCluster, destination_cluster: KafkaCluster, topic_name: str, version: str
) -> None:
    source = make_cluster("old", version=version)
    create_topic(source, topic_name, retention_ms="-1")
    create_topic(destination_cluster, topic_name, retention_ms="-1")
    data, shown = old_log()
    lay_segment(source, topic_name, data)
    producer = producer_for(source)
    producer.produce(topic_name, value=b"new", timestamp=OLD_MS + 1_000)
    assert producer.flush(30) == 0
    assert {view.magic for view, _ in read_batches_of(source, topic_name)} == {0, 1, 2}

    (result,) = copy_all((source, destination_cluster), topic_name)

    assert read_records(destination_cluster, topic_name) == shown | {max(shown) + 1: Rec(OLD_MS + 1_000, None, b"new")}
    assert {gap.reason for gap in result.gaps} == {GapReason.COMPACTED}
    assert ends_of(destination_cluster, topic_name) == ends_of(source, topic_name)

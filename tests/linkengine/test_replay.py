"""Exported records are written back with the same partitions, keys, values, headers and timestamps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from devcluster.kafka import KafkaCluster
from linkengine import jobs, replay
from linkengine.batches.records import Record, encode_records
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from linkengine.domain.ranges import OffsetRange
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.cluster import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def properties(destination: ClusterAddress, tmp_path: Path) -> str:
    """A properties file as Kafka's own tools accept it."""
    path = tmp_path / "client.properties"
    path.write_text("# comment\n" + "".join(f"{name}={value}\n" for name, value in properties_of(destination).items()))
    return str(path)


def write_odd_records(cluster: KafkaCluster, topic: str) -> None:
    producer = Producer(cluster.client("app"))
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic, b"v\xff", b"k", partition=1, timestamp=1_500_000_000_000, headers=headers)
    producer.produce(topic, None, b"tombstone", partition=1, timestamp=1_500_000_000_001)
    producer.produce(topic, b"", None, partition=0, timestamp=1_500_000_000_002)
    assert producer.flush(60) == 0


def write_raw_header(address: ClusterAddress, topic: str) -> None:
    """Append records as a client in another language can: the name of a header may be any bytes."""
    batch = encode_records(
        [
            Record(
                offset=0,
                timestamp=1_500_000_000_003,
                key=b"k",
                value=b"odd",
                headers=[("no text \udcff\x00", b"2"), ("ä", None)],
            ),
            Record(offset=1, timestamp=0, key=None, value=b"of 1970", headers=[]),
            Record(offset=2, timestamp=1_500_000_000_004, key=None, value=b"cut", headers=[("a\x00b", b"3")]),
        ],
        codec=0,
    )
    cluster = Cluster(address)
    leader = cluster.newest_topics([topic])[topic].partitions[1]
    part = ProduceRequest.TopicProduceData.PartitionProduceData(index=1, records=bytes(batch))
    data = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    connection = cluster.open(leader.broker)
    try:
        connection.request(ProduceRequest(version=9, acks=-1, timeout_ms=30_000, topic_data=data), response=ProduceResponse)
    finally:
        connection.close()
        cluster.close()


def exported(address: ClusterAddress, topic: str) -> list[bytes]:
    found: list[bytes] = []
    jobs.export_records(address, topic, {0: OffsetRange(0, 1), 1: OffsetRange(0, 5)}, sink=found.append)
    return found


def test_an_export_is_replayed_to_another_topic(
    destination: ClusterAddress, destination_cluster: KafkaCluster, properties: str, topic_name: str, tmp_path: Path
) -> None:
    admin, other = ClusterAdmin(destination), f"{topic_name}-replayed"
    for topic in (topic_name, other):
        admin.create_topic(topic, partitions=2, configs={"retention.ms": "-1"})  # the records are years old
        admin.wait_ready(topic, partitions=2)
    write_odd_records(destination_cluster, topic_name)
    write_raw_header(destination, topic_name)
    lines, file = exported(destination, topic_name), tmp_path / "export.jsonl.gz"
    file.write_bytes(gzip.compress(b"".join(lines)))

    assert replay.main([str(file), "--properties", properties, "--topic", other]) == 0
    assert exported(destination, other) == lines
    assert json.loads(lines[3])["headers"] == [["no text \udcff\x00", "Mg=="], ["ä", None]]


def test_an_invalid_export_or_a_closed_topic_is_refused_before_anything_is_written(
    destination: ClusterAddress, properties: str, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin, file = ClusterAdmin(destination), tmp_path / "export.jsonl.gz"
    valid = b'{"partition":0,"offset":0,"timestamp":1,"key":null,"value":null,"headers":[]}\n'
    admin.create_topic(topic_name, partitions=1)
    admin.wait_ready(topic_name, partitions=1)

    for second, complaint in ((b"{}\n", "Line 2"), (valid.replace(b'"partition":0', b'"partition":7'), "partition 7")):
        file.write_bytes(gzip.compress(valid + second))
        assert replay.main([str(file), "--properties", properties, "--topic", topic_name]) == 1
        assert complaint in capsys.readouterr().err
    admin.deny_writes(topic_name)
    assert replay.main([str(file), "--properties", properties, "--topic", topic_name]) == 1
    assert "closed to producers" in capsys.readouterr().err
    assert admin.offsets(topic_name, OffsetKind.END) == {0: 0}

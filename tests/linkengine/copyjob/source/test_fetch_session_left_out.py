"""What a real broker's fetch session says of a partition that a full response has no room for (KIP-227)."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from devcluster.kafka import NEWEST, OLDEST, KafkaCluster
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import INT32
from linkengine.kafka.requests import (
    FETCH_BY_ID,
    NEW_SESSION,
    FetchedPartition,
    FetchLimits,
    FetchPosition,
    FetchResponse,
    SessionStep,
    decode_fetch,
    encode_fetch,
)
from tests.conftest import MakeCluster
from tests.linkengine.copyjob.copying import address, create_topic, wait_for

BUSY, OTHER, LAST = range(3)
ROOM = FetchLimits(max_bytes=6_000, max_wait_ms=0)
RECORD = b"x" * 5_000  # a second one does not fit into a response


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
def test_a_full_response_names_each_partition_whose_high_watermark_has_moved(
    make_cluster: MakeCluster, topic_name: str, version: str
) -> None:
    source = make_cluster(version=version)
    create_topic(source, topic_name, partitions=3)
    _append(source, topic_name, BUSY, count=9)
    session = _Session(source, topic_name)
    first = session.read({BUSY: 0, OTHER: 0, LAST: 0}, step=NEW_SESSION)

    unchanged = session.read({BUSY: 1}, step=SessionStep(first.session, 1))
    _append(source, topic_name, LAST)
    served = session.read({BUSY: 2}, step=SessionStep(first.session, 2))  # now LAST is last in the broker's order
    _append(source, topic_name, LAST)
    left_out = session.read({LAST: 1}, step=SessionStep(first.session, 3))
    after = session.read({BUSY: 3}, step=SessionStep(first.session, 4))
    session.close()

    assert [set(_of(response)) for response in (first, unchanged)] == [{BUSY, OTHER, LAST}, {BUSY}]
    assert len(_of(served)[LAST].records) > len(RECORD)
    assert len(_of(left_out)[BUSY].records) > len(RECORD)
    assert (_of(left_out)[LAST].high_watermark, len(_of(left_out)[LAST].records)) == (2, 0)
    assert len(_of(after)[LAST].records) > len(RECORD)


def _append(cluster: KafkaCluster, topic: str, partition: int, *, count: int = 1) -> None:
    producer = Producer({**cluster.client("admin"), "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(count):
        producer.produce(topic, RECORD, partition=partition)
    assert producer.flush(30) == 0


def _of(response: FetchResponse) -> dict[int, FetchedPartition]:
    return {partition.partition: partition for partition in response.partitions}


class _Session:
    def __init__(self, source: KafkaCluster, topic: str) -> None:
        self._cluster = Cluster(address(source, "admin"))
        view = wait_for(lambda: self._cluster.topics([topic])[topic])
        self._topic_id, self._epoch = view.topic_id, view.partitions[0].epoch
        self._connection: Connection = self._cluster.open(view.partitions[0].broker)
        self._connection.sock.settimeout(30)

    def read(self, offsets: dict[int, int], *, step: SessionStep) -> FetchResponse:
        positions = {
            self._topic_id: [FetchPosition(number, self._epoch, offset, 1 << 20) for number, offset in offsets.items()]
        }
        frame = encode_fetch(positions, version=FETCH_BY_ID, correlation_id=1, limits=ROOM, step=step)
        self._connection.sock.sendall(b"".join(frame))
        (size,) = INT32.unpack(self._receive(INT32.size))
        return decode_fetch(memoryview(self._receive(size))[INT32.size :], version=FETCH_BY_ID)

    def _receive(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            data += self._connection.sock.recv(size - len(data))
        return data

    def close(self) -> None:
        self._connection.close()
        self._cluster.close()

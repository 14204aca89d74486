"""Sends batches exactly as a test has made them, and reads batches as they lie in the log, without a client library.

Client libraries refuse timestamps and header keys that a log may well hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from devcluster.kafka import KafkaCluster
from linkengine.batches.records import decode_records
from linkengine.batches.view import BatchView, iter_batches
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import INT32
from linkengine.kafka.requests import PRODUCE_BY_NAME, ProducedPartition, decode_produce, encode_produce
from linkengine.kafka.single_reads import read_batches
from tests.linkengine.batches.batchlog import Rec
from tests.linkengine.copyjob.copying import address, starts_of, wait_for

TIMEOUT_S = 60


def send_batches(cluster: KafkaCluster, topic: str, batches: Iterable[bytes]) -> list[ProducedPartition]:
    """Append the batches to partition 0 one after the other, whatever the broker returns; return its responses."""
    with _leader_of(cluster, topic) as (connection, _):
        return [_send(connection, topic, batch) for batch in batches]


def read_batches_of(cluster: KafkaCluster, topic: str) -> list[tuple[BatchView, memoryview]]:
    """Return all batches of partition 0 as they are stored."""
    found: list[tuple[BatchView, memoryview]] = []
    with _leader_of(cluster, topic) as (connection, place):
        offset = starts_of(cluster, topic)[0]
        while True:
            error, data = read_batches(connection, topic=place, leader_epoch=-1, offset=offset)
            assert not error
            batches = [(view, data[at : at + view.size]) for at, view in iter_batches(data)]
            if not batches:
                return found
            found += batches
            offset = batches[-1][0].next_offset


def read_records(cluster: KafkaCluster, topic: str) -> dict[int, Rec]:
    """Return the records of a partition 0 without transactions and old formats, by offset."""
    return {
        record.offset: Rec(
            record.timestamp,
            record.key,
            record.value,
            tuple((key.encode("utf-8", "surrogateescape"), value) for key, value in record.headers),
        )
        for view, batch in read_batches_of(cluster, topic)
        if not view.is_control
        for record in decode_records(view, batch)
    }


@contextmanager
def _leader_of(cluster: KafkaCluster, topic: str) -> Iterator[tuple[Connection, tuple[str, bytes, int]]]:
    session = Cluster(address(cluster, "admin"))
    try:
        view = wait_for(lambda: session.newest_topics({topic}).get(topic))
        connection = session.open(view.partitions[0].broker)
        connection.sock.settimeout(TIMEOUT_S)
        try:
            yield connection, (topic, view.topic_id, 0)
        finally:
            connection.close()
    finally:
        session.close()


def _send(connection: Connection, topic: str, batch: bytes) -> ProducedPartition:
    frame = encode_produce(
        {topic.encode(): [(0, batch)]}, version=PRODUCE_BY_NAME, correlation_id=1, timeout_ms=TIMEOUT_S * 1000
    )
    for part in frame:
        connection.sock.sendall(part)
    (size,) = INT32.unpack(_receive(connection, INT32.size))
    body = memoryview(_receive(connection, size))[INT32.size :]
    (response,) = decode_produce(body, version=PRODUCE_BY_NAME)[1]
    return response


def _receive(connection: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.sock.recv(size - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data

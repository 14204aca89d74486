"""Write given records with an ordinary idempotent producer; return how many the cluster has acknowledged.

librdkafka's binding cannot write header names that are not UTF-8. Such records are written one at a time without a producer id:
a lost response is an error, and the caller must check the log (Produce version 9, by topic name).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from linkengine.batches.records import Record, encode_records
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.requests import PRODUCE_BY_NAME
from linkengine.kafka.security import make_client

DELIVERY_TIMEOUT_S = 120.0
_QUEUE_FULL_WAIT_S = 0.2
_MOST_BYTES = 100 << 20  # of a message; the topic's own limit applies

Header = tuple[str, bytes | None]  # a name that is not UTF-8 carries surrogate escapes
TIMEOUT_MS = 30_000
_ALL_IN_SYNC = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRecord:
    """A record as an application sees it."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def is_odd(self) -> bool:
        """True if librdkafka's binding would change the record, or crash.

        It crashes on header names that are not UTF-8, cuts them at a NUL, and replaces the timestamp 0 by the current time.
        """
        odd_names = any(letter == "\0" or "\udc80" <= letter <= "\udcff" for name, _ in self.headers for letter in name)
        return odd_names or self.timestamp_ms == 0


class _Deliveries:
    """The delivery reports: number of acknowledged records, and the first error."""

    def __init__(self) -> None:
        self.written = 0
        self.error_text = ""

    def note(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self.error_text = self.error_text or error.str()


def write_records(address: ClusterAddress, topic: str, records: Iterable[PlainRecord]) -> int:
    """Append the records in order, per partition; return their number. Raise LinkEngineError unless all are acknowledged."""
    check_reachable(address)
    deliveries = _Deliveries()
    producer = make_client(
        Producer,
        address,
        {
            "enable.idempotence": True,
            "message.max.bytes": _MOST_BYTES,
            "delivery.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
        },
    )
    odd = OddWriter(address, topic)
    try:
        for record in records:
            if record.is_odd:
                _append_odd(producer, odd, record, deliveries)
            else:
                _produce(producer, topic, record, deliveries)
            if deliveries.error_text:
                break
    finally:
        odd.close()
    left = producer.flush(DELIVERY_TIMEOUT_S)
    if left or deliveries.error_text:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR if left else ErrorCode.INTERNAL_ERROR,
            f"{deliveries.written} records were written to {topic!r}, then: "
            f"{deliveries.error_text or 'no response of the brokers in time'}. "
            "Fix the cause, and replay to an empty topic: a repetition would write these records twice.",
        )
    return deliveries.written


def _append_odd(producer: Producer, odd: OddWriter, record: PlainRecord, deliveries: _Deliveries) -> None:
    """Append a record after all records before it are delivered, to keep the order."""
    if producer.flush(DELIVERY_TIMEOUT_S):
        deliveries.error_text = deliveries.error_text or "no response of the brokers in time"
    if deliveries.error_text:
        return
    plain = Record(offset=0, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers))
    try:
        odd.append(record.partition, plain)
    except LinkEngineError as error:
        deliveries.error_text = error.message
    else:
        deliveries.written += 1


def _produce(producer: Producer, topic: str, record: PlainRecord, deliveries: _Deliveries) -> None:
    while not deliveries.error_text:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=deliveries.note,
            )
        except BufferError:  # the queue is full
            producer.poll(_QUEUE_FULL_WAIT_S)
        else:
            producer.poll(0)
            return


class OddWriter:
    """Connections to the leaders of a topic, opened when they are needed."""

    def __init__(self, address: ClusterAddress, topic: str) -> None:
        """Store the address; connections are opened on demand."""
        self._cluster, self._topic = Cluster(address), topic
        self._connections: dict[int, Connection] = {}

    def append(self, partition: int, record: Record) -> None:
        """Append a record to a partition; raise LinkEngineError if it is not acknowledged."""
        batch = encode_records([record], codec=0)
        entry = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=self._topic, partition_data=[entry])
        connection = self._connect(partition)
        connection.version_for(ProduceRequest.API_KEY, highest=PRODUCE_BY_NAME, lowest=PRODUCE_BY_NAME)
        request = ProduceRequest(version=PRODUCE_BY_NAME, acks=_ALL_IN_SYNC, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        error = connection.request(request, response=ProduceResponse, read=_read_error)
        if error:
            raise BrokerError(error, f"A record cannot be written to {self._topic}-{partition}")

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._cluster.close()

    def _connect(self, partition: int) -> Connection:
        view = self._cluster.newest_topics([self._topic])[self._topic]
        leader = view.partitions.get(partition)
        if leader is None or leader.broker < 0:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Partition {partition} of topic {self._topic!r} has no leader. Check the "
                "brokers with its replicas, then retry.",
            )
        if leader.broker not in self._connections:
            self._connections[leader.broker] = self._cluster.open(leader.broker)
        return self._connections[leader.broker]


def _read_error(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code

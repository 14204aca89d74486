"""Export records of a topic as JSON lines, and write exported records back to a topic."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, Message, Producer
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from linkengine.batches.large import LargeRecord, read_any
from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, gap_reason, is_contradictory
from linkengine.batches.records import Record, RecordLike, encode_records
from linkengine.batches.view import check_crc, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.ranges import OffsetRange
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.requests import PRODUCE_BY_NAME
from linkengine.kafka.security import make_client
from linkengine.kafka.single_reads import read_committed
from linkengine.kafka.topicviews import locate

# --- export --------------------------------------------------------------------------------------------------------------
# Ranges of offsets, as read-committed consumers see them. One JSON object per record: ``partition``, ``offset``, ``timestamp``
# (Unix ms), ``key`` and ``value`` (base64, or null), and ``headers`` (pairs of name and base64, or null; names that are not
# UTF-8 have surrogate escapes). Markers and aborted records are left out. One response at a time is in memory; of a record
# larger than the decompression limit, only a piece.


log = structlog.get_logger(__name__)
Sink = Callable[[bytes], object]


def export_records(address: ClusterAddress, topic: str, ranges: Mapping[int, OffsetRange], *, sink: Sink) -> dict[int, int]:
    """Write the records of the ranges, by partition, to ``sink``; return how many each had. Raise unless all were read."""
    cluster = Cluster(address)
    try:
        views = cluster.newest_topics([topic])
        counts = {}
        for partition, wanted in sorted(ranges.items()):
            leader, topic_id = locate(views, topic, partition)
            connection = cluster.open(leader.broker)
            try:
                counts[partition] = _export(connection, (topic, topic_id, partition), leader.epoch, wanted, sink=sink)
            finally:
                connection.close()
        log.info("export.finished", topic=topic, records=sum(counts.values()))
        return counts
    finally:
        cluster.close()


def _export(
    connection: Connection, place: tuple[str, bytes, int], leader_epoch: int, wanted: OffsetRange, *, sink: Sink
) -> int:
    position, count, read_again = wanted.start, 0, False
    while position < wanted.end:
        error, listed, data = read_committed(connection, topic=place, leader_epoch=leader_epoch, offset=position)
        if error:
            raise BrokerError(error, f"Records of {place[0]}-{place[2]} from offset {position} on cannot be read")
        aborted = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in listed]
        read_again = not read_again and is_contradictory(data, aborted)
        if read_again:  # the list of aborted transactions may be damaged: committed records would be left out
            continue
        before = position
        for record, after in _records(data, aborted=aborted):
            if record is not None and max(before, wanted.start) <= record.offset < wanted.end:
                for part in _line(place[2], record):
                    sink(part)
                count += 1
            position = max(position, after)
        if position == before:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Topic {place[0]!r} returns nothing from offset {position} of partition {place[2]} on, although it ends at "
                f"{wanted.end}. It is tried again.",
            )
    return count


def _records(
    data: memoryview, *, aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[RecordLike | LargeRecord | None, int]]:
    """Yield (record, offset after its batch); (None, offset after the batch) for each batch."""
    transactions = AbortedTransactions(aborted)
    for at, view in iter_batches(data):
        batch = data[at : at + view.size]
        yield None, view.next_offset
        if gap_reason(view, aborted=transactions.contain(view, batch)) is not None:
            check_crc(view, batch)  # a damaged header could hide visible records
            continue
        for record in read_any(view, batch):
            yield record, view.next_offset


def _line(partition: int, record: RecordLike | LargeRecord) -> Iterator[bytes]:
    """Yield a line of JSON in parts."""
    start = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
    if isinstance(record, LargeRecord):
        yield json.dumps(start, separators=(",", ":")).encode()[:-1]
        yield from _large_fields(record)
        yield b"}\n"
        return
    fields = start | {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    yield json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _large_fields(record: LargeRecord) -> Iterator[bytes]:
    yield b',"key":'
    yield from _large_text(record)
    yield b',"value":'
    yield from _large_text(record)
    yield b',"headers":['
    for number in range(record.count()):
        name = b"".join(record.take(record.field() or 0)).decode("utf-8", "surrogateescape")
        yield (b"," if number else b"") + b"[" + json.dumps(name).encode() + b","
        yield from _large_text(record)
        yield b"]"
    yield b"]"


def _large_text(record: LargeRecord) -> Iterator[bytes]:
    size = record.field()
    if size is None:
        yield b"null"
        return
    yield b'"'
    rest = b""
    for piece in record.take(size):
        data = rest + piece
        whole = len(data) - len(data) % 3  # base64 of a multiple of 3 bytes has no padding and can be continued
        yield base64.b64encode(data[:whole])
        rest = data[whole:]
    yield base64.b64encode(rest) + b'"'


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


# --- replay --------------------------------------------------------------------------------------------------------------


def replay_records(address: ClusterAddress, topic: str, read: Callable[[], Iterable[bytes]]) -> int:
    """Append exported records to the same partitions, with their timestamps and headers; return how many.

    They get new offsets. A topic with too few partitions and a mirror are refused before anything is written. ``read`` is
    called twice, first to validate all lines, so that nothing is written from a damaged file.
    """
    admin = ClusterAdmin(address)
    found = admin.find(topic)
    if found is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, f"There is no topic {topic!r}. Create it first.")
    if has_mirror_configs(found.configs) or (admin.has_authorizer() and admin.denies_writes(topic)):
        raise LinkEngineError(
            ErrorCode.ILLEGAL_STATE, f"Topic {topic!r} is closed to producers and may be a mirror. Use an ordinary topic."
        )
    for record in _exported_records(read()):
        if record.partition >= found.partitions:
            raise LinkEngineError(
                ErrorCode.INVALID_REQUEST_ERROR,
                f"Topic {topic!r} has {found.partitions} partitions, too few for records of partition {record.partition}. Add "
                "partitions first.",
            )
    return write_records(address, topic, _exported_records(read()))


def _exported_records(lines: Iterable[bytes]) -> Iterator[PlainRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            yield PlainRecord(
                partition=fields["partition"],
                timestamp_ms=fields["timestamp"],
                key=_bytes(fields["key"]),
                value=_bytes(fields["value"]),
                headers=tuple((_name(name), _bytes(value)) for name, value in fields["headers"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, f"Line {number} cannot be replayed: {error!r}.") from error


def _name(name: str) -> str:
    name.encode("utf-8", "surrogateescape")  # as exported if it is not UTF-8; UnicodeEncodeError is a ValueError
    return name


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


# By an ordinary idempotent producer. librdkafka's binding cannot write header names that are not UTF-8. Such records are
# written one at a time without a producer id: a lost response is an error, and the caller must check the log (Produce version
# 9, by topic name).


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

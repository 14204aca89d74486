"""Reads as applications do, read-committed: the newest record of a mirror partition, and the same one at the source.

Joins no group and commits nothing, so it leaves no trace on either cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.settings import librdkafka_settings

LOOK_BACK = 10  # offsets from the end; markers and aborted data are no records, so it grows tenfold until one is found
RECEIVE_BYTES = 256 << 20  # messages of 100 MB and a little beside them
READ_TIMEOUT_S = 20.0  # one partition
_METADATA_TIMEOUT_S = 10.0


def read_canaries(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, partitions: int
) -> list[CanaryRead]:
    """Read the newest record of every partition of the mirror and compare it with the source's at the same offset."""
    check_reachable(source)
    check_reachable(destination)
    with _consumer(destination) as here, _consumer(source) as there:
        mirror, original = _Reader(here, mirror_topic), _Reader(there, source_topic)
        return [_compare(mirror, original, partition) for partition in range(partitions)]


def write_canaries(address: ClusterAddress, topic: str, *, partitions: int) -> list[CanaryRead]:
    """Write a record of our own to every partition, as a producer does that waits for all replicas, and read it back."""
    check_reachable(address)
    mark = f"drill {time.time_ns()}".encode()
    refused: dict[int, str] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[message.partition() or 0] = f"a record could not be written: {error.str()}"

    producer = Producer({**librdkafka_settings(address), "acks": "all", "delivery.timeout.ms": int(READ_TIMEOUT_S * 1000)})
    for partition in range(partitions):
        producer.produce(topic, key=mark, value=mark, partition=partition, on_delivery=delivered)
    if producer.flush(2 * READ_TIMEOUT_S):
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Writing to {topic} took longer than {2 * READ_TIMEOUT_S:.0f} s.")
    with _consumer(address) as consumer:
        reader = _Reader(consumer, topic)
        return [_read_back(reader, partition, mark, refused.get(partition, "")) for partition in range(partitions)]


def _read_back(reader: _Reader, partition: int, mark: bytes, refused: str) -> CanaryRead:
    if refused:
        return CanaryRead(partition=partition, offset=None, problem=refused)
    newest = reader.newest(partition)
    problem = "" if newest is not None and newest.value() == mark else "the record just written is not the newest one"
    return CanaryRead(partition=partition, offset=newest.offset() if newest else None, problem=problem)


def _compare(mirror: _Reader, source: _Reader, partition: int) -> CanaryRead:
    try:
        mirrored = mirror.newest(partition)
        if mirrored is None:
            return CanaryRead(partition=partition, offset=None)
        original = next(source.read(partition, start=_offset(mirrored), end=_offset(mirrored) + 1), None)
    except KafkaException as error:
        return CanaryRead(partition=partition, offset=None, problem=f"it could not be read: {error.args[0]}")
    return CanaryRead(partition=partition, offset=_offset(mirrored), problem=_difference(mirrored, original))


def _difference(mirrored: Message, original: Message | None) -> str:
    if original is None or original.offset() != mirrored.offset():
        return f"the source has no record at offset {mirrored.offset()}"
    for name, shown in _SHOWN.items():
        if shown(mirrored) != shown(original):
            return f"the record at offset {mirrored.offset()} has another {name} than the source's"
    return ""


# Called from C: for keys that are no UTF-8 this library answers with an exception set, and an interpreter that has specialized
# a direct call looks for one no more (it surfaces anywhere later).
_ask_headers = methodcaller("headers")


def _headers(message: Message) -> object:
    try:
        return _ask_headers(message)
    except (SystemError, UnicodeDecodeError):  # a key that is no UTF-8: this library cannot show it, on either side
        return "unreadable"


# The kind of a timestamp is not compared: what a broker stamped at the source (LogAppendTime) is the mirror record's own.
_SHOWN: Mapping[str, Callable[[Message], object]] = {
    "key": Message.key,
    "value": Message.value,
    "headers": _headers,
    "timestamp": lambda message: message.timestamp()[1],
}


class _Reader:
    """Reads one topic with one consumer, a partition at a time."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer, self._topic = consumer, topic

    def newest(self, partition: int) -> Message | None:
        """Answer the last record of the partition, None where it holds none."""
        place = TopicPartition(self._topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=_METADATA_TIMEOUT_S)
        back = LOOK_BACK
        while low < high:
            start = max(low, high - back)
            newest = None
            for message in self.read(partition, start=start, end=high):
                newest = message
            if newest is not None or start == low:
                return newest
            back *= 10
        return None

    def read(self, partition: int, *, start: int, end: int) -> Iterator[Message]:
        """Yield records in ``[start, end)``; ends at the last stable offset, and after a timeout with an error."""
        self._consumer.assign([TopicPartition(self._topic, partition, start)])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while (message := self._next(partition, deadline)) is not None and _offset(message) < end:
            yield message
            if _offset(message) == end - 1:
                return

    def _next(self, partition: int, deadline: float) -> Message | None:
        message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None:
            text = f"Reading partition {partition} of {self._topic} took longer than {READ_TIMEOUT_S:.0f} s."
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, text)
        error = message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name in this library
            return None
        raise KafkaException(error)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


@contextmanager
def _consumer(address: ClusterAddress) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **librdkafka_settings(address),
            "group.id": "clusterlink-canary",  # librdkafka wants one; none is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "receive.message.max.bytes": RECEIVE_BYTES,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()

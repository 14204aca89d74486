"""Read a topic as an application does, read-committed; the canary compares a mirror's newest record with the source's.

Joins no group and commits nothing, so a read leaves no trace on either cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import structlog
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.security import make_client

# --- reading -------------------------------------------------------------------------------------------------------------
# ``read_rows`` is for topics that Spark's own Kafka source cannot read because a record has a timestamp outside the range of
# Spark's type.


OFFSETS_BACK = 1  # offsets before the end; multiplied by ten until a record is found: markers and aborted data are no records
FETCH_BYTES = 1 << 20  # stored bytes of a response, or a larger batch; all of it is decompressed at once
AHEAD_MESSAGES = 10_000  # received records at which the next request waits
QUEUE_KB = 16 << 10  # decompressed kilobytes of received records at which the next request waits
RECEIVE_BYTES = 256 << 20  # enough for messages of 100 MB
READ_TIMEOUT_S = 20.0  # per record
_METADATA_TIMEOUT_S = 10.0
NO_END = 1 << 63
_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}


class ReadRefusedError(Exception):
    """Records that are not read; the message is the reason."""


ReadCheck = Callable[[int, int, int], None]  # partition, start, end; raises ReadRefusedError


class TopicConsumer:
    """Reads a topic with a consumer, a partition at a time. ``check`` is called before each range that is read."""

    def __init__(self, consumer: Consumer, topic: str, *, check: ReadCheck | None = None) -> None:
        self._consumer, self._topic, self._check = consumer, topic, check

    def newest(self, partition: int) -> Message | None:
        """Return the last record of the partition, None if it has none."""
        low, high = self.ends(partition)
        back = OFFSETS_BACK
        while low < high:
            start = max(low, high - back)
            newest = None
            for message in self.read(partition, start=start, end=high):
                newest = message
            if newest is not None or start == low:
                return newest
            back *= 10
        return None

    def read(self, partition: int, *, start: int, end: int) -> Generator[Message]:
        """Yield the records in ``[start, end)`` up to the last stable offset; raise TIMEOUT_ERROR if a record takes too long.

        Nothing is yielded from before the log start; -2 stands for the log start.
        """
        if start > self.ends(partition)[1]:
            return
        if self._check is not None:
            self._check(partition, start, end)
        self._consumer.assign([TopicPartition(self._topic, partition, start)])
        try:
            while (message := self._next(partition)) is not None and offset_of(message) < end:
                yield message
                if offset_of(message) == end - 1:
                    return
        finally:
            self._consumer.unassign()  # what lies behind the end is not fetched

    def ends(self, partition: int) -> tuple[int, int]:
        """Return the log start offset and the high watermark."""
        place = TopicPartition(self._topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=_METADATA_TIMEOUT_S)
        return low, high

    def _next(self, partition: int) -> Message | None:
        message = self._consumer.poll(READ_TIMEOUT_S)
        if message is None:
            text = f"Reading partition {partition} of {self._topic} took longer than {READ_TIMEOUT_S:.0f} s."
            raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, text)
        error = message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public in this library in spite of its underscore
            return None
        raise KafkaException(error)


def offset_of(message: Message) -> int:
    """Return the offset of a message that was read."""
    offset = message.offset()
    assert offset is not None
    return offset


@contextmanager
def committed_consumer(address: ClusterAddress, **settings: object) -> Iterator[Consumer]:
    """Open a consumer that joins no group and commits nothing; ``settings`` with underscores instead of dots.

    It requests the next records only when all received records were read, unless ``settings`` change that.
    """
    consumer = make_client(
        Consumer,
        address,
        {
            "group.id": "clusterlink-canary",  # required by librdkafka; no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may delete the position before it is read
            "isolation.level": "read_committed",
            "receive.message.max.bytes": RECEIVE_BYTES,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 100,
            "fetch.wait.max.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        },
    )
    try:
        yield consumer
    finally:
        consumer.close()


# Called from C: for header keys that are not UTF-8 this library returns a value with an exception set, and an interpreter that
# has specialized a direct call no longer checks for an exception, so that it surfaces anywhere later.
_call_headers = methodcaller("headers")


def headers_of(message: Message) -> Any:
    """Return the headers, or "unreadable" if this library cannot return them because a key is not UTF-8."""
    try:
        return _call_headers(message)
    except (SystemError, UnicodeDecodeError):
        return "unreadable"


def read_rows(
    address: ClusterAddress, topic: str, *, partition: int, start: int, end: int, fetch_bytes: int = FETCH_BYTES
) -> Iterator[Mapping[str, Any]]:
    """Yield the records that a read-committed consumer sees in ``[start, end)``; -2 is the log start, -1 the log end.

    Reads ahead while fewer than QUEUE_KB are received; a response has ``fetch_bytes`` stored bytes, or a larger batch. Raises
    LinkEngineError if a partition does not respond or has a header whose name is not UTF-8.
    """
    ahead = {"queued_min_messages": AHEAD_MESSAGES, "queued_max_messages_kbytes": QUEUE_KB, "fetch_queue_backoff_ms": 1}
    with committed_consumer(address, fetch_message_max_bytes=fetch_bytes, **ahead) as consumer:
        messages = TopicConsumer(consumer, topic).read(partition, start=start, end=NO_END if end < 0 else end)
        with closing(messages):
            for message in messages:
                yield _row(message)


def _row(message: Message) -> dict[str, Any]:
    kind, time_ms = message.timestamp()
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": time_ms,
        "timestampType": _TYPES.get(kind, -1),
        "key": message.key(),
        "value": message.value(),
        "headers": _headers(message),
    }


def _headers(message: Message) -> list[dict[str, Any]] | None:
    found = headers_of(message)
    if isinstance(found, str):
        place = f"partition {message.partition()} of topic {message.topic()}, offset {message.offset()}"
        text = f"The record in {place}, has a header whose name is not UTF-8, besides timestamps that Spark cannot read."
        raise LinkEngineError(ErrorCode.INTERNAL_ERROR, f"{text} Compare it with a consumer of your own.")
    return [{"key": name, "value": value} for name, value in found] if found else None


# --- canary --------------------------------------------------------------------------------------------------------------
# Reads the newest record of each mirror partition.


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedTopic:
    """A topic and the check that precedes each read of it."""

    address: ClusterAddress
    name: str
    check: ReadCheck


def read_canaries(
    *, source: CheckedTopic, mirror: CheckedTopic, partitions: Iterable[int], compacted: bool
) -> list[CanaryRead]:
    """Read the newest record of each of these partitions of the mirror and compare it with the source's at the same offset.

    ``compacted``: the source or the mirror is compacted, so the source may have removed a tombstone since.
    """
    check_reachable(source.address)
    check_reachable(mirror.address)
    with committed_consumer(mirror.address) as mirror_consumer, committed_consumer(source.address) as source_consumer:
        copy = TopicConsumer(mirror_consumer, mirror.name, check=mirror.check)
        original = TopicConsumer(source_consumer, source.name, check=source.check)
        return [_compare(copy, original, partition, compacted=compacted) for partition in partitions]


def write_canaries(address: ClusterAddress, topic: str, *, partitions: int) -> list[CanaryRead]:
    """Write a record to every partition with ``acks=all``, and read it back."""
    check_reachable(address)
    canary = f"drill {time.time_ns()}".encode()
    refused: dict[int, str] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused[message.partition() or 0] = f"a record could not be written: {error.str()}"

    producer = make_client(Producer, address, {"acks": "all", "delivery.timeout.ms": int(READ_TIMEOUT_S * 1000)})
    for partition in range(partitions):
        producer.produce(topic, key=canary, value=canary, partition=partition, on_delivery=delivered)
    if producer.flush(2 * READ_TIMEOUT_S):
        raise LinkEngineError(ErrorCode.TIMEOUT_ERROR, f"Writing to {topic} took longer than {2 * READ_TIMEOUT_S:.0f} s.")
    with committed_consumer(address) as consumer:
        reader = TopicConsumer(consumer, topic)
        return [_read_back(reader, partition, canary, refused.get(partition, "")) for partition in range(partitions)]


def _read_back(reader: TopicConsumer, partition: int, canary: bytes, refused: str) -> CanaryRead:
    if refused:
        return CanaryRead(partition=partition, offset=None, problem=refused)
    newest = reader.newest(partition)
    problem = "" if newest is not None and newest.value() == canary else "the record just written is not the newest one"
    return CanaryRead(partition=partition, offset=newest.offset() if newest else None, problem=problem)


def _compare(mirror: TopicConsumer, source: TopicConsumer, partition: int, *, compacted: bool) -> CanaryRead:
    try:
        mirrored = mirror.newest(partition)
        if mirrored is None:
            return CanaryRead(partition=partition, offset=None)
        offset = offset_of(mirrored)
        original = next(source.read(partition, start=offset, end=offset + 1), None)
        if original is not None and original.offset() == offset:
            return CanaryRead(partition=partition, offset=offset, problem=_difference(mirrored, original))
        gone = _why_gone(mirrored, log_start=source.ends(partition)[0], compacted=compacted)
    except KafkaException as error:
        return CanaryRead(partition=partition, offset=None, problem=f"it could not be read: {error.args[0]}")
    except ReadRefusedError as refused:
        return CanaryRead(partition=partition, offset=None, problem=str(refused))
    _log.info("canary.not_at_the_source", topic=mirrored.topic(), partition=partition, offset=offset, rightly=gone or "no")
    return CanaryRead(partition=partition, offset=offset, gone=gone, problem="" if gone else _missing(offset))


def _why_gone(mirrored: Message, *, log_start: int, compacted: bool) -> str:
    """Return why the source has removed a record that the mirror still holds; "" if it must not have removed it."""
    if offset_of(mirrored) < log_start:
        return "deleted at the source since"
    removed_by_cleaner = mirrored.value() is None or mirrored.key() is None  # other records stay while they are the newest
    return "compacted at the source since" if compacted and removed_by_cleaner else ""


def _missing(offset: int) -> str:
    return f"the source has no record at offset {offset}"


def _difference(mirrored: Message, original: Message) -> str:
    for name, shown in _SHOWN.items():
        if shown(mirrored) != shown(original):
            return f"the record at offset {mirrored.offset()} has another {name} than the source's"
    return ""


# The timestamp type is not compared: a record with LogAppendTime at the source has CreateTime on the mirror.
_SHOWN: Mapping[str, Callable[[Message], object]] = {
    "key": Message.key,
    "value": Message.value,
    "headers": headers_of,
    "timestamp": lambda message: message.timestamp()[1],
}

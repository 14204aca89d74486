"""Read a topic as an application does, read-committed. Joins no group and commits nothing, so it leaves no trace.

``read_rows`` is used for topics that Spark's own Kafka source cannot read, since a record has a timestamp outside the range of
Spark's type.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from operator import methodcaller
from typing import Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.settings import make_client

LOOK_BACK = 1  # offsets before the end; multiplied by ten until a record is found: markers and aborted data are no records
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

    It requests the next records only when all received ones were read, unless ``settings`` change that.
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

"""Read records of partitions as rows with an ordinary read-committed consumer, whatever their timestamps are.

Used for topics that Spark's own Kafka source cannot read, since a record has a timestamp outside the range of Spark's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.committed import TopicConsumer, committed_consumer, headers_of

NO_END = 1 << 63
_TYPES = {TIMESTAMP_CREATE_TIME: 0, TIMESTAMP_LOG_APPEND_TIME: 1}


def read_rows(address: ClusterAddress, topic: str, *, partition: int, start: int, end: int) -> Iterator[Mapping[str, Any]]:
    """Yield the records that a read-committed consumer sees in ``[start, end)``; -2 is the log start, -1 the log end.

    Raises LinkEngineError if a partition does not respond or has a header whose name is not UTF-8.
    """
    with committed_consumer(address) as consumer:
        reader = TopicConsumer(consumer, topic)
        for message in reader.read(partition, start=start, end=NO_END if end < 0 else end):
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

"""Records of partitions as rows, read as an ordinary committed consumer does, whatever their times are.

For topics that Spark's own Kafka source gives up, since a record has a time that Spark's type does not hold.
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
    """Yield what a committed reader sees in ``[start, end)``; -2 is the log's beginning, -1 its end.

    Raises LinkEngineError where a partition does not answer, or holds a header whose name is not UTF-8.
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
        text = f"The record in {place}, has a header whose name is not UTF-8, beside times that Spark cannot read."
        raise LinkEngineError(ErrorCode.INTERNAL_ERROR, f"{text} It can be compared by hand only.")
    return [{"key": name, "value": value} for name, value in found] if found else None

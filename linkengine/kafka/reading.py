"""One blocking read of record batches, for checks beside the data path. Knows nothing of what the batches mean."""

from __future__ import annotations

import uuid
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse

from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.fetch import BY_ID, BY_NAME, READ_COMMITTED

MAX_BYTES = 4 << 20
_WAIT_MS = 500


def read_batches(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int, max_bytes: int = MAX_BYTES
) -> tuple[int, memoryview]:
    """Answer (error, batches) from ``offset`` on, uncommitted data included; ``topic`` is (name, id, partition)."""
    first = _read(connection, topic=topic, leader_epoch=leader_epoch, offset=offset, max_bytes=max_bytes, isolation_level=0)
    return first.error_code, memoryview(first.records or b"")


def read_committed(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int, max_bytes: int = MAX_BYTES
) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
    """Answer (error, aborted transactions, batches) up to the last stable offset; aborted are (producer id, first offset)."""
    first = _read(
        connection,
        topic=topic,
        leader_epoch=leader_epoch,
        offset=offset,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED,
    )
    aborted = tuple((one.producer_id, one.first_offset) for one in first.aborted_transactions or ())
    return first.error_code, aborted, memoryview(first.records or b"")


def read_with_aborted(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int
) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
    """Answer (error, aborted transactions, batches) from ``offset`` on, also what lies beyond an open transaction."""
    error, records = read_batches(connection, topic=topic, leader_epoch=leader_epoch, offset=offset)
    if error or not len(records):
        return error, (), records
    error, aborted, _ = read_committed(connection, topic=topic, leader_epoch=leader_epoch, offset=offset)
    return error, aborted, records


def _read(
    connection: Connection,
    *,
    topic: tuple[str, bytes, int],
    leader_epoch: int,
    offset: int,
    max_bytes: int,
    isolation_level: int,
) -> Any:
    name, topic_id, partition = topic
    version = connection.version_for(FetchRequest.API_KEY, highest=BY_ID if any(topic_id) else BY_NAME, lowest=BY_NAME)
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
    )
    request = FetchRequest(
        version=version,
        max_wait_ms=_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[_topic(name, topic_id, version=version, partition=wanted)],
    )
    answer = connection.request(request, response=FetchResponse)
    if answer.error_code:
        raise BrokerError(answer.error_code, f"Topic {name!r} cannot be read")
    return answer.responses[0].partitions[0]


def _topic(name: str, topic_id: bytes, *, version: int, partition: Any) -> Any:
    if version >= BY_ID:
        return FetchRequest.FetchTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=[partition])
    return FetchRequest.FetchTopic(topic=name, partitions=[partition])

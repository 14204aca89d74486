"""Blocking reads of record batches, for checks besides the data path. Does not interpret the batches.

A response without the topic means that the client's quota is used up and it must wait (KIP-219).
"""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, FetchResponse

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import MAX_FRAME
from linkengine.kafka.codes import BrokerError, RedirectedError
from linkengine.kafka.connection import Connection
from linkengine.kafka.fetch import BY_ID, BY_NAME, READ_COMMITTED

MAX_BYTES = 4 << 20
FEW_BYTES = 128 << 10  # for a few batches; a larger first batch is returned whole all the same (KIP-74)
QUOTA_S = 15.0  # by default, brokers drop a client's reads from the quota window after eleven seconds
_WAIT_MS = 500
_LEAST_PAUSE_S = 0.1


def read_batches(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int, max_bytes: int = MAX_BYTES
) -> tuple[int, memoryview]:
    """Return (error, batches) from ``offset`` on, including uncommitted data; ``topic`` is (name, id, partition)."""
    first = _read(connection, topic=topic, leader_epoch=leader_epoch, offset=offset, max_bytes=max_bytes, isolation_level=0)
    return first.error_code, first.records


def read_committed(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int, max_bytes: int = MAX_BYTES
) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
    """Return (error, aborted transactions as (producer id, first offset), batches) up to the last stable offset."""
    first = _read(
        connection,
        topic=topic,
        leader_epoch=leader_epoch,
        offset=offset,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED,
    )
    return first.error_code, first.aborted, first.records


def read_with_aborted(
    connection: Connection, *, topic: tuple[str, bytes, int], leader_epoch: int, offset: int, max_bytes: int = MAX_BYTES
) -> tuple[int, tuple[tuple[int, int], ...], memoryview]:
    """Return (error, aborted transactions, batches) from ``offset`` on, also beyond an open transaction."""
    error, records = read_batches(connection, topic=topic, leader_epoch=leader_epoch, offset=offset, max_bytes=max_bytes)
    if error or not len(records):
        return error, (), records
    error, aborted, _ = read_committed(connection, topic=topic, leader_epoch=leader_epoch, offset=offset, max_bytes=max_bytes)
    return error, aborted, records


def _read(
    connection: Connection,
    *,
    topic: tuple[str, bytes, int],
    leader_epoch: int,
    offset: int,
    max_bytes: int,
    isolation_level: int,
) -> _PartitionData:
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
    found = _read_within_quota(connection, request, name=name, partition=partition)
    if found.preferred_read_replica >= 0 and not len(found.records):
        raise RedirectedError(f"{name}-{partition}", replica=found.preferred_read_replica)
    return found


class _PartitionData(NamedTuple):
    """The response for a partition."""

    error_code: int
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset)
    records: memoryview
    preferred_read_replica: int


def _read_partition(response: Any, *, partition: int) -> tuple[int, float, _PartitionData | None]:
    """Return the response's error and throttle time in seconds, and the data of its only partition, if present."""
    if response.error_code or not response.responses:
        return response.error_code, response.throttle_time_ms / 1000, None
    data = response.responses[0].partitions[0]
    if data.partition_index != partition:
        raise ValueError(f"partition {data.partition_index} instead of {partition}")
    aborted = tuple((entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ())
    return 0, 0.0, _PartitionData(data.error_code, aborted, memoryview(data.records or b""), data.preferred_read_replica)


def _read_within_quota(connection: Connection, request: Any, *, name: str, partition: int) -> _PartitionData:
    """Repeat the request, with the pauses that the broker requires, until the principal's quota permits a response."""
    deadline = time.monotonic() + QUOTA_S
    while True:
        error_code, wanted_s, found = connection.request(
            request,
            response=FetchResponse,
            read=partial(_read_partition, partition=partition),
            most_bytes=MAX_FRAME,  # a single batch may be that large
        )
        if error_code:
            raise BrokerError(error_code, f"Topic {name!r} cannot be read")
        if found is not None:
            return found
        pause_s = max(wanted_s, _LEAST_PAUSE_S)
        if time.monotonic() + pause_s > deadline:
            raise _throttled(connection, name=name, pause_s=pause_s)
        time.sleep(pause_s)


def _throttled(connection: Connection, *, name: str, pause_s: float) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Broker {connection.peer} does not return topic {name!r} for another {pause_s:.1f} s: the quota of the link's "
        "principal is used up (consumer_byte_rate or request_percentage). Raise it if this lasts. Retrying.",
    )


def _topic(name: str, topic_id: bytes, *, version: int, partition: Any) -> Any:
    if version >= BY_ID:
        return FetchRequest.FetchTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=[partition])
    return FetchRequest.FetchTopic(topic=name, partitions=[partition])

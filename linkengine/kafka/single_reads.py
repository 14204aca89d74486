"""Blocking reads besides the data path: record batches at an offset, and offsets by time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, FetchResponse

from linkengine.batches.compression import DecompressedTooLargeError
from linkengine.batches.large import read_any
from linkengine.batches.records import ControlType, control_type
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TimedOffset
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.channel import MAX_FRAME
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, LATEST, newest_view, read_offsets
from linkengine.kafka.protocol import BrokerError, KafkaCode, RedirectedError
from linkengine.kafka.requests import FETCH_BY_ID, FETCH_BY_NAME, READ_COMMITTED
from linkengine.kafka.topicviews import TopicMetadata

# --- batches at an offset ------------------------------------------------------------------------------------------------
# Batches are not interpreted. A response without the topic means that the client's quota is used up and it must wait (KIP-219).


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
    version = connection.version_for(
        FetchRequest.API_KEY, highest=FETCH_BY_ID if any(topic_id) else FETCH_BY_NAME, lowest=FETCH_BY_NAME
    )
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
    if version >= FETCH_BY_ID:
        return FetchRequest.FetchTopic(topic_id=uuid.UUID(bytes=topic_id), partitions=[partition])
    return FetchRequest.FetchTopic(topic=name, partitions=[partition])


# --- offsets by time -----------------------------------------------------------------------------------------------------
# Counts only records. ListOffsets by timestamp returns the first *batch entry* at or after the timestamp, and a control batch
# counts too. A filler of a mirror is a control batch with the time of the copy, which is later than the records around it. So
# for a mirror ListOffsets may return an earlier offset than for the source, but never a later offset (a matching record is
# itself a matching entry). Therefore the search starts at the result of ListOffsets and reads on to the first matching record.
# Only batch headers are read until a batch may hold it.
#
# If the timestamp is before the start of the copy, the first filler of the log matches, and the search starts there. The search
# is limited by ``budget_s`` and returns how far it got.
#
# A batch that is larger than the decompression limit is read in pieces, and a producer can create a batch that takes hours. If
# a batch cannot be searched to its end, the result is the first offset that was not searched, without a timestamp: never a
# later offset than the record's.


BATCH_S = 1.0  # a batch is searched at least that long, also after the deadline
_NO_SUCH_OFFSET = -1


@dataclass(slots=True)
class _Search:
    """The search in a partition; ``at`` is the next offset to read."""

    partition: int
    at: int
    end: int
    found: tuple[int, int | None] | None = None  # offset and timestamp; without it, the record is there or behind
    reads: int = 0
    aborting: set[int] = field(default_factory=set)  # producer ids whose open transaction will be aborted

    @property
    def is_complete(self) -> bool:
        return self.found is not None or self.at >= self.end

    def result(self) -> TimedOffset:
        offset, timestamp = self.found or (None, None)
        return TimedOffset(
            partition=self.partition,
            offset=offset,
            record_timestamp_ms=timestamp,
            searched_to=self.at,
            log_end_offset=self.end,
            is_complete=self.is_complete,
        )


def offsets_for_time(
    address: ClusterAddress,
    topic: str,
    timestamp_ms: int,
    *,
    positions: Mapping[int, int],
    budget_s: float,
    partition: int | None = None,
) -> list[TimedOffset]:
    """Return, per partition or for one ``partition``, the first committed record at or after a timestamp.

    ``positions`` are the offsets at which to continue an incomplete search. Each partition is read at least once, so that every
    call makes progress.
    """
    deadline = time.monotonic() + budget_s
    with closing(Cluster(address)) as cluster, ExitStack() as stack:
        view = newest_view(cluster, topic)
        searches = _begin(cluster, topic, view, timestamp_ms=timestamp_ms, positions=positions)
        searches = [search for search in searches if partition in (None, search.partition)]
        connections: dict[int, Connection] = {}
        waiting = [search for search in searches if not search.is_complete]
        while waiting and (waiting[0].reads == 0 or time.monotonic() < deadline):
            search = waiting.pop(0)
            broker = view.partitions[search.partition].broker
            if broker not in connections:
                connections[broker] = stack.enter_context(closing(cluster.open(broker)))
            try:
                _read_on(connections[broker], topic, view, search, timestamp_ms=timestamp_ms, deadline=deadline)
            except BrokerError as error:
                if error.kafka_code != KafkaCode.OFFSET_OUT_OF_RANGE:
                    raise
                start = read_offsets(cluster, topic, view, timestamp=EARLIEST)[search.partition]
                if start <= search.at:
                    raise
                search.at = min(start, search.end)  # retention has deleted the records in the meantime
            if not search.is_complete:
                waiting.append(search)
    return [search.result() for search in searches]


def _begin(
    cluster: Cluster, topic: str, view: TopicMetadata, *, timestamp_ms: int, positions: Mapping[int, int]
) -> list[_Search]:
    entries = read_offsets(cluster, topic, view, timestamp=timestamp_ms, read_committed=True)
    starts = read_offsets(cluster, topic, view, timestamp=EARLIEST)
    ends = read_offsets(cluster, topic, view, timestamp=LATEST, read_committed=True)
    searches = []
    for partition, end in sorted(ends.items()):
        entry = entries[partition]
        at = end if entry == _NO_SUCH_OFFSET else max(entry, starts[partition], positions.get(partition, 0))
        searches.append(_Search(partition=partition, at=min(at, end), end=end))
    return searches


def _read_on(
    connection: Connection, topic: str, view: TopicMetadata, search: _Search, *, timestamp_ms: int, deadline: float
) -> None:
    """Read the batches of a response; a small response first, since the record is usually near."""
    leader = view.partitions[search.partition]
    error, aborted, records = read_committed(
        connection,
        topic=(topic, view.topic_id, search.partition),
        leader_epoch=leader.epoch,
        offset=search.at,
        max_bytes=MAX_BYTES if search.reads else FEW_BYTES,
    )
    if error:
        raise BrokerError(error, f"Topic {topic!r} cannot be read")
    search.reads += 1
    for position, batch in iter_batches(records):
        search.aborting |= {producer for producer, first in aborted if first <= batch.base_offset}
        whole = records[position : position + batch.size]
        if batch.is_control:
            if control_type(batch, whole) is ControlType.ABORT:
                search.aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in search.aborting):
            _search_batch(search, batch, whole, timestamp_ms=timestamp_ms, deadline=deadline)
            if search.found is not None:
                return
        search.at = max(search.at, min(batch.next_offset, search.end))


def _search_batch(search: _Search, batch: BatchView, whole: memoryview, *, timestamp_ms: int, deadline: float) -> None:
    """Set ``search.found`` if the batch has the record, or if only its beginning can be searched."""
    if batch.max_timestamp < timestamp_ms:
        return
    until = max(deadline, time.monotonic() + BATCH_S)
    try:
        for record in read_any(batch, whole):
            if record.offset >= search.at and record.timestamp >= timestamp_ms:
                search.found = record.offset, record.timestamp
                return
            if time.monotonic() > until:
                search.found = max(record.offset, search.at), None
                return
    except DecompressedTooLargeError:
        search.found = search.at, None

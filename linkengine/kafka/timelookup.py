"""Look up offsets by time, counting only records. Blocking.

ListOffsets by timestamp returns the first *batch entry* at or after the timestamp, and a control batch counts too. A filler of
a mirror is a control batch with the time of the copy, which is later than the records around it. So for a mirror ListOffsets
may return an earlier offset than for the source, but never a later offset (a matching record is itself a matching entry).
Therefore the search starts at the result of ListOffsets and reads on to the first matching record. Only batch headers are read
until a batch may hold it.

If the timestamp is before the start of the copy, the first filler of the log matches, and the search starts there. The search
is limited by ``budget_s`` and returns how far it got.

A batch that is larger than the decompression limit is read in pieces, and a producer can make one that takes hours. If a batch
cannot be searched to its end, the result is the first offset that was not searched, without a timestamp: never a later one than
the record's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from linkengine.batches.compression import DecompressedTooLargeError
from linkengine.batches.control import ControlType, control_type
from linkengine.batches.large import read_any
from linkengine.batches.view import BatchView, iter_batches
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.clusterviews import TimedOffset
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.connection import Connection
from linkengine.kafka.newest_offsets import newest_view, read_offsets
from linkengine.kafka.offsets import EARLIEST, LATEST
from linkengine.kafka.single_reads import FEW_BYTES, MAX_BYTES, read_committed
from linkengine.kafka.topicviews import TopicView

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
            _read_on(connections[broker], topic, view, search, timestamp_ms=timestamp_ms, deadline=deadline)
            if not search.is_complete:
                waiting.append(search)
    return [search.result() for search in searches]


def _begin(cluster: Cluster, topic: str, view: TopicView, *, timestamp_ms: int, positions: Mapping[int, int]) -> list[_Search]:
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
    connection: Connection, topic: str, view: TopicView, search: _Search, *, timestamp_ms: int, deadline: float
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

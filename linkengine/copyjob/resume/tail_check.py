"""The tail check: compares the last records of a mirror with the source's, record by record. Blocking; runs in the background.

Producer epochs and sequences protect a mirror from its own writers. They do not show three things:

* a gap fill of a previous owner that was written late and shifted the records behind it (MARKER_OVERRUN);
* records that the source lost and replaced between a copy worker's last report and its crash (UNEXPECTED_TRUNCATION);
* records of another producer in a mirror that was not copied at the time (FOREIGN_WRITE).

Each of them shows in the last records of the mirror. So an owner that did not get the log end from its predecessor by a clean
hand-over compares these records with the source before it copies anything. They are read as a *tail*: at least the last
batch, and further back until a record is found.

Each replica compacts its log at its own time. An offset without a record on one side is therefore no difference, unless it is
a marker or aborted data on that side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from linkengine.batches.large import LargeRecord, hash_fields, hash_large, read_any
from linkengine.batches.planning import AbortedTransaction, AbortedTransactions, SegmentPlanner
from linkengine.batches.records import ControlType, control_type
from linkengine.batches.steps import Append, Fill
from linkengine.batches.view import BatchView, iter_batches
from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.errors import Confirmation, foreign_write, marker_overrun, replaced_records
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import Content, LogTail, SourceOrigin, Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError, TruncationError
from linkengine.domain.plans import PartitionAssignment
from linkengine.domain.states import GapReason
from linkengine.kafka.admin_topics import is_compacted
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, list_offsets
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.single_reads import FEW_BYTES, read_committed, read_with_aborted

# Offsets to read back until a record is found: the last batch, then more. One request holds up to 1,000 markers
# (``gap_filler``).
RECORDS_BACK = (1, 32, 1_100)
MOST_OFFSETS = 50_000  # of a tail: a batch may hold millions of records, and each compared record takes memory
TopicIdPartition = tuple[str, bytes, int]  # name and id of the topic, number of the partition


class DifferenceKind(StrEnum):
    """How mirror and source differ at an offset."""

    MARKER = "MARKER"  # the source has a record, the mirror a marker of the copy's own producer
    RECORD = "RECORD"  # the mirror has a record, the source another record, a marker or aborted data
    FOREIGN = "FOREIGN"  # the source has a record, the mirror another producer's marker or aborted record


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first offset at which the tail differs from the source."""

    offset: int
    kind: DifferenceKind


def read_log_tail(
    connection: Connection,
    *,
    topic: TopicIdPartition,
    leader_epoch: int,
    bounds: tuple[int, int],
    producer_id: int,
    local_start: Callable[[], int],
) -> LogTail:
    """Read the last records of a mirror and the markers behind them; ``bounds`` are its log start and log end.

    All of it must be replicated: it is read up to the high watermark. ``local_start`` is called after an empty response. Below
    the local log start an empty response means that remote storage is slow (KIP-405), not that there is no record: raises
    TIMEOUT_ERROR. Raises BrokerError if the broker refuses.
    """
    first, end = bounds
    tail = LogTail(start=end, end=end, records={}, markers=frozenset())
    for back in RECORDS_BACK:
        part = (max(first, end - back), end)
        batches = _mirror_batches(connection, topic=topic, leader_epoch=leader_epoch, bounds=part, local_start=local_start)
        tail = _tail_of(batches, first=max(first, end - MOST_OFFSETS), bounds=part, producer_id=producer_id)
        if tail.records or part[0] == first:
            break
    return tail


def _mirror_batches(
    connection: Connection,
    *,
    topic: TopicIdPartition,
    leader_epoch: int,
    bounds: tuple[int, int],
    local_start: Callable[[], int],
) -> Iterator[tuple[BatchView, memoryview, bool]]:
    """Yield (view, batch, aborted). A topic that a reversal made a mirror can hold aborted data of applications."""
    position, end = bounds
    while position < end:
        error, entries, records = read_with_aborted(
            connection, topic=topic, leader_epoch=leader_epoch, offset=position, max_bytes=FEW_BYTES
        )
        if error:
            raise BrokerError(error, f"The end of mirror {topic[0]}-{topic[2]} cannot be read")
        before, aborted = position, AbortedTransactions([AbortedTransaction(*entry) for entry in entries])
        for at, view in iter_batches(records):
            position = max(position, view.next_offset)
            batch = records[at : at + view.size]
            yield view, batch, aborted.contain(view, batch)
        if position == before and position < local_start():
            raise _slow_storage(f"mirror {topic[0]}-{topic[2]}")
        if position == before:
            return  # compaction has removed the rest


def _tail_of(
    batches: Iterator[tuple[BatchView, memoryview, bool]], *, first: int, bounds: tuple[int, int], producer_id: int
) -> LogTail:
    """Return the tail that whole batches form, from the offset ``first`` on.

    Whole batches, because many equal records cannot be equal by chance.
    """
    start, end = bounds
    records: dict[int, Content] = {}
    markers: set[int] = set()
    foreign_markers: set[int] = set()
    aborted_offsets: set[int] = set()
    foreign: int | None = None
    ends_with_fence = False
    for view, batch, aborted in batches:
        own = view.producer_id == producer_id
        ends_with_fence = own and view.is_control and control_type(view, batch) is ControlType.COMMIT
        if not own and foreign is None:
            foreign = view.base_offset
        start = min(start, max(first, view.base_offset))
        if view.is_control or aborted:
            hidden = aborted_offsets if aborted else markers if own else foreign_markers
            hidden |= set(range(max(first, view.base_offset), min(end, view.next_offset)))
        else:
            contents = _contents(view, batch, start=first)
            found = {record.offset: record.content(timestamps=not view.log_append_time) for record in contents}
            start = min(start, next(iter(found), end))  # the base offset of a v0/v1 wrapper is that of its last record
            records |= found
    return LogTail(
        start=start,
        end=end,
        records=records,
        markers=frozenset(markers),
        foreign=foreign,
        foreign_markers=frozenset(foreign_markers),
        aborted=frozenset(aborted_offsets),
        ends_with_fence=ends_with_fence,
    )


def first_difference(
    connection: Connection,
    *,
    topic: TopicIdPartition,
    leader_epoch: int,
    bounds: tuple[int, int],
    tail: LogTail,
    compacted: Callable[[], bool],
    local_start: int = 0,
) -> Difference | None:
    """Compare a mirror's tail with its source; return the first difference, None if there is none.

    ``bounds`` are the source's log start and last stable offset; only what lies within is compared. Below ``local_start`` the
    source reads from remote storage, where an empty response says nothing (KIP-405): raises TIMEOUT_ERROR. ``compacted`` is
    called for a record with a key that the mirror has a marker for: a replica that is not compacted yet may still have it.
    """
    position, end = max(bounds[0], tail.start), min(bounds[1], tail.end)
    while position < end:
        error, aborted, records = read_committed(
            connection, topic=topic, leader_epoch=leader_epoch, offset=position, max_bytes=FEW_BYTES
        )
        if error:
            raise BrokerError(error, f"Source {topic[0]}-{topic[2]} cannot be read for a check")
        steps = SegmentPlanner().plan(
            memoryview(bytearray(records)),  # a copy: planning writes LogAppendTime timestamps into the batches
            next_offset=position,
            aborted=[AbortedTransaction(*entry) for entry in aborted],
            high_end=end,
        )
        if not steps and position < local_start:
            raise _slow_storage(f"source {topic[0]}-{topic[2]}")
        if not steps:
            return None  # compaction has removed the rest
        for step in steps:
            found = _difference_in(step, tail, compacted) if isinstance(step, Append) else _record_in(step, tail)
            if found is not None:
                return found
        position = steps[-1].end
    return None


def _slow_storage(of: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Remote storage of {of} is slow, so its last records cannot be compared yet. Retrying automatically.",
    )


def _difference_in(step: Append, tail: LogTail, compacted: Callable[[], bool]) -> Difference | None:
    _, view = next(iter_batches(step.payload))
    for record in _contents(view, step.payload, start=step.start):
        hidden = _hidden_by(record, tail, compacted)
        if hidden is not None:
            return Difference(offset=record.offset, kind=hidden)
        known = tail.records.get(record.offset)
        if known is not None and known != record.content(timestamps=known[0] is not None):
            return Difference(offset=record.offset, kind=DifferenceKind.RECORD)
    return None


class _Hashed(NamedTuple):
    """A record with a hash in place of key, value and headers."""

    offset: int
    timestamp: int
    has_key: bool
    hash: bytes

    def content(self, *, timestamps: bool) -> Content:
        return self.timestamp if timestamps else None, self.hash


def _contents(view: BatchView, batch: memoryview, *, start: int) -> Iterator[_Hashed]:
    """Yield a batch's records from the offset ``start`` on, hashed. A large record is decompressed in pieces."""
    for record in read_any(view, batch):
        if record.offset < start:
            continue
        if isinstance(record, LargeRecord):
            has_key, digest = hash_large(record)
        else:
            has_key, digest = record.key is not None, hash_fields(record.key, record.value, record.headers)
        yield _Hashed(record.offset, record.timestamp, has_key, digest)


def _hidden_by(record: _Hashed, tail: LogTail, compacted: Callable[[], bool]) -> DifferenceKind | None:
    """Return how the mirror hides a record of the source (marker, aborted record), None if it does not or that is allowed.

    A marker is allowed for a record with a key of a compacted topic: the gap was filled when one replica's cleaner had removed
    the record. The fill has another producer id if a transaction coordinator has assigned a new id since. Aborted records are
    never allowed: the copy does not write any.
    """
    if record.offset in tail.aborted:
        return DifferenceKind.FOREIGN
    kind = DifferenceKind.MARKER if record.offset in tail.markers else None
    kind = DifferenceKind.FOREIGN if record.offset in tail.foreign_markers else kind
    return None if kind is None or (record.has_key and compacted()) else kind


def _record_in(gap: Fill, tail: LogTail) -> Difference | None:
    """Return a record of the mirror in a gap of the source, if no replica of the source can have a record there.

    Replicas compact at different times, but markers and aborted data are at the same offsets on all of them.
    """
    if gap.reason not in (GapReason.TRANSACTION_MARKER, GapReason.ABORTED):
        return None
    found = min((offset for offset in tail.records if gap.start <= offset < gap.end), default=None)
    return None if found is None else Difference(offset=found, kind=DifferenceKind.RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCheck:
    """A mirror's tail and the source leader to compare it with."""

    assignment: PartitionAssignment
    origin: SourceOrigin
    tail: LogTail


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCheckResult:
    """The outcome of a tail check. ``complete``: the source's last stable offset is not before the end of the tail."""

    difference: Difference | None
    complete: bool


def check_tails(cluster: Cluster, broker: int, checks: Sequence[TailCheck]) -> dict[str, TailCheckResult | LinkEngineError]:
    """Compare tails with source partitions that ``broker`` leads, over a single connection; return the results by key."""
    places = [(check.assignment.source_topic, check.assignment.partition) for check in checks]
    starts = list_offsets(cluster, broker, places, timestamp=EARLIEST)
    ends = list_offsets(cluster, broker, places, timestamp=LATEST, read_committed=True)
    local = list_offsets(cluster, broker, places, timestamp=EARLIEST_LOCAL)
    connection = cluster.open(broker)
    results: dict[str, TailCheckResult | LinkEngineError] = {}
    try:
        for place, check in zip(places, checks, strict=True):
            (start_error, start), (end_error, end) = starts.get(place, (3, -1)), ends.get(place, (3, -1))
            try:
                if start_error or end_error:
                    raise BrokerError(start_error or end_error, f"Source {place[0]}-{place[1]} cannot be read for a check")
                results[check.assignment.key] = _compared(
                    cluster, connection, check, bounds=(start, end), local_start=local[place][1]
                )
            except LinkEngineError as error:
                results[check.assignment.key] = error
    finally:
        connection.close()
    return results


def _compared(
    cluster: Cluster, connection: Connection, check: TailCheck, *, bounds: tuple[int, int], local_start: int
) -> TailCheckResult:
    topic_id = check.origin.topic if check.origin.by_id else bytes(16)
    topic, leader = (check.assignment.source_topic, topic_id, check.assignment.partition), check.origin.leader
    found = first_difference(
        connection,
        topic=topic,
        leader_epoch=leader.epoch,
        bounds=bounds,
        tail=check.tail,
        compacted=cache(lambda: is_compacted(cluster, leader.broker, topic[0])),
        local_start=local_start,
    )
    return TailCheckResult(difference=found, complete=bounds[1] >= check.tail.end)


# --- checks for the copy loop --------------------------------------------------------------------------------------------
# Nothing is copied to a partition before its last records equal the source's. ``TailChecker`` starts the comparisons in the
# background, one job per source broker, and decides what a difference means. A difference has to be found twice before the
# mirror fails, since a single response may be corrupted.


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCheckEvents:
    """Outcomes of tail checks, as callbacks of the source side."""

    proven: Callable[[PartitionState], None]  # the records are equal
    short: Callable[[PartitionState], None]  # equal as far as the source goes, which ends (or still ends) before the mirror
    refused: Callable[[PartitionState, LinkEngineError], None]  # no result now; to be retried
    failed: Callable[[PartitionState, LinkEngineError], None]  # permanently


class TailChecker:
    """The partitions with a pending tail check."""

    def __init__(self, services: Services, cluster: Cluster, events: TailCheckEvents) -> None:
        self._services, self._cluster, self._events = services, cluster, events
        self._wanted: dict[PartitionState, None] = {}
        self._different = Confirmation(observations=2, seconds=0.0)

    def want(self, partition: PartitionState) -> None:
        """Check a partition, if its tail is to be checked, as soon as its source leader is located."""
        if partition.unchecked_tail is not None:
            self._wanted[partition] = None

    def forget(self, partition: PartitionState) -> None:
        """Cancel the tail check of a partition."""
        self._wanted.pop(partition, None)

    def tick(self, now: float) -> None:
        """Start the checks that can start, as one job per source broker."""
        groups: dict[int, list[tuple[PartitionState, int, TailCheck]]] = defaultdict(list)
        for partition in list(self._wanted):
            origin, tail = partition.origin, partition.unchecked_tail
            if tail is None:
                del self._wanted[partition]
            elif (
                origin is not None
                and partition.stage is Stage.COPYING
                and not partition.examining
                and partition.source_retry_at <= now
            ):
                partition.examining = True
                check = TailCheck(assignment=partition.assignment, origin=origin, tail=tail)
                groups[origin.leader.broker].append((partition, partition.attempt, check))
        for broker, started in groups.items():
            self._compare(broker, started)

    def _compare(self, broker: int, started: list[tuple[PartitionState, int, TailCheck]]) -> None:
        checks = [check for _, _, check in started]
        self._services.background.submit(
            lambda: check_tails(self._cluster, broker, checks),
            done=lambda results: self._compared(started, results),
            failed=lambda error: self._compared(started, dict.fromkeys([partition.key for partition, _, _ in started], error)),
        )

    def _compared(
        self, started: list[tuple[PartitionState, int, TailCheck]], results: dict[str, TailCheckResult | LinkEngineError]
    ) -> None:
        for partition, attempt, check in started:
            if partition.attempt == attempt and partition.stage is Stage.COPYING:
                partition.examining = False
                if partition.origin is check.origin:  # else another leader is read now, and has to be compared with
                    self._settle(partition, check.origin, check.tail, results[partition.key])

    def _settle(
        self, partition: PartitionState, origin: SourceOrigin, tail: LogTail, result: TailCheckResult | LinkEngineError
    ) -> None:
        if isinstance(result, LinkEngineError):
            self._events.refused(partition, result)
        elif result.difference is not None:
            error = _error_of(partition, tail, result.difference)
            if self._different.confirmed(partition.key, self._services.clock.monotonic(), of=result.difference):
                self._events.failed(partition, error)
            else:  # a single response may have been corrupted
                self._events.refused(partition, _to_be_confirmed(partition, result.difference))
        elif not result.complete:
            self._events.short(partition)
        else:
            self.forget(partition)
            partition.proven(origin)
            self._events.proven(partition)


def _to_be_confirmed(partition: PartitionState, difference: Difference) -> LinkEngineError:
    where = f"{partition.assignment.mirror_topic}-{partition.assignment.partition}"
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Offset {difference.offset} of mirror {where} differs from the source. Comparing a second time to confirm it.",
    )


def _error_of(partition: PartitionState, tail: LogTail, difference: Difference) -> LinkEngineError:
    if difference.kind is DifferenceKind.MARKER:
        return marker_overrun(partition.assignment, difference.offset)
    if difference.kind is DifferenceKind.FOREIGN:
        return foreign_write(partition.assignment, difference.offset)
    if tail.foreign is not None and tail.foreign <= difference.offset:
        return foreign_write(partition.assignment, tail.foreign)
    known = any(offset < difference.offset for offset in tail.records)  # the records before it are still equal
    return replaced_records(partition.assignment, difference.offset, kept=difference.offset if known else 0)


def beyond_source(partition: PartitionState, end: int) -> LinkEngineError:
    """Return the error of a mirror that is longer than its source, which ends at ``end``.

    FOREIGN_WRITE or MARKER_OVERRUN if the pending tail check shows that; otherwise the source must have lost the records.
    """
    tail = partition.unchecked_tail
    if tail is not None and tail.foreign is not None and tail.foreign >= end:
        return foreign_write(partition.assignment, tail.foreign)
    if tail is not None and tail.only_markers_from(end):
        return marker_overrun(partition.assignment, end)
    return _truncation(partition, end)


def _truncation(partition: PartitionState, end: int) -> LinkEngineError:
    name = f"{partition.assignment.source_topic}-{partition.assignment.partition}"
    return TruncationError(
        f"Source {name} ends at offset {end}, but its mirror ends at {partition.position}. The source has lost records, "
        "probably in an unclean leader election. Fail over to keep the mirror's records, or create the mirror again.",
        kept=end,
    )

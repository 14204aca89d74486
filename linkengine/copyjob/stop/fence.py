"""Fences mirror partitions for promote and failover: stale copy workers can no longer write, and mirrored ends are final.

The fence is a marker with a higher producer epoch and a higher coordinator epoch. From then on brokers refuse data (error
47, INVALID_PRODUCER_EPOCH) and markers (47, and 52, TRANSACTION_COORDINATOR_FENCED) of every earlier owner. It is the only
marker that commits:

| marker | written as |
|---|---|
| filler of a gap | ABORT |
| claim of a topic that becomes a mirror (``takeover``) | ABORT |
| fence of a stop | COMMIT |

A fence whose response was lost, or whose caller crashed, is therefore recognized as long as it is the last batch of the
log; producers are admitted only after the ends were recorded. Within a call it is recognized wherever it lies: if writes
cannot be denied (a destination without an authorizer), other producers may write at any time. If gaps are filled by
transactions, the fence is an empty transaction that commits, and its coordinator refuses the earlier owners. Blocking.

``fence_many`` writes the same fence to many partitions with a few requests per broker, for mirrors that were not fenced before.
Each fence is confirmed by a second reading: the log is longer by exactly the fence, the leader remembers its epochs, and the
high watermark covers it. A partition that is not confirmed is left to ``fence_partitions``, which reads the log itself.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.batches.records import ControlType, control_type, is_commit
from linkengine.batches.view import iter_batches
from linkengine.copyjob.destination.foreign_writes import batches_in
from linkengine.copyjob.destination.writer import epochs_above
from linkengine.copyjob.resume.log_end import LogEnd, LogEndQuery, read_log_ends
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import LATEST, list_offsets
from linkengine.kafka.protocol import BrokerError, UnreplicatedError
from linkengine.kafka.requests import MARKERS_VERSION
from linkengine.kafka.single_reads import FEW_BYTES, read_batches
from linkengine.kafka.transactions import EmptyTransactions

PATIENCE_S = 60.0  # to wait for leaders, and for followers to replicate the marker; then the caller retries
PAUSE_S = 0.2
MARKER_TIMEOUT_S = 30.0
PER_REQUEST = 500
READINGS = 10  # readings to confirm the fences


def fence_partitions(
    address: ClusterAddress,
    assignments: Sequence[PartitionAssignment],
    *,
    generation: int,
    already_fenced_ends: dict[int, int] | None = None,
    epochs: dict[int, int] | None = None,
) -> dict[int, int]:
    """Fence the partitions and return the mirrored ends by partition: the offset after the last mirrored one.

    Safe to repeat until producers are admitted; pass recorded ends as ``already_fenced_ends``, they are returned
    unchanged. Raises LinkEngineError if a partition cannot be fenced within PATIENCE_S; the others stay fenced, and their
    ends have been added to ``already_fenced_ends``. ``epochs`` receives the leader epochs under which this call read its
    fences.
    """
    ends = {} if already_fenced_ends is None else already_fenced_ends
    cluster = Cluster(address)
    fencing = _Fencing(cluster, generation=generation, ends=ends, epochs={} if epochs is None else epochs)
    deadline = time.monotonic() + PATIENCE_S
    try:
        for tries in count(1):  # from 1: ``fence_many`` may have tried once
            missing = [assignment for assignment in assignments if assignment.partition not in ends]
            if not missing:
                break
            failure = fencing.round(missing, tries=tries)
            if failure is None:
                continue
            if time.monotonic() > deadline or failure.code in (ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR):
                raise failure
            time.sleep(PAUSE_S)
    finally:
        cluster.close()
    return ends


class _Fencing:
    """The fences of a call, and from which offset each is searched for."""

    def __init__(self, cluster: Cluster, *, generation: int, ends: dict[int, int], epochs: dict[int, int]) -> None:
        """Create the state of a call that adds its results to ``ends`` and ``epochs``."""
        self._cluster, self._generation, self._ends, self._epochs = cluster, generation, ends, epochs
        self._search_from: dict[int, int] = {}  # by partition that was tried: no fence of this call lies below this offset

    def round(self, missing: Sequence[PartitionAssignment], *, tries: int) -> LinkEngineError | None:
        """Try each partition once: find its fence, or write it. Return the last error."""
        failure: LinkEngineError | None = None
        try:
            _finish_begun(self._cluster, missing)
            # the end may move: the fence ends the mirror, and whatever is appended before it is below it
            log_ends = read_log_ends(
                self._cluster, [LogEndQuery(assignment=assignment, clean=False, once=True) for assignment in missing]
            )
        except LinkEngineError as error:
            return error
        for assignment in missing:
            log_end = log_ends[assignment.key]
            try:
                if isinstance(log_end, LinkEngineError):
                    raise log_end
                self._ends[assignment.partition] = self._fenced_end(assignment, log_end, tries=tries)
                self._epochs[assignment.partition] = log_end.leader.epoch
            except LinkEngineError as error:
                failure = error
        return failure

    def _fenced_end(self, assignment: PartitionAssignment, log_end: LogEnd, *, tries: int) -> int:
        end = (
            self._search(assignment, log_end)
            if assignment.partition in self._search_from
            else _last_fence(self._cluster, assignment, log_end)
        )
        if end is None:
            # an unclean leader election may shorten the log
            self._search_from[assignment.partition] = min(self._search_from.get(assignment.partition, log_end.end), log_end.end)
            write_marker(self._cluster, assignment, log_end, generation=self._generation, commit=True, tries=tries)
            end = self._search(assignment, log_end)
        if end is None:
            raise UnreplicatedError(assignment.mirror_topic, assignment.partition)
        return end

    def _search(self, assignment: PartitionAssignment, log_end: LogEnd) -> int | None:
        """Return the offset of this call's first fence, even if other records follow it; None if there is none."""
        end = start = self._search_from[assignment.partition]
        place = (assignment.mirror_topic, log_end.topic_id, assignment.partition)
        with closing(batches_in(self._cluster, log_end.leader, topic=place, offsets=(start, None))) as batches:
            for view, batch in batches:
                if view.producer_id == log_end.producer_id and is_commit(view, batch):
                    return view.base_offset
                end = view.next_offset
        self._search_from[assignment.partition] = end
        return None


def _finish_begun(cluster: Cluster, missing: Sequence[PartitionAssignment]) -> None:
    """Commit a fence that an earlier attempt has begun as a transaction and not ended.

    Its marker is appended to the mirror in any case. If it were aborted, as the next step would do, it would count as
    mirrored. A fence is recognized by its epoch, which the partition's leader has not seen yet; so its marker fences all
    earlier owners.
    """
    for assignment in missing:
        transactions = EmptyTransactions(cluster, assignment.transactional_id)
        begun = (
            transactions.open_producer(topic=assignment.mirror_topic, partition=assignment.partition)
            if assignment.transactional_id
            else None
        )
        if begun is None:
            continue
        log_end = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=True, transactions=begun)])[assignment.key]
        if isinstance(log_end, LogEnd) and begun.epoch > log_end.producer.epoch:
            transactions.commit(begun)


def _last_fence(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd) -> int | None:
    """Return the offset of the fence at the mirror's end, None if the mirror ends with something else.

    A fence is a COMMIT marker of the mirror's producer. If responses were lost there may be several in a row; the first
    counts.
    """
    if log_end.producer.epoch < 0:
        return None
    commit_marker, end = (log_end.producer_id, ControlType.COMMIT), log_end.end
    while last_marker(cluster, assignment, replace(log_end, end=end)) == commit_marker:
        end -= 1
    return end if end < log_end.end else None


def last_marker(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd) -> tuple[int, ControlType] | None:
    """Return (producer id, type) of the marker at a mirror's end, None if it ends with records or is empty."""
    if log_end.end == log_end.start:
        return None
    connection = cluster.open(log_end.leader.broker)
    try:
        place = (assignment.mirror_topic, log_end.topic_id, assignment.partition)
        error, records = read_batches(
            connection, topic=place, leader_epoch=log_end.leader.epoch, offset=log_end.end - 1, max_bytes=FEW_BYTES
        )
    finally:
        connection.close()
    if error:
        raise BrokerError(error, f"The end of mirror {assignment.mirror_topic}-{assignment.partition} cannot be read")
    last = [(position, view) for position, view in iter_batches(records) if view.next_offset == log_end.end]
    if not last:
        raise UnreplicatedError(assignment.mirror_topic, assignment.partition)
    position, view = last[0]
    return (view.producer_id, control_type(view, records[position : position + view.size])) if view.is_control else None


def read_marker_error(response: Any) -> int:
    """Return the error code of the only marker of a WriteTxnMarkers response."""
    code: int = response.markers[0].topics[0].partitions[0].error_code
    return code


def write_marker(
    cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd, *, generation: int, commit: bool, tries: int = 0
) -> None:
    """Append a marker with a higher producer and coordinator epoch than any before it; COMMIT closes the mirror.

    ``tries`` is the number of earlier attempts with the same ``log_end``.
    """
    if log_end.transactions is not None:
        transactions = EmptyTransactions(cluster, assignment.transactional_id)
        transactions.mark(log_end.transactions, topic=assignment.mirror_topic, partition=assignment.partition, commit=commit)
        return
    epoch, coordinator_epoch = epochs_above(log_end.producer, generation=generation, closes=commit, tries=tries)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=assignment.mirror_topic, partition_indexes=[assignment.partition])
    wanted = marker(
        producer_id=assignment.producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )

    def build(_: Connection) -> Any:
        return WriteTxnMarkersRequest(version=MARKERS_VERSION, markers=[wanted])

    error = cluster.call(
        log_end.leader.broker,
        build,
        response=WriteTxnMarkersResponse,
        read=read_marker_error,
        timeout_s=MARKER_TIMEOUT_S,
        repeatable=False,
    )
    if error:
        raise BrokerError(error, f"The marker of mirror {assignment.mirror_topic}-{assignment.partition} was refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fence:
    assignment: PartitionAssignment
    log_end: LogEnd  # as read before the fence was written
    epoch: int
    coordinator_epoch: int


def fence_many(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, generations: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Fence the partitions and return (mirrored end, leader epoch) by key of those that are confirmed.

    The others are left out. The leader epoch is the one under which the fence was read. ``generations`` is by key. Never
    raises for a single partition; raises LinkEngineError if the cluster does not respond at all.
    """
    cluster = Cluster(address)
    try:
        wanted = list(_planned(cluster, assignments, generations))
        for broker, group in _by_broker(wanted).items():
            for first in range(0, len(group), PER_REQUEST):
                _write(cluster, broker, group[first : first + PER_REQUEST])
        return _confirm_patiently(cluster, wanted)
    finally:
        cluster.close()


def _planned(cluster: Cluster, assignments: Sequence[PartitionAssignment], generations: Mapping[str, int]) -> Iterable[_Fence]:
    # the end may move, since unreachable copy workers may still write: a fence counts only if a later reading confirms it
    log_ends = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=True, once=True) for assignment in assignments])
    for assignment in assignments:
        log_end = log_ends[assignment.key]
        if isinstance(log_end, LinkEngineError):
            continue
        epoch, coordinator_epoch = epochs_above(log_end.producer, generation=generations[assignment.key], closes=True)
        yield _Fence(assignment=assignment, log_end=log_end, epoch=epoch, coordinator_epoch=coordinator_epoch)


def _by_broker(fences: Iterable[_Fence]) -> dict[int, list[_Fence]]:
    groups: dict[int, list[_Fence]] = defaultdict(list)
    for fence in fences:
        groups[fence.log_end.leader.broker].append(fence)
    return groups


def _write(cluster: Cluster, broker: int, fences: Sequence[_Fence]) -> None:
    """Send the markers; which of them were written is read from the logs afterwards."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    markers = [
        marker(
            producer_id=fence.assignment.producer_id,
            producer_epoch=fence.epoch,
            transaction_result=True,
            topics=[
                marker.WritableTxnMarkerTopic(
                    name=fence.assignment.mirror_topic, partition_indexes=[fence.assignment.partition]
                )
            ],
            coordinator_epoch=fence.coordinator_epoch,
        )
        for fence in fences
    ]

    def build(_: Connection) -> Any:
        return WriteTxnMarkersRequest(version=MARKERS_VERSION, markers=markers)

    with suppress(LinkEngineError):
        cluster.call(
            broker,
            build,
            response=WriteTxnMarkersResponse,
            read=lambda _: None,
            timeout_s=MARKER_TIMEOUT_S,
            repeatable=False,
        )


def _confirm_patiently(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    """Read up to READINGS times: followers replicate the markers a little later than the leader appends them."""
    confirmed: dict[str, tuple[int, int]] = {}
    for _ in range(READINGS):
        unconfirmed = [fence for fence in fences if fence.assignment.key not in confirmed]
        if not unconfirmed:
            break
        confirmed |= _confirmed(cluster, unconfirmed)
        if len(confirmed) < len(fences):
            time.sleep(PAUSE_S)
    return confirmed


def _confirmed(cluster: Cluster, fences: Sequence[_Fence]) -> dict[str, tuple[int, int]]:
    log_ends = read_log_ends(cluster, [LogEndQuery(assignment=fence.assignment, clean=True, once=True) for fence in fences])
    confirmed: dict[str, tuple[int, int]] = {}
    for broker, group in _by_broker(fences).items():
        places = {(fence.assignment.mirror_topic, fence.assignment.partition): fence for fence in group}
        visible = list_offsets(cluster, broker, places, timestamp=LATEST)
        for place, fence in places.items():
            (error, high_watermark), after = visible.get(place, (1, 0)), log_ends[fence.assignment.key]
            if not error and isinstance(after, LogEnd) and _is_confirmed(fence, after, high_watermark):
                confirmed[fence.assignment.key] = fence.log_end.end, after.leader.epoch
    return confirmed


def _is_confirmed(fence: _Fence, after: LogEnd, high_watermark: int) -> bool:
    remembered = (after.producer.epoch, after.producer.coordinator_epoch) == (fence.epoch, fence.coordinator_epoch)
    return remembered and after.end == fence.log_end.end + 1 and high_watermark >= after.end

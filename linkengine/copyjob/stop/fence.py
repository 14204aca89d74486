"""Fences mirror partitions for promote and failover, so that stale copy workers can no longer write. Blocking.

The fence is a marker with a higher producer epoch and a higher coordinator epoch. From then on brokers refuse data (error
47, INVALID_PRODUCER_EPOCH) and markers (47, and 52, TRANSACTION_COORDINATOR_FENCED) of every earlier owner. The fence is the
only marker that commits:

| marker | written as |
|---|---|
| filler of a gap | ABORT |
| takeover marker of a topic that becomes a mirror (``takeover``) | ABORT |
| fence of a stop | COMMIT |

So a fence can be recognized if its response was lost or its caller crashed. A later call recognizes it only while it is the
last batch of the log; producers are admitted only after the ends were recorded. The call that wrote it finds it below later
batches as well, because at a destination without an authorizer other producers may write at any time. If gaps are filled by
transactions, the fence is an empty transaction that commits, and the transaction coordinator refuses the earlier owners.

``fence_partitions`` is the only way to fence. It takes any number of partitions, of any number of mirrors, and works in rounds.
Steps 1, 3 and 4 send a few requests per broker for all of them:

1. Read log end and epochs.
2. A log whose last marker has an odd coordinator epoch may already end with a fence. In this case, and always if transactions
   fill gaps, the last batches of the log are read.
3. Append the markers.
4. Read log end and epochs again. A marker counts as the fence if the leader, in the same leader epoch, has a log that is longer
   by exactly this marker, remembers its epochs and has replicated it.
5. If that does not hold, search the log from the end that was read in step 1 for a fence. If there is none, begin again.

Steps 2 and 5 read logs partition by partition, and rounds are repeated for up to a minute. So that a mirror does not wait for
another mirror's partitions, a call for several mirrors is not ``patient``: it has seconds instead of a minute, skips steps 2
and 5, and writes at most one marker per partition. A patient call for each mirror fences the partitions that remain.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.batches.records import ControlType, control_type, is_commit
from linkengine.batches.view import iter_batches
from linkengine.copyjob.producer_state import epochs_above, is_fence
from linkengine.copyjob.resume.log_end import batches_in, read_log_ends
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment, TopicPartition
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import LATEST, list_offsets
from linkengine.kafka.protocol import BrokerError, KafkaCode, UnreplicatedError
from linkengine.kafka.requests import MARKERS_VERSION
from linkengine.kafka.single_reads import FEW_BYTES, read_batches
from linkengine.kafka.transactions import EmptyTransactions

PATIENCE_S = 60.0  # to wait for leaders, and for followers to replicate the marker; then the caller retries
SHORT_PATIENCE_S = 2.0  # the same for several mirrors: what takes longer is fenced mirror by mirror
PER_MARKER_S = 0.005  # added to the short patience, for each marker that is sent at the same time
PAUSE_S = 0.2
MARKER_TIMEOUT_S = 30.0
PER_ROUND = 1_000  # partitions; their mirrors are opened before the next are fenced
PER_REQUEST = 500
MOST_REQUESTS = 32  # at the same time
_FINAL = frozenset({ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The fence of a partition: its offset, and the leader epoch in which it was read.

    The log ended at this offset before. The mirrored end is the same, or lower, as after a foreign write (``takeover``).
    """

    end: int
    epoch: int


FenceOrError = Fence | LinkEngineError


def fence_partitions(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, generations: Mapping[str, int], patient: bool = True
) -> Generator[dict[str, FenceOrError]]:
    """Fence partitions of a cluster and yield, by key, each fence as soon as it is confirmed.

    ``generations`` is by key; each is higher than that of every copy worker. A partition that is not fenced within PATIENCE_S
    (``patient``) or SHORT_PATIENCE_S, or that the cluster refuses to fence, is yielded with its error; that neither fails nor
    delays the others. Many partitions are fenced PER_ROUND at a time; each is tried at least once, however long others took.
    Safe to repeat until producers are admitted, for partitions whose fence was not recorded.
    """
    missing = {assignment.key: assignment for assignment in assignments}
    with closing(Cluster(address)) as cluster:
        fencing = _Fencing(cluster, generations=generations, patient=patient)
        deadline = time.monotonic() + (PATIENCE_S if patient else SHORT_PATIENCE_S)
        while missing:
            left = list(missing.values())
            for first in range(0, len(left), PER_ROUND):
                found = fencing.run_round(left[first : first + PER_ROUND])
                is_over = time.monotonic() > deadline
                final = {
                    key: result
                    for key, result in found.items()
                    if is_over or isinstance(result, Fence) or result.code in _FINAL
                }
                for key in final:
                    del missing[key]
                if final:
                    yield final
            if missing:
                time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """A marker that fences, or takes over, a partition whose log end was read before."""

    assignment: PartitionAssignment
    log_end: LogEnd
    epoch: int
    coordinator_epoch: int
    commit: bool

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return self.assignment.mirror_topic, self.assignment.partition


class _Fencing:
    """A call's state by partition: its last marker, and the offset from which its fence is searched for."""

    def __init__(self, cluster: Cluster, *, generations: Mapping[str, int], patient: bool) -> None:
        self._cluster, self._generations, self._patient = cluster, generations, patient
        self._search_from: dict[str, int] = {}  # by key, once tried: no fence of this call is below this offset
        self._markers: dict[str, _Marker] = {}  # the last marker by key
        # A call for several mirrors may have sent a marker that is appended late. A patient call may follow such a call, so its
        # epochs are above that marker's.
        self._tries: dict[str, int] = defaultdict(lambda: 1 if patient else 0)

    def run_round(self, missing: Sequence[PartitionAssignment]) -> dict[str, FenceOrError]:
        """Try each partition once: find its fence, or write it. Return the fence or the error of each by key."""
        results: dict[str, FenceOrError] = dict(_commit_open_fences(self._cluster, missing))
        results |= self._find_or_write([assignment for assignment in missing if assignment.key not in results])
        return results

    def _find_or_write(self, assignments: Sequence[PartitionAssignment]) -> dict[str, FenceOrError]:
        by_key = {assignment.key: assignment for assignment in assignments}
        log_ends = self._log_ends(assignments)
        results = self._found(by_key, log_ends)
        unfenced = {key: end for key, end in log_ends.items() if key not in results and isinstance(end, LogEnd)}
        refusals = self._write(by_key, unfenced)
        after = self._log_ends([by_key[key] for key in unfenced if not by_key[key].transactional_id])
        # Not read again if transactions fill gaps: reading initializes the producer, which would abort a fence's transaction
        # that is still open. The next round commits it (``_commit_open_fences``).
        after |= {key: log_end for key, log_end in unfenced.items() if by_key[key].transactional_id}
        found = self._found(by_key, after)
        for key in unfenced:
            unseen = UnreplicatedError(by_key[key].mirror_topic, by_key[key].partition)
            result = found.get(key, unseen)
            results[key] = result if isinstance(result, Fence) else refusals.get(key, result)
            self._tries[key] += 1
        return results

    def _log_ends(self, assignments: Sequence[PartitionAssignment]) -> dict[str, LogEnd | LinkEngineError]:
        """Return log ends by key.

        A single reading is enough (``LogEndQuery.once``): whatever is appended before the fence stays below it.
        """
        if not assignments:
            return {}
        queries = [LogEndQuery(assignment=assignment, clean=False, once=True) for assignment in assignments]
        try:
            return read_log_ends(self._cluster, queries)
        except LinkEngineError as error:
            return {assignment.key: error for assignment in assignments}

    def _found(
        self, assignments: Mapping[str, PartitionAssignment], log_ends: Mapping[str, LogEnd | LinkEngineError]
    ) -> dict[str, FenceOrError]:
        """Return the fences found, and the errors of partitions that cannot be fenced now. All others need a marker."""
        readable = {key: end for key, end in log_ends.items() if isinstance(end, LogEnd)}
        results: dict[str, FenceOrError] = {key: error for key, error in log_ends.items() if isinstance(error, LinkEngineError)}
        results |= self._confirmed(readable)
        for key, log_end in readable.items():
            if key in results:
                continue
            try:
                end = self._search(assignments[key], log_end)
            except LinkEngineError as error:
                results[key] = error
            else:
                if end is not None:
                    results[key] = Fence(end=end, epoch=log_end.leader.epoch)
        return results

    def _confirmed(self, log_ends: Mapping[str, LogEnd]) -> dict[str, FenceOrError]:
        """Return the fences of this call that log ends and high watermarks confirm.

        Sends nothing to a broker that no longer leads: it may be frozen, and the log is searched in any case.
        """
        known = ((self._markers[key], after) for key, after in log_ends.items() if key in self._markers)
        written = [marker for marker, after in known if after.leader == marker.log_end.leader]
        confirmed: dict[str, FenceOrError] = {}
        for broker, markers in _by_broker(written).items():
            try:
                visible = list_offsets(self._cluster, broker, [marker.place for marker in markers], timestamp=LATEST)
            except LinkEngineError:  # the leader may have moved: the log is searched
                continue
            for marker in markers:
                (error, high_watermark), after = visible.get(marker.place, (1, 0)), log_ends[marker.assignment.key]
                # the log up to the marker was searched
                no_earlier_fence = self._search_from[marker.assignment.key] == marker.log_end.end
                if not error and no_earlier_fence and _is_confirmed(marker, after, high_watermark):
                    confirmed[marker.assignment.key] = Fence(end=marker.log_end.end, epoch=after.leader.epoch)
        return confirmed

    def _search(self, assignment: PartitionAssignment, log_end: LogEnd) -> int | None:
        """Return the offset of the fence, None if a marker has to be written.

        Raises UnreplicatedError if the log has to be read and the call is not patient.
        """
        tried = assignment.key in self._search_from
        if not tried and not _may_end_with_fence(log_end):
            return None
        if not self._patient:
            raise UnreplicatedError(assignment.mirror_topic, assignment.partition)
        return self._first_fence(assignment, log_end) if tried else _last_fence(self._cluster, assignment, log_end)

    def _first_fence(self, assignment: PartitionAssignment, log_end: LogEnd) -> int | None:
        """Return the offset of this call's first fence, even if other records follow it; None if there is none."""
        end = start = self._search_from[assignment.key]
        place = (assignment.mirror_topic, log_end.topic_id, assignment.partition)
        with closing(batches_in(self._cluster, log_end.leader, topic=place, offsets=(start, None))) as batches:
            for view, batch in batches:
                if view.producer_id == log_end.producer_id and is_commit(view, batch):
                    return view.base_offset
                end = view.next_offset
        self._search_from[assignment.key] = end
        return None

    def _write(
        self, assignments: Mapping[str, PartitionAssignment], log_ends: Mapping[str, LogEnd]
    ) -> dict[str, LinkEngineError]:
        """Write a marker to each partition; return errors by key. The logs show afterwards which were written."""
        refusals: dict[str, LinkEngineError] = {}
        markers: list[_Marker] = []
        for key, log_end in log_ends.items():
            # an unclean leader election may shorten the log
            self._search_from[key] = min(self._search_from.get(key, log_end.end), log_end.end)
            generation, tries = self._generations[key], self._tries[key]
            if log_end.transactions is None:
                marker = _marker(assignments[key], log_end, generation=generation, commit=True, tries=tries)
                markers.append(marker)
                self._markers[key] = marker
                continue
            try:
                write_marker(self._cluster, assignments[key], log_end, generation=generation, commit=True)
            except LinkEngineError as error:
                refusals[key] = error
        timeout_s = MARKER_TIMEOUT_S if self._patient else SHORT_PATIENCE_S + PER_MARKER_S * len(markers)
        return refusals | _send_markers(self._cluster, markers, timeout_s=timeout_s)


def _may_end_with_fence(log_end: LogEnd) -> bool:
    """Return True if the last coordinator epoch is odd, or if transactions fill the gaps (then epochs do not show a fence)."""
    return log_end.transactions is not None or is_fence(log_end.producer.coordinator_epoch)


def _is_confirmed(marker: _Marker, after: LogEnd, high_watermark: int) -> bool:
    """Return whether the log is longer by exactly this marker. No leader has shortened it since: that would be a new epoch."""
    remembered = (after.producer.epoch, after.producer.coordinator_epoch) == (marker.epoch, marker.coordinator_epoch)
    longer_by_marker = after.leader == marker.log_end.leader and after.end == marker.log_end.end + 1
    return remembered and longer_by_marker and high_watermark >= after.end


def _commit_open_fences(cluster: Cluster, missing: Sequence[PartitionAssignment]) -> dict[str, LinkEngineError]:
    """Commit fences that an earlier attempt has begun as transactions and not ended; return errors by key.

    An open fence transaction must be committed: the next InitProducerId would abort it, and its ABORT marker would count as a
    mirrored offset. A fence's transaction is recognized by its producer epoch, which is higher than the epoch that the
    partition's leader has; so its COMMIT marker fences all earlier owners.
    """
    errors: dict[str, LinkEngineError] = {}
    for assignment in missing:
        try:
            if assignment.transactional_id:
                _commit_open_fence(cluster, assignment)
        except LinkEngineError as error:
            errors[assignment.key] = error
    return errors


def _commit_open_fence(cluster: Cluster, assignment: PartitionAssignment) -> None:
    transactions = EmptyTransactions(cluster, assignment.transactional_id)
    begun = transactions.open_producer(topic=assignment.mirror_topic, partition=assignment.partition)
    if begun is None:
        return
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


def write_marker(
    cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd, *, generation: int, commit: bool, tries: int = 0
) -> None:
    """Append a marker with a higher producer and coordinator epoch than any before it; a COMMIT marker is a fence.

    ``tries`` is the number of earlier attempts with the same ``log_end``.
    """
    if log_end.transactions is not None:
        transactions = EmptyTransactions(cluster, assignment.transactional_id)
        transactions.write_marker(
            log_end.transactions, topic=assignment.mirror_topic, partition=assignment.partition, commit=commit
        )
        return
    marker = _marker(assignment, log_end, generation=generation, commit=commit, tries=tries)
    for refusal in _send_markers(cluster, [marker], timeout_s=MARKER_TIMEOUT_S).values():
        raise refusal


def _marker(assignment: PartitionAssignment, log_end: LogEnd, *, generation: int, commit: bool, tries: int) -> _Marker:
    epoch, coordinator_epoch = epochs_above(log_end.producer, generation=generation, fence=commit, tries=tries)
    return _Marker(assignment=assignment, log_end=log_end, epoch=epoch, coordinator_epoch=coordinator_epoch, commit=commit)


def _by_broker(markers: Iterable[_Marker]) -> dict[int, list[_Marker]]:
    groups: dict[int, list[_Marker]] = defaultdict(list)
    for marker in markers:
        groups[marker.log_end.leader.broker].append(marker)
    return groups


def _send_markers(cluster: Cluster, markers: Sequence[_Marker], *, timeout_s: float) -> dict[str, LinkEngineError]:
    """Send the markers to their leaders, all requests at the same time; return errors by key.

    A broker responds once all markers of a request are replicated. After an error other than a refusal, a marker may have been
    written or be written late.
    """
    requests = [
        (broker, group[first : first + PER_REQUEST])
        for broker, group in _by_broker(markers).items()
        for first in range(0, len(group), PER_REQUEST)
    ]
    if not requests:
        return {}
    with ThreadPoolExecutor(min(len(requests), MOST_REQUESTS), thread_name_prefix="send-markers") as threads:
        sent = threads.map(lambda request: _send_to(cluster, *request, timeout_s=timeout_s), requests)
        return {key: error for errors in sent for key, error in errors.items()}


def _send_to(cluster: Cluster, broker: int, markers: Sequence[_Marker], *, timeout_s: float) -> dict[str, LinkEngineError]:
    def build(_: Connection) -> Any:
        return WriteTxnMarkersRequest(version=MARKERS_VERSION, markers=[_wire(marker) for marker in markers])

    try:
        codes = cluster.call(
            broker,
            build,
            response=WriteTxnMarkersResponse,
            read=_read_marker_errors,
            timeout_s=timeout_s,
            repeatable=False,
        )
    except LinkEngineError as error:
        return {marker.assignment.key: error for marker in markers}
    errors: dict[str, LinkEngineError] = {}
    for marker in markers:
        code = codes.get(marker.place, KafkaCode.REQUEST_TIMED_OUT)
        if code:
            what = f"The marker of mirror {marker.place[0]}-{marker.place[1]} was refused"
            errors[marker.assignment.key] = BrokerError(code, what)
    return errors


def _wire(marker: _Marker) -> Any:
    message = WriteTxnMarkersRequest.WritableTxnMarker
    topic, partition = marker.place
    return message(
        producer_id=marker.assignment.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.commit,
        topics=[message.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=marker.coordinator_epoch,
    )


def _read_marker_errors(response: Any) -> dict[TopicPartition, int]:
    """Return the error code of each marker by topic and partition."""
    return {
        (topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }

"""Shuts every late writer of ours out of mirror partitions, for promote and failover, and tells where the mirrors ended.

The fence is one marker per partition with a higher producer epoch and a higher coordinator epoch: brokers refuse data (47) and
markers (47, 52) of every earlier owner from then on. Fills are ABORT markers and the fence is a COMMIT marker, so a fence that
was written before (the answer was lost, the caller crashed) is recognised as long as it is the last batch; producers are let in
only after the ends were recorded. Within one call it is recognised wherever it stands: where nobody can be kept out, others may
write on all the time. Where transactions fill gaps, an empty one that commits is the fence, and its coordinator refuses what
an earlier owner still wants to do. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any

from kafka.protocol.producer import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from linkengine.batches.control import ControlType, control_type, is_commit
from linkengine.batches.view import iter_batches
from linkengine.copyjob.foreign import batches_in
from linkengine.copyjob.tails import Tail, TailQuery, read_tails
from linkengine.copyjob.writer import epochs_above
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, UnreplicatedError
from linkengine.kafka.connection import Connection
from linkengine.kafka.markers import VERSION
from linkengine.kafka.reading import FEW_BYTES, read_batches
from linkengine.kafka.transactions import EmptyTransactions

PATIENCE_S = 60.0  # for leaders to be there and for followers to take the marker; then the caller retries
PAUSE_S = 0.2
MARKER_TIMEOUT_S = 30.0


def fence_partitions(
    address: ClusterAddress,
    assignments: Sequence[PartitionAssignment],
    *,
    generation: int,
    already_fenced_ends: dict[int, int] | None = None,
    epochs: dict[int, int] | None = None,
) -> dict[int, int]:
    """Fence the partitions and answer, by partition, the mirrored end: the offset after the last mirrored one.

    Safe to repeat until producers are let in; pass ``already_fenced_ends`` where ends were recorded, they are answered as they
    are. Raises LinkEngineError when a partition cannot be fenced within PATIENCE_S; those that could stay fenced, and their
    ends are in ``already_fenced_ends`` by then. ``epochs`` is given the leader epochs under which this call saw its fences.
    """
    ends = {} if already_fenced_ends is None else already_fenced_ends
    cluster = Cluster(address)
    fencing = _Fencing(cluster, generation=generation, ends=ends, epochs={} if epochs is None else epochs)
    deadline = time.monotonic() + PATIENCE_S
    try:
        for tries in count(1):  # ``fencemany`` may have tried once
            missing = [one for one in assignments if one.partition not in ends]
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
    """The fences of one call, and from where on each is looked for."""

    def __init__(self, cluster: Cluster, *, generation: int, ends: dict[int, int], epochs: dict[int, int]) -> None:
        """``ends`` and ``epochs`` are added to."""
        self._cluster, self._generation, self._ends, self._epochs = cluster, generation, ends, epochs
        self._from: dict[int, int] = {}  # by partition that was tried: no fence of this call stands below

    def round(self, missing: Sequence[PartitionAssignment], *, tries: int) -> LinkEngineError | None:
        """Take each partition one step further: recognise its fence, or write it. Answer the last error."""
        failure: LinkEngineError | None = None
        try:
            _finish_begun(self._cluster, missing)
            # one reading: it is the fence that ends the mirror, and what comes before it meanwhile is below it
            tails = read_tails(self._cluster, [TailQuery(assignment=one, clean=False, once=True) for one in missing])
        except LinkEngineError as error:
            return error
        for one in missing:
            tail = tails[one.key]
            try:
                if isinstance(tail, LinkEngineError):
                    raise tail
                self._ends[one.partition] = self._fenced_end(one, tail, tries=tries)
                self._epochs[one.partition] = tail.leader.epoch
            except LinkEngineError as error:
                failure = error
        return failure

    def _fenced_end(self, one: PartitionAssignment, tail: Tail, *, tries: int) -> int:
        end = self._search(one, tail) if one.partition in self._from else _last_fence(self._cluster, one, tail)
        if end is None:
            self._from[one.partition] = min(self._from.get(one.partition, tail.end), tail.end)  # leaders may lose their end
            write_marker(self._cluster, one, tail, generation=self._generation, commit=True, tries=tries)
            end = self._search(one, tail)
        if end is None:
            raise UnreplicatedError(one.mirror_topic, one.partition)
        return end

    def _search(self, one: PartitionAssignment, tail: Tail) -> int | None:
        """Answer where the first fence since our first try stands, whatever was written behind it meanwhile."""
        end = start = self._from[one.partition]
        place = (one.mirror_topic, tail.topic_id, one.partition)
        with closing(batches_in(self._cluster, tail.leader, topic=place, offsets=(start, None))) as batches:
            for view, batch in batches:
                if view.producer_id == tail.producer_id and is_commit(view, batch):
                    return view.base_offset
                end = view.next_offset
        self._from[one.partition] = end
        return None


def _finish_begun(cluster: Cluster, missing: Sequence[PartitionAssignment]) -> None:
    """Where transactions fill gaps: commit a fence that an earlier attempt has begun and not ended.

    Its marker comes to the end of the mirror in any case. Aborted, as the next step would do, it counts as mirrored.
    A fence is known by its epoch, which the partition's leader has not seen yet; so its marker shuts everybody else out.
    """
    for one in missing:
        transactions = EmptyTransactions(cluster, one.transactional_id)
        begun = transactions.open_in(topic=one.mirror_topic, partition=one.partition) if one.transactional_id else None
        if begun is None:
            continue
        tail = read_tails(cluster, [TailQuery(assignment=one, clean=True, transactions=begun)])[one.key]
        if isinstance(tail, Tail) and begun.epoch > tail.producer.epoch:
            transactions.commit(begun)


def _last_fence(cluster: Cluster, one: PartitionAssignment, tail: Tail) -> int | None:
    """Answer where the fence begins that a mirror ends with, None where it ends with something else.

    A fence is a COMMIT marker of our producer. Where answers were lost there may be more than one in a row.
    """
    if tail.producer.epoch < 0:
        return None
    fence, end = (tail.producer_id, ControlType.COMMIT), tail.end
    while last_marker(cluster, one, replace(tail, end=end)) == fence:
        end -= 1
    return end if end < tail.end else None


def last_marker(cluster: Cluster, one: PartitionAssignment, tail: Tail) -> tuple[int, ControlType] | None:
    """Answer (producer id, type) of the marker a mirror ends with, None where it ends with records or is empty."""
    if tail.end == tail.start:
        return None
    connection = cluster.open(tail.leader.broker)
    try:
        place = (one.mirror_topic, tail.topic_id, one.partition)
        error, records = read_batches(
            connection, topic=place, leader_epoch=tail.leader.epoch, offset=tail.end - 1, max_bytes=FEW_BYTES
        )
    finally:
        connection.close()
    if error:
        raise BrokerError(error, f"The end of mirror {one.mirror_topic}-{one.partition} cannot be read")
    found = [(at, view) for at, view in iter_batches(records) if view.next_offset == tail.end]
    if not found:
        raise UnreplicatedError(one.mirror_topic, one.partition)
    at, view = found[0]
    return (view.producer_id, control_type(view, records[at : at + view.size])) if view.is_control else None


def read_marker_error(answer: Any) -> int:
    """Return the error of the one marker of a WriteTxnMarkers response."""
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


def write_marker(
    cluster: Cluster, one: PartitionAssignment, tail: Tail, *, generation: int, commit: bool, tries: int = 0
) -> None:
    """Append one marker with a higher epoch and coordinator epoch than any before it; a COMMIT closes the mirror.

    ``tries`` is how often this was tried before with the same ``tail``.
    """
    if tail.transactions is not None:
        transactions = EmptyTransactions(cluster, one.transactional_id)
        transactions.mark(tail.transactions, topic=one.mirror_topic, partition=one.partition, commit=commit)
        return
    epoch, coordinator_epoch = epochs_above(tail.producer, generation=generation, closes=commit, tries=tries)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name=one.mirror_topic, partition_indexes=[one.partition])
    wanted = marker(
        producer_id=one.producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
    )

    def build(_: Connection) -> Any:
        return WriteTxnMarkersRequest(version=VERSION, markers=[wanted])

    error = cluster.call(
        tail.leader.broker,
        build,
        response=WriteTxnMarkersResponse,
        read=read_marker_error,
        timeout_s=MARKER_TIMEOUT_S,
        repeatable=False,
    )
    if error:
        raise BrokerError(error, f"Mirror {one.mirror_topic}-{one.partition} cannot be marked")

"""Reads where mirror partitions end and what the leader remembers of their writer. Blocking; runs beside the loop.

Resuming after any error (the log end is the checkpoint):

0. where gaps are filled by transactions: see that none is under way (``kafka.transactions``);
1. ask all brokers for the leader, take the newest leader epoch;
2. read the log end with OffsetForLeaderEpoch of that epoch (the leader refuses if it knows a newer one);
3. read the producer's epoch and last sequence with DescribeProducers;
4. repeat 2 and 3 until two readings agree, unless the hand-over was clean (``readings.py``); where none do, look whose it is;
5. where the log is longer than anything we sent, look whose batches these are; where it begins behind that, they were not ours;
6. where nobody told us where the log ended, or it does not end there, read its last stretch for a proof (``proving.py``);
7. where something came whose answer was lost, or an error, wait until it is replicated: only then is it mirrored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from linkengine.copyjob.doubts import Doubt
from linkengine.copyjob.foreign import batches_in, first_foreign_batch, foreign_write, marker_overrun
from linkengine.copyjob.pieces import Overtaken
from linkengine.copyjob.proving import Stretch, read_stretch
from linkengine.copyjob.readings import agreed_readings
from linkengine.copyjob.whereabouts import locate_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import is_closed
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, UnreplicatedError
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, TopicPartition, list_offsets
from linkengine.kafka.producers import ProducerState
from linkengine.kafka.topicviews import Leader
from linkengine.kafka.transactions import EmptyTransactions, TransactionalProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMarker:
    """A WriteTxnMarkers whose answer was lost: its broker may still write it, until ``until``, as long as it leads.

    Under whatever epoch: the request names none, and a leader may be elected again.
    """

    broker: int
    until: float  # monotonic seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TailQuery:
    """What to read."""

    assignment: PartitionAssignment
    clean: bool  # nothing of anybody can be on its way: one reading is enough
    once: bool = False  # one reading is enough, although somebody may go on writing: who asks looks at what came
    lost_marker: LostMarker | None = None
    transactions: TransactionalProducer | None = None  # this hold's, with nothing of it under way
    expected_end: int | None = None  # the end of everything this owner or its clean predecessor sent; None: not known
    left_end: int | None = None  # the same, also where the source has another leader since
    doubt: Doubt | None = None  # what this owner sent and never heard of
    prove: bool = False  # the end is to be compared with the source, wherever it is
    overtaken: Overtaken | None = None  # offsets at which something stands that this owner did not put there


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a mirror partition and its writer's state, as two readings of the leader agree."""

    leader: Leader
    topic_id: bytes
    start: int
    end: int
    producer: ProducerState
    producer_id: int
    transactions: TransactionalProducer | None = None
    stretch: Stretch | None = None  # its last records, where they have to be compared with the source


class StillWaitingError(LinkEngineError):
    """A lost marker may still be written; ask again."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.TIMEOUT_ERROR, "The answer to a gap fill was lost; waiting until it can no longer be written late."
        )


def read_tails(cluster: Cluster, queries: Sequence[TailQuery]) -> dict[str, Tail | LinkEngineError]:
    """Answer, by key, the tail or why it cannot be told. Costs a few requests per broker, however many partitions."""
    survey = cluster.survey({query.assignment.mirror_topic for query in queries})
    results: dict[str, Tail | LinkEngineError] = {}
    by_leader: dict[int, list[tuple[TailQuery, Leader, bytes]]] = {}
    for query in queries:
        try:
            leader, topic_id = locate_mirror(query.assignment, survey)
            _check_waited(query, leader)
            query = _settled(cluster, query)  # noqa: PLW2901 - before any end is read: it may append
        except LinkEngineError as error:
            results[query.assignment.key] = error
        else:
            by_leader.setdefault(leader.broker, []).append((query, leader, topic_id))
    for broker, group in by_leader.items():
        results |= _read_group(cluster, broker, group)
    return results


def _settled(cluster: Cluster, query: TailQuery) -> TailQuery:
    """Where transactions fill gaps: make sure that none is under way, not even one of an owner that died."""
    if not query.assignment.transactional_id or query.transactions is not None:
        return query
    transactions = EmptyTransactions(cluster, query.assignment.transactional_id)
    found = transactions.look() if query.clean and query.lost_marker is None else None
    return replace(query, transactions=found or transactions.settle())


def _producer_id(query: TailQuery) -> int:
    return query.assignment.producer_id if query.transactions is None else query.transactions.producer_id


def _check_waited(query: TailQuery, leader: Leader) -> None:
    lost = query.lost_marker
    if lost and leader.broker == lost.broker and time.monotonic() < lost.until:
        raise StillWaitingError


def _read_group(
    cluster: Cluster, broker: int, group: Sequence[tuple[TailQuery, Leader, bytes]]
) -> dict[str, Tail | LinkEngineError]:
    epochs = {_place(query): leader.epoch for query, leader, _ in group}
    producer_ids = {_place(query): _producer_id(query) for query, _, _ in group}
    try:
        starts = list_offsets(cluster, broker, epochs, timestamp=EARLIEST)
        readings = agreed_readings(
            cluster, broker, epochs, producer_ids, once=all(query.clean or query.once for query, _, _ in group)
        )
    except LinkEngineError as error:
        return {query.assignment.key: error for query, _, _ in group}
    results: dict[str, Tail | LinkEngineError] = {}
    for query, leader, topic_id in group:
        reading = readings[_place(query)]
        if isinstance(reading, LinkEngineError):
            results[query.assignment.key] = reading
            continue
        start_error, start = starts.get(_place(query), (0, 0))
        tail = Tail(
            leader=leader,
            topic_id=topic_id,
            start=0 if start_error else start,
            end=reading.end,
            producer=reading.producer,
            producer_id=_producer_id(query),
            transactions=query.transactions,
        )
        came = reading.came
        results[query.assignment.key] = _unsettled(cluster, query, tail, came) if came else _checked(cluster, query, tail)
    return results | _with_stretches(cluster, broker, [query for query, _, _ in group], results)


def _checked(cluster: Cluster, query: TailQuery, tail: Tail) -> Tail | LinkEngineError:
    expected, assignment, left_end = _vouched_end(query, tail), query.assignment, query.left_end
    if left_end is not None and left_end < tail.start and not _is_stopped(query, tail):
        return foreign_write(assignment, left_end)  # what stood there is gone, and was none of ours
    claim = query.overtaken
    start, end = (expected, tail.end) if claim is None else (claim.start, min(claim.end, tail.end))
    offsets = (tail.end if start is None else max(start, tail.start), end)
    if offsets[0] >= offsets[1]:
        return tail
    found = _foreign_write_in(cluster, query, tail, offsets)
    if found is not None or claim is None:
        return found or tail
    try:
        return tail if _is_refuted(cluster, query, tail, claim) else marker_overrun(assignment, offsets[1] - 1)
    except LinkEngineError as error:
        return error


def _is_refuted(cluster: Cluster, query: TailQuery, tail: Tail, claim: Overtaken) -> bool:
    """Return whether the log contradicts the response: it ends before, or a data batch of ours begins where it should."""
    if tail.end <= claim.own_end:
        return True
    topic = (query.assignment.mirror_topic, tail.topic_id, query.assignment.partition)
    with closing(batches_in(cluster, tail.leader, topic=topic, offsets=(claim.own_end, claim.own_end + 1))) as batches:
        return any(
            view.base_offset == claim.own_end and view.producer_id == tail.producer_id and not view.is_control
            for view, _ in batches
        )


def _unsettled(cluster: Cluster, query: TailQuery, tail: Tail, came: tuple[int, int]) -> Tail | LinkEngineError:
    """Answer what to make of an end that never stands still: only who copies takes others' batches for foreign."""
    copies = query.prove or query.expected_end is not None
    if copies and _is_stopped(query, tail):
        return tail
    found = _foreign_write_in(cluster, query, tail, came) if copies and came[0] < came[1] else None
    return found or _changing(query)


def _is_stopped(query: TailQuery, tail: Tail) -> bool:
    """Whether the mirror belongs to those who write to it now; who resumes is told by the same epoch (``writer.py``)."""
    return query.transactions is None and is_closed(tail.producer.coordinator_epoch)


def _foreign_write_in(cluster: Cluster, query: TailQuery, tail: Tail, offsets: tuple[int, int]) -> LinkEngineError | None:
    """Answer why to stop or to ask again, None where all batches there are ours."""
    assignment = query.assignment
    topic = (assignment.mirror_topic, tail.topic_id, assignment.partition)
    ours = {tail.producer_id} | ({query.doubt.producer_id} if query.doubt else set())
    try:
        foreign = first_foreign_batch(cluster, tail.leader, topic=topic, offsets=offsets, ours=ours)
    except LinkEngineError as error:
        return error
    return None if foreign is None else foreign_write(assignment, foreign)


def _with_stretches(
    cluster: Cluster, broker: int, queries: Sequence[TailQuery], results: Mapping[str, Tail | LinkEngineError]
) -> dict[str, Tail | LinkEngineError]:
    """Answer those tails again that need a proof, each with its last stretch, and those that may not be replicated yet.

    One connection for all of them.
    """
    tails = [(query, tail) for query in queries if isinstance(tail := results[query.assignment.key], Tail)]
    tails = [(query, tail) for query, tail in tails if _needs_proof(query, tail) or _came_unheard(query, tail)]
    if not tails:
        return {}
    found: dict[str, Tail | LinkEngineError] = {}
    try:
        visible = list_offsets(cluster, broker, [_place(query) for query, _ in tails], timestamp=LATEST)
        connection = cluster.open(broker)
    except LinkEngineError as failure:
        return {query.assignment.key: failure for query, _ in tails}
    try:
        for query, tail in tails:
            found[query.assignment.key] = _with_stretch(
                query, tail, cluster=cluster, connection=connection, visible=visible.get(_place(query), (3, -1))
            )
    finally:
        connection.close()
    return found


def _vouched_end(query: TailQuery, tail: Tail) -> int | None:
    doubt, sent_end = query.doubt, query.expected_end
    return doubt.vouched_end(tail.end, sent_end=sent_end, producer=tail.producer) if doubt else sent_end


def _needs_proof(query: TailQuery, tail: Tail) -> bool:
    expected = _vouched_end(query, tail)
    known = query.doubt.offset if query.doubt else query.expected_end  # all below was acknowledged
    moved = (expected is not None and tail.end > expected) or (known is not None and tail.end < known)
    return (query.prove or moved) and tail.end > tail.start


def _came_unheard(query: TailQuery, tail: Tail) -> bool:
    """Whether something was appended whose answer was an error, or lost: nobody has said that followers have it."""
    return query.doubt is not None and tail.end > query.doubt.offset


def _with_stretch(
    query: TailQuery, tail: Tail, *, cluster: Cluster, connection: Connection, visible: tuple[int, int]
) -> Tail | LinkEngineError:
    (name, partition), (error, high_watermark) = _place(query), visible
    if error:
        return BrokerError(error, f"The end of mirror {name}-{partition} cannot be seen")
    if high_watermark < tail.end:
        return UnreplicatedError(name, partition)
    if not _needs_proof(query, tail):
        return tail
    try:
        stretch = read_stretch(
            connection,
            topic=(name, tail.topic_id, partition),
            leader_epoch=tail.leader.epoch,
            bounds=(tail.start, tail.end),
            producer_id=tail.producer_id,
            local_start=lambda: _local_start(cluster, query, tail),
        )
    except LinkEngineError as failure:
        return failure
    return replace(tail, stretch=stretch)


def _local_start(cluster: Cluster, query: TailQuery, tail: Tail) -> int:
    place = _place(query)
    error, start = list_offsets(cluster, tail.leader.broker, [place], timestamp=EARLIEST_LOCAL)[place]
    if error:
        raise BrokerError(error, f"The end of mirror {place[0]}-{place[1]} cannot be seen")
    return start


def _changing(query: TailQuery) -> LinkEngineError:
    where = f"{query.assignment.mirror_topic}-{query.assignment.partition}"
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The end of {where} keeps changing while nothing is sent; another copier is at work. Retrying.",
    )


def _place(query: TailQuery) -> TopicPartition:
    return query.assignment.mirror_topic, query.assignment.partition

"""Reads the log end and producer state of mirror partitions: the checkpoint for resuming. Blocking; runs in the background.

There is no offsets topic. After any error the mirror's log shows where to continue:

0. If gaps are filled by transactions, make sure that none is ongoing (``kafka.transactions``).
1. Request the partition's leader from all brokers and use the response with the newest leader epoch.
2. Read the producer's epoch and last sequence with DescribeProducers (KIP-664).
3. Then read the log end with OffsetForLeaderEpoch in that leader epoch; a leader in a newer epoch refuses. If a batch is
   appended between 2 and 3, the owner's next batch is a duplicate, which is detected. In the reverse order it would be appended
   at a wrong offset.
4. Repeat 2 and 3 until two readings agree (``agreed_readings``), also after a clean hand-over: Kafka's protocol has no checksum
   over these numbers. From a log end that is too low, records would be appended a second time; an odd coordinator epoch looks
   like the fence of a stop; and the epoch of the next marker cannot be lowered again. For a fence, the epochs alone have to
   agree. If no two readings agree, check which producer wrote what was appended between them.
5. If the log ends behind everything that was sent, check which producer wrote the excess. If the log *starts* behind it, the
   records in between were foreign and have been deleted.
6. If the expected log end is unknown or the log does not end there, read the last records for a tail check (``tail_check``).
7. If an append arrived whose response was lost or an error, wait until it is replicated: only then is it mirrored.

A step that shows a foreign write, a late gap fill or a state that may still change yields an error instead of a ``LogEnd``.

A log end that differs between all readings means that another process is writing, since the reader sends nothing. The offsets
that were appended between readings are returned (``EndReading.came``), so that the caller can check which producer wrote them.

A missing topic fails the mirror permanently, so every broker has to confirm it: a broker that is cut off from the others, or
that has just started, has no metadata of topics that exist.
"""

from __future__ import annotations

import time
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from linkengine.batches.view import BatchView, check_crc, iter_batches
from linkengine.copyjob.errors import check_mirror_topic_id, foreign_write, marker_overrun
from linkengine.copyjob.producer_state import is_fence
from linkengine.copyjob.resume.tail_check import read_log_tail
from linkengine.copyjob.values import LogEnd, LogEndQuery, Overtaken
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment, TopicPartition
from linkengine.domain.producers import ProducerState
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import EARLIEST_LOCAL, LATEST, list_offsets, log_ends, log_starts
from linkengine.kafka.producers import describe_producers
from linkengine.kafka.protocol import BrokerError, KafkaCode, UnreplicatedError
from linkengine.kafka.single_reads import read_batches
from linkengine.kafka.topicviews import Leader, Survey, locate
from linkengine.kafka.transactions import EmptyTransactions

READINGS = 5  # after the first; two consecutive readings must agree
REQUEST_TIMEOUT_S = 3.0


class StillWaitingError(LinkEngineError):
    """A marker whose response was lost may still be written; to be retried."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.TIMEOUT_ERROR,
            "The response to a gap fill was lost. Copying resumes automatically when it can no longer be written late.",
        )


def read_log_ends(cluster: Cluster, queries: Sequence[LogEndQuery]) -> dict[str, LogEnd | LinkEngineError]:
    """Return each log end by key, or the error that prevents it. Sends a few requests per broker for all of them."""
    survey = cluster.survey({query.assignment.mirror_topic for query in queries})
    results: dict[str, LogEnd | LinkEngineError] = {}
    by_leader: dict[int, list[tuple[LogEndQuery, Leader, bytes]]] = {}
    for query in queries:
        try:
            leader, topic_id = locate_mirror(query.assignment, survey)
            _check_waited(query, leader)
            query = _settled(cluster, query)  # noqa: PLW2901 - before any log end is read: it may append
        except LinkEngineError as error:
            results[query.assignment.key] = error
        else:
            by_leader.setdefault(leader.broker, []).append((query, leader, topic_id))
    for broker, group in by_leader.items():
        results |= _read_group(cluster, broker, group)
    return results


def _settled(cluster: Cluster, query: LogEndQuery) -> LogEndQuery:
    """Return the query with its transactional producer, if transactions fill gaps, and with no transaction ongoing.

    Ends a transaction that a crashed owner left open (``EmptyTransactions.fence``).
    """
    if not query.assignment.transactional_id or query.transactions is not None:
        return query
    transactions = EmptyTransactions(cluster, query.assignment.transactional_id)
    found = transactions.idle_producer() if query.clean and query.lost_marker is None else None
    return replace(query, transactions=found or transactions.fence())


def _producer_id(query: LogEndQuery) -> int:
    return query.assignment.producer_id if query.transactions is None else query.transactions.producer_id


def _check_waited(query: LogEndQuery, leader: Leader) -> None:
    lost = query.lost_marker
    if lost and leader.broker == lost.broker and time.monotonic() < lost.until:
        raise StillWaitingError


def _read_group(
    cluster: Cluster, broker: int, group: Sequence[tuple[LogEndQuery, Leader, bytes]]
) -> dict[str, LogEnd | LinkEngineError]:
    epochs = {_place(query): leader.epoch for query, leader, _ in group}
    producer_ids = {_place(query): _producer_id(query) for query, _, _ in group}
    try:
        starts = log_starts(cluster, broker, epochs)
        readings = agreed_readings(cluster, broker, epochs, producer_ids, once=all(query.once for query, _, _ in group))
    except LinkEngineError as error:
        return {query.assignment.key: error for query, _, _ in group}
    results: dict[str, LogEnd | LinkEngineError] = {}
    for query, leader, topic_id in group:
        reading = readings[_place(query)]
        if isinstance(reading, LinkEngineError):
            results[query.assignment.key] = reading
            continue
        start_error, start = starts[_place(query)]
        log_end = LogEnd(
            leader=leader,
            topic_id=topic_id,
            start=0 if start_error else start,
            end=reading.end,
            producer=reading.producer,
            producer_id=_producer_id(query),
            transactions=query.transactions,
        )
        came = reading.came
        results[query.assignment.key] = _unsettled(cluster, query, log_end, came) if came else _checked(cluster, query, log_end)
    return results | _with_tails(cluster, broker, [query for query, _, _ in group], results)


def _checked(cluster: Cluster, query: LogEndQuery, log_end: LogEnd) -> LogEnd | LinkEngineError:
    expected, assignment, previous_end = _own_end(query, log_end), query.assignment, query.previous_end
    if previous_end is not None and previous_end < log_end.start and not _is_stopped(query, log_end):
        return foreign_write(assignment, previous_end)  # another producer's records, which were deleted again
    overtaken = query.overtaken
    start, end = (expected, log_end.end) if overtaken is None else (overtaken.start, min(overtaken.end, log_end.end))
    offsets = (log_end.end if start is None else max(start, log_end.start), end)
    if offsets[0] >= offsets[1]:
        return log_end
    found = _foreign_write_in(cluster, query, log_end, offsets)
    if found is not None or overtaken is None:
        return found or log_end
    try:
        return log_end if _is_refuted(cluster, query, log_end, overtaken) else marker_overrun(assignment, offsets[1] - 1)
    except LinkEngineError as error:
        return error


def _is_refuted(cluster: Cluster, query: LogEndQuery, log_end: LogEnd, overtaken: Overtaken) -> bool:
    """Return whether the log contradicts the response: it ends before, or the copy's own data batch is at its offset."""
    if log_end.end <= overtaken.own_end:
        return True
    topic = (query.assignment.mirror_topic, log_end.topic_id, query.assignment.partition)
    with closing(
        batches_in(cluster, log_end.leader, topic=topic, offsets=(overtaken.own_end, overtaken.own_end + 1))
    ) as batches:
        return any(
            view.base_offset == overtaken.own_end and view.producer_id == log_end.producer_id and not view.is_control
            for view, _ in batches
        )


def _unsettled(cluster: Cluster, query: LogEndQuery, log_end: LogEnd, came: tuple[int, int]) -> LogEnd | LinkEngineError:
    """Return the result for a log end that keeps changing.

    Only a query for copying checks for foreign writes; a fence, for example, only reads where the log ends.
    """
    copies = query.check_tail or query.expected_end is not None
    if copies and _is_stopped(query, log_end):
        return log_end
    found = _foreign_write_in(cluster, query, log_end, came) if copies and came[0] < came[1] else None
    return found or _changing(query)


def _is_stopped(query: LogEndQuery, log_end: LogEnd) -> bool:
    """Return whether the mirror was stopped, so that applications may write to it. ``adopt`` then raises FencedError."""
    return query.transactions is None and is_fence(log_end.producer.coordinator_epoch)


def _foreign_write_in(
    cluster: Cluster, query: LogEndQuery, log_end: LogEnd, offsets: tuple[int, int]
) -> LinkEngineError | None:
    """Return FOREIGN_WRITE or the error of reading, None if all batches in ``offsets`` have the copy's producer id."""
    assignment = query.assignment
    topic = (assignment.mirror_topic, log_end.topic_id, assignment.partition)
    own_ids = {log_end.producer_id} | ({query.unacknowledged.producer_id} if query.unacknowledged else set())
    try:
        foreign = first_foreign_batch(cluster, log_end.leader, topic=topic, offsets=offsets, own_ids=own_ids)
    except LinkEngineError as error:
        return error
    return None if foreign is None else foreign_write(assignment, foreign)


def _with_tails(
    cluster: Cluster, broker: int, queries: Sequence[LogEndQuery], results: Mapping[str, LogEnd | LinkEngineError]
) -> dict[str, LogEnd | LinkEngineError]:
    """Return replacements for log ends that need their last records read or may not be replicated yet. Uses one connection."""
    pending = [(query, log_end) for query in queries if isinstance(log_end := results[query.assignment.key], LogEnd)]
    pending = [
        (query, log_end)
        for query, log_end in pending
        if _needs_tail_check(query, log_end) or _has_unacknowledged(query, log_end)
    ]
    if not pending:
        return {}
    found: dict[str, LogEnd | LinkEngineError] = {}
    try:
        visible = list_offsets(cluster, broker, [_place(query) for query, _ in pending], timestamp=LATEST)
        connection = cluster.open(broker)
    except LinkEngineError as failure:
        return {query.assignment.key: failure for query, _ in pending}
    try:
        for query, log_end in pending:
            found[query.assignment.key] = _with_tail(
                query, log_end, cluster=cluster, connection=connection, visible=visible.get(_place(query), (3, -1))
            )
    finally:
        connection.close()
    return found


def _own_end(query: LogEndQuery, log_end: LogEnd) -> int | None:
    unacknowledged, sent_end = query.unacknowledged, query.expected_end
    return (
        unacknowledged.confirmed_end(log_end.end, sent_end=sent_end, producer=log_end.producer) if unacknowledged else sent_end
    )


def _needs_tail_check(query: LogEndQuery, log_end: LogEnd) -> bool:
    expected = _own_end(query, log_end)
    known = query.unacknowledged.offset if query.unacknowledged else query.expected_end  # all below was acknowledged
    moved = (expected is not None and log_end.end > expected) or (known is not None and log_end.end < known)
    return (query.check_tail or moved) and log_end.end > log_end.start


def _has_unacknowledged(query: LogEndQuery, log_end: LogEnd) -> bool:
    """Return whether an append without a successful response is in the log: the followers may not have it yet."""
    return query.unacknowledged is not None and log_end.end > query.unacknowledged.offset


def _with_tail(
    query: LogEndQuery, log_end: LogEnd, *, cluster: Cluster, connection: Connection, visible: tuple[int, int]
) -> LogEnd | LinkEngineError:
    (name, partition), (error, high_watermark) = _place(query), visible
    if error:
        return BrokerError(error, f"The log end of mirror {name}-{partition} cannot be read")
    if high_watermark < log_end.end:
        return UnreplicatedError(name, partition)
    if not _needs_tail_check(query, log_end):
        return log_end
    try:
        tail = read_log_tail(
            connection,
            topic=(name, log_end.topic_id, partition),
            leader_epoch=log_end.leader.epoch,
            bounds=(log_end.start, log_end.end),
            producer_id=log_end.producer_id,
            local_start=lambda: _local_start(cluster, query, log_end),
        )
    except LinkEngineError as failure:
        return failure
    return replace(log_end, tail=tail)


def _local_start(cluster: Cluster, query: LogEndQuery, log_end: LogEnd) -> int:
    place = _place(query)
    error, start = list_offsets(cluster, log_end.leader.broker, [place], timestamp=EARLIEST_LOCAL)[place]
    if error:
        raise BrokerError(error, f"The local log start of mirror {place[0]}-{place[1]} cannot be read")
    return start


def _changing(query: LogEndQuery) -> LinkEngineError:
    where = f"{query.assignment.mirror_topic}-{query.assignment.partition}"
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"The log end of mirror {where} keeps changing although nothing is sent here, so another writer is active. "
        "Retrying automatically.",
    )


def _place(query: LogEndQuery) -> TopicPartition:
    return query.assignment.mirror_topic, query.assignment.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReading:
    """The log end of a mirror partition and the leader's state of its producer."""

    end: int
    producer: ProducerState
    came: tuple[int, int] | None = None  # offsets appended between readings, if no two agreed; None: two agreed


ReadingOrError = EndReading | LinkEngineError


def agreed_readings(
    cluster: Cluster,
    broker: int,
    epochs: Mapping[TopicPartition, int],
    producer_ids: Mapping[TopicPartition, int],
    *,
    once: bool,
) -> dict[TopicPartition, ReadingOrError]:
    """Return log end and producer state of partitions that ``broker`` leads in these leader ``epochs``.

    ``once``: return the second reading if both have the same epochs of the producer: those of a marker that were derived from
    a damaged response could not be lowered again.
    """
    readings = [_reading(cluster, broker, epochs, producer_ids)]
    if once:
        return _with_equal_epochs(readings[0], _reading(cluster, broker, epochs, producer_ids))
    agreed: dict[TopicPartition, ReadingOrError] = {}
    while len(agreed) < len(epochs) and len(readings) <= READINGS:
        readings.append(_reading(cluster, broker, epochs, producer_ids))
        agreed = _agreeing(readings[-2], readings[-1]) | agreed
    return {place: _moving([reading[place] for reading in readings]) for place in epochs} | agreed


def _with_equal_epochs(
    before: Mapping[TopicPartition, ReadingOrError], now: Mapping[TopicPartition, ReadingOrError]
) -> dict[TopicPartition, ReadingOrError]:
    return {place: _with_epochs_of(before[place], reading, place) for place, reading in now.items()}


def _with_epochs_of(before: ReadingOrError, now: ReadingOrError, place: TopicPartition) -> ReadingOrError:
    if isinstance(before, LinkEngineError) or isinstance(now, LinkEngineError):
        return before if isinstance(before, LinkEngineError) else now
    first, second = before.producer, now.producer
    if (first.epoch, first.coordinator_epoch) == (second.epoch, second.coordinator_epoch):
        return now
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Two readings of the producer epochs of mirror {place[0]}-{place[1]} differ: another writer is active, or a response "
        "was damaged. Retrying automatically.",
    )


def _agreeing(
    before: Mapping[TopicPartition, ReadingOrError], now: Mapping[TopicPartition, ReadingOrError]
) -> dict[TopicPartition, ReadingOrError]:
    return {
        place: reading for place, reading in now.items() if reading == before[place] or isinstance(reading, LinkEngineError)
    }


def _moving(readings: Sequence[ReadingOrError]) -> ReadingOrError:
    """Return the last reading, with the first range of appended offsets: later ranges may not be replicated yet."""
    seen = [reading for reading in readings if isinstance(reading, EndReading)]
    if not seen:
        return readings[-1]
    start = seen[0].end
    return replace(seen[-1], came=(start, next((reading.end for reading in seen if reading.end > start), start)))


def _reading(
    cluster: Cluster, broker: int, epochs: Mapping[TopicPartition, int], producer_ids: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ReadingOrError]:
    # sequences first, see the module's docstring
    producers = describe_producers(cluster, broker, producer_ids, timeout_s=REQUEST_TIMEOUT_S)
    ends = log_ends(cluster, broker, epochs, timeout_s=REQUEST_TIMEOUT_S)
    readings: dict[TopicPartition, ReadingOrError] = {}
    for place in epochs:
        (end_error, end), (producer_error, producer) = ends.get(place, (3, -1)), producers.get(place, (3, ProducerState()))
        error = end_error or producer_error
        refused = BrokerError(error, f"The end of {place[0]}-{place[1]} cannot be read") if error else None
        readings[place] = refused or EndReading(end=end, producer=producer)
    return readings


def locate_mirror(assignment: PartitionAssignment, survey: Survey) -> tuple[Leader, bytes]:
    """Return leader and topic id; raise BrokerError as ``locate`` does, for a missing topic only if all brokers agree."""
    try:
        found = locate(survey.topics, assignment.mirror_topic, assignment.partition)
        check_mirror_topic_id(assignment, survey.topics[assignment.mirror_topic].topic_id_text)
    except BrokerError as error:
        if error.kafka_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION and not _all_agree(assignment, survey):
            raise _brokers_disagree(assignment) from error
        raise
    return found


def _all_agree(assignment: PartitionAssignment, survey: Survey) -> bool:
    if not survey.is_final:
        return False
    return assignment.mirror_topic_id not in survey.topic_ids.get(assignment.mirror_topic, ())


def _brokers_disagree(assignment: PartitionAssignment) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TIMEOUT_ERROR,
        f"Destination brokers disagree about mirror topic {assignment.mirror_topic!r}: some do not know it, or know another "
        "topic of that name; others know it, or do not respond. Retrying automatically. If this persists, restart the broker "
        "that has lost contact with the others.",
    )


# --- batches of a mirror -------------------------------------------------------------------------------------------------
# That its copy did not expect. A batch is the mirror's own if it has the mirror's producer id. Blocking; runs in a background
# thread, on a connection of its own. Reads uncommitted data up to the high watermark.


PATIENCE_S = 10.0  # to read what may be the data of several Produce requests


def first_foreign_batch(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int], own_ids: Container[int]
) -> int | None:
    """Return the offset of the first batch in ``offsets`` by a producer whose id is not in ``own_ids``, or None."""
    with closing(batches_in(cluster, leader, topic=topic, offsets=offsets)) as batches:
        for view, batch in batches:
            if view.producer_id not in own_ids:
                check_crc(view, batch)  # the producer id may have been damaged in transit
                return view.base_offset
    return None


def batches_in(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int | None]
) -> Generator[tuple[BatchView, memoryview]]:
    """Yield the batches in ``offsets``, all of them replicated; raise if they cannot be read within PATIENCE_S.

    The end None means the high watermark. Close the generator: it holds a connection.
    """
    position, wanted = offsets
    end = _replicated_end(cluster, leader, topic=(topic[0], topic[2]), wanted=wanted)
    deadline = time.monotonic() + PATIENCE_S
    connection = cluster.open(leader.broker)
    try:
        while position < end:
            error, records = read_batches(connection, topic=topic, leader_epoch=leader.epoch, offset=position)
            if error:
                raise BrokerError(error, f"Mirror {topic[0]}-{topic[2]} cannot be read for a check")
            for at, view in iter_batches(records):
                if view.next_offset > position and view.base_offset < end:
                    yield view, records[at : at + view.size]
                position = max(position, view.next_offset)
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, f"Mirror {topic[0]}-{topic[2]} could not be checked in time. Retrying."
                )
    finally:
        connection.close()


def _replicated_end(cluster: Cluster, leader: Leader, *, topic: TopicPartition, wanted: int | None) -> int:
    """Return the end of the readable offsets; raise if followers have not replicated up to ``wanted``."""
    error, high_watermark = list_offsets(cluster, leader.broker, [topic], timestamp=LATEST)[topic]
    if error:
        raise BrokerError(error, f"Mirror {topic[0]}-{topic[1]} cannot be read for a check")
    if wanted is not None and high_watermark < wanted:
        raise UnreplicatedError(*topic)
    return high_watermark if wanted is None else wanted

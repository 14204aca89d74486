"""Take over an ordinary topic as a mirror, and read where mirrored records end in a topic. Copies no record; blocking."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import count

import structlog

from linkengine.batches.records import ControlType, is_commit
from linkengine.batches.view import BatchView, check_crc
from linkengine.copyjob.resume.log_end import batches_in, read_log_ends
from linkengine.copyjob.stop.fence import PAUSE_S, last_marker, write_marker
from linkengine.copyjob.values import LogEnd, LogEndQuery
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStop
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import log_starts
from linkengine.kafka.producers import describe_producers
from linkengine.kafka.protocol import BrokerError
from linkengine.kafka.topicviews import TopicMetadata, locate
from linkengine.kafka.transactions import EmptyTransactions

# --- takeover ------------------------------------------------------------------------------------------------------------
# The topic must end exactly where its former copy was fenced. Used when the direction between two topics is swapped
# (``linkengine.jobs.reversing``). The fence of the former mirror is a marker at offset E, the first offset that the two topics
# do not share. Here the same offset gets a marker of the new mirror's own producer, the takeover marker. It lands at E only if
# no other producer has appended since. So it both proves that the topics are equal and marks the partition as taken over; the
# copy continues behind it. It is an ABORT marker like every filler: a COMMIT marker would be read as a fence. For that reason a
# topic that still ends with the fence of its own previous mirror is not taken over.


PATIENCE_S = 30.0  # to wait for leaders; then the caller retries
_FINAL = frozenset({ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.SIDES_DIVERGED})


def write_takeover_markers(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int
) -> None:
    """Write the takeover marker of each partition at its end, by partition; safe to repeat.

    A partition that is shorter than its end is a prefix of the other side and needs no marker. Raises SIDES_DIVERGED if a
    partition is longer, and the last error if the cluster cannot be reached within PATIENCE_S.
    """
    cluster = Cluster(address)
    deadline = time.monotonic() + PATIENCE_S
    missing = [assignment for assignment in assignments if assignment.partition in ends]
    try:
        for tries in count():
            if not missing:
                break
            missing, failure = _round(cluster, missing, ends=ends, generation=generation, tries=tries)
            if failure and (failure.code in _FINAL or time.monotonic() > deadline):
                raise failure
            if failure:
                time.sleep(PAUSE_S)
    finally:
        cluster.close()


def partitions_taken_over(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, ends: Mapping[int, int]
) -> frozenset[int]:
    """Return the partitions that end with a takeover marker at their end; raise if any cannot be read."""
    candidates = [assignment for assignment in assignments if assignment.partition in ends]
    with closing(Cluster(address)) as cluster:
        log_ends = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=True) for assignment in candidates])
        return frozenset(
            assignment.partition
            for assignment in candidates
            if _ends_with_takeover_marker(cluster, assignment, log_ends[assignment.key], end=ends[assignment.partition])
        )


def _ends_with_takeover_marker(
    cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd | LinkEngineError, *, end: int
) -> bool:
    if isinstance(log_end, LinkEngineError):
        raise log_end
    return log_end.end == end + 1 and last_marker(cluster, assignment, log_end) not in (
        None,
        (log_end.producer_id, ControlType.COMMIT),
    )


def _round(
    cluster: Cluster, missing: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int, tries: int
) -> tuple[list[PartitionAssignment], LinkEngineError | None]:
    """Try each partition once; return those that are not taken over yet and the last error."""
    log_ends = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=False) for assignment in missing])
    remaining, failure = [], None
    for assignment in missing:
        log_end = log_ends[assignment.key]
        try:
            if isinstance(log_end, LinkEngineError):
                raise log_end
            if not _is_taken_over(cluster, assignment, log_end, end=ends[assignment.partition]):
                write_marker(cluster, assignment, log_end, generation=generation, commit=False, tries=tries)
                remaining.append(assignment)  # the next round checks where the marker landed
        except LinkEngineError as error:
            failure = error
            remaining.append(assignment)
    return remaining, failure


def _is_taken_over(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd, *, end: int) -> bool:
    if log_end.end <= end:
        return log_end.end < end
    if _ends_with_takeover_marker(cluster, assignment, log_end, end=end):
        return True
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"Topic {assignment.mirror_topic!r} cannot become a mirror: partition {assignment.partition} holds {log_end.end - end} "
        f"offsets, from offset {end} on, that the other side does not have. Fail over here to make the topic writable again; "
        "truncate-and-restore then exports these records.",
    )


# --- mirrored end --------------------------------------------------------------------------------------------------------
# How much of a stopped mirror was mirrored; its fence only marks where the log ended. Two things below the fence do not come
# from the source:
#
# * a foreign write that was not noticed, because nothing was copied after it;
# * an earlier fence of the mirror that was not recorded. Fillers are ABORT markers, so a COMMIT marker of the mirror's producer
#   is where it was stopped before, and applications may have written behind it.
#
# Both are searched between the offset below which everything is known to come from the source, and the fence.
#
# A recorded fence may be out of date: the database was restored from a backup, and the topic has become a mirror again since
# (``rewritten_from``). Brokers refuse all owners before a fence, so only further fences of the mirror's producer follow it.
# Any other batch of this producer is of a later copy, which began with a takeover marker: below it both sides have the same
# records.


TRIES = 4
REPEAT_AFTER_S = 0.5
log = structlog.get_logger(__name__)


def foreign_starts(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, fences: Mapping[int, int], copied: Mapping[int, int]
) -> dict[int, int]:
    """Return, by partition, the first offset below its fence that was not mirrored: a foreign write or an earlier fence.

    Partitions without such an offset are left out. Everything below ``copied`` comes from the source. For a partition that
    cannot be read its ``copied`` offset is returned, so that the stop does not wait for it: nothing above counts as mirrored.
    """
    unchecked = [
        assignment
        for assignment in assignments
        if copied.get(assignment.partition, fences[assignment.partition]) < fences[assignment.partition]
    ]
    found: dict[int, int] = {}
    with closing(Cluster(address)) as cluster:
        views: dict[str, TopicMetadata] = {}
        for assignment in unchecked:
            offsets = copied[assignment.partition], fences[assignment.partition]
            foreign = _search_patiently(cluster, assignment, views, offsets=offsets)
            if foreign is not None:
                found[assignment.partition] = foreign
    return found


def _search_patiently(
    cluster: Cluster, assignment: PartitionAssignment, views: dict[str, TopicMetadata], *, offsets: tuple[int, int]
) -> int | None:
    """Return ``_first_foreign``; after an error, locate the leader again and retry, then return the start of the search.

    The leader has just appended the fence, so an error may mean that it has moved.
    """
    for left in reversed(range(TRIES)):
        try:
            views |= {} if views else cluster.newest_topics({assignment.mirror_topic})
            return _first_foreign(cluster, assignment, views, offsets=offsets)
        except LinkEngineError as error:
            views.clear()
            log.warning(
                "mirrored_end_not_seen",
                topic=assignment.mirror_topic,
                partition=assignment.partition,
                code=error.code,
                left=left,
            )
            time.sleep(REPEAT_AFTER_S if left else 0)
    return offsets[0]


def _first_foreign(
    cluster: Cluster, assignment: PartitionAssignment, views: dict[str, TopicMetadata], *, offsets: tuple[int, int]
) -> int | None:
    leader, topic_id = locate(views, assignment.mirror_topic, assignment.partition)
    place = (assignment.mirror_topic, topic_id, assignment.partition)
    with closing(batches_in(cluster, leader, topic=place, offsets=offsets)) as batches:
        end = _mirrored_end(batches, start=offsets[0], producer_ids=_producer_ids(cluster, assignment))
    return end if end < offsets[1] else None


def _producer_ids(cluster: Cluster, assignment: PartitionAssignment) -> set[int]:
    """Return the ids under which a mirror partition is written: its own and, if transactions fill gaps, that of these."""
    found = None
    if assignment.transactional_id:
        found = EmptyTransactions(cluster, assignment.transactional_id).idle_producer()
    return {assignment.producer_id} | ({found.producer_id} if found else set())


def _mirrored_end(batches: Iterable[tuple[BatchView, memoryview]], *, start: int, producer_ids: Container[int]) -> int:
    """Return the end of the mirrored batches from ``start`` on: before a foreign batch or an earlier fence, or the last end.

    Offsets behind it whose batches compaction has removed do not count as mirrored.
    """
    end = start
    for view, batch in batches:
        if view.producer_id not in producer_ids:
            check_crc(view, batch)  # the producer id may have been damaged in transit; then the batch is read again
            break
        if is_commit(view, batch):
            break
        end = view.next_offset
    return end


def rewritten_from(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, fences: Mapping[int, int]
) -> dict[int, int]:
    """Return, by partition, the offset above its recorded fence from which the mirror was copied again; usually none.

    Raises if a partition cannot be read. The log is read only if the leader does not show that the fence is the last batch of
    the mirror's producer.
    """
    recorded = [assignment for assignment in assignments if assignment.partition in fences]
    if not recorded:
        return {}
    found: dict[int, int] = {}
    with closing(Cluster(address)) as cluster:
        views = cluster.newest_topics({assignment.mirror_topic for assignment in recorded})
        for assignment in recorded:
            offset = _copied_again(cluster, assignment, views, fence=fences[assignment.partition])
            if offset is not None:
                found[assignment.partition] = offset
    if found:
        log.warning("stop.fences_outdated", topic=recorded[0].mirror_topic, partitions=found)
    return found


def _copied_again(
    cluster: Cluster, assignment: PartitionAssignment, views: dict[str, TopicMetadata], *, fence: int
) -> int | None:
    leader, topic_id = locate(views, assignment.mirror_topic, assignment.partition)
    place = (assignment.mirror_topic, assignment.partition)
    error, log_start = log_starts(cluster, leader.broker, [place])[place]
    if error:
        raise BrokerError(error, f"The fence of {place[0]}-{place[1]} cannot be read")
    producer_ids, topic = _producer_ids(cluster, assignment), (place[0], topic_id, place[1])
    with closing(batches_in(cluster, leader, topic=topic, offsets=(max(fence, log_start), None))) as batches:
        for view, batch in batches:
            check_crc(view, batch)
            if is_commit(view, batch) and view.base_offset == fence:
                error, last = describe_producers(cluster, leader.broker, {place: view.producer_id})[place]
                if not error and last.epoch == view.producer_epoch:
                    return None
            elif view.base_offset > fence and view.producer_id in producer_ids and not is_commit(view, batch):
                return view.base_offset
    return None


def reads_log(stop: MirrorStop, assignments: Sequence[PartitionAssignment], ends: Mapping[int, int]) -> bool:
    """Return whether the log has to be searched for foreign writes (``foreign_starts``)."""
    known, copied = _known_ends(stop), dict(stop.copied)
    numbers = {partition.partition for partition in assignments} - known.keys()
    return stop.was_mirror and any(copied.get(number, ends[number]) < ends[number] for number in numbers)


def foreign_write_starts(
    stop: MirrorStop, assignments: Sequence[PartitionAssignment], fences: Mapping[int, int]
) -> dict[int, int]:
    """Return the offsets from which a mirror has foreign records; a topic that was only becoming a mirror is not checked.

    The end in a cleanly released lease does not count if a later end was reported: Redis was restored from a backup.
    """
    if not stop.was_mirror:
        return {}
    copied, known = dict(stop.copied), _known_ends(stop)
    below_fence = {number: end for number, end in known.items() if end < fences.get(number, end)}
    unknown = [partition for partition in assignments if partition.partition not in known]
    return below_fence | foreign_starts(stop.destination, unknown, fences=fences, copied=copied)


def _known_ends(stop: MirrorStop) -> dict[int, int]:
    """Return the ends of mirrored records by partition, as far as they are known without reading the log."""
    copied, fenced = dict(stop.copied), dict(stop.fenced_ends)
    released = {number: end for number, end in stop.released_ends if end >= copied.get(number, 0)}
    # the ends of fenced partitions were recorded by an earlier attempt
    return released | {number: end for number, end in copied.items() if number in fenced}

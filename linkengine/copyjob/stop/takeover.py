"""Takes over an ordinary topic as a mirror without copying it: the topic must end exactly where its former copy was fenced.

Used when the direction between two topics is swapped (``linkengine.jobs.reversing``). The fence of the former mirror is a
marker at offset E, the first offset that the two topics do not share. Here the same offset gets a marker of the new
mirror's own producer, the claim. The claim lands at E only if no other producer has appended since. So it both proves that
the topics are equal and marks the partition as taken over; the copy continues behind it. It is an ABORT marker like every
filler: a COMMIT marker would be read as a fence. For that reason a topic that still ends with the fence of its own
previous mirror is not taken over. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import count

from linkengine.batches.control import ControlType
from linkengine.copyjob.resume.log_end import LogEnd, LogEndQuery, read_log_ends
from linkengine.copyjob.stop.fence import PAUSE_S, last_marker, write_marker
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster

PATIENCE_S = 30.0  # to wait for leaders; then the caller retries
_FINAL = frozenset({ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.SIDES_DIVERGED})


def claim_partitions(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int
) -> None:
    """Write the claims of the partitions at ``ends``, by partition; safe to repeat.

    A partition that is shorter than its end is a prefix of the other side and needs no claim. Raises SIDES_DIVERGED if a
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


def claimed_partitions(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, ends: Mapping[int, int]
) -> frozenset[int]:
    """Return the partitions that an earlier ``claim_partitions`` has claimed; raise if any cannot be read."""
    candidates = [assignment for assignment in assignments if assignment.partition in ends]
    with closing(Cluster(address)) as cluster:
        log_ends = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=True) for assignment in candidates])
        return frozenset(
            assignment.partition
            for assignment in candidates
            if _ends_claimed(cluster, assignment, log_ends[assignment.key], end=ends[assignment.partition])
        )


def _ends_claimed(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd | LinkEngineError, *, end: int) -> bool:
    if isinstance(log_end, LinkEngineError):
        raise log_end
    return log_end.end == end + 1 and last_marker(cluster, assignment, log_end) not in (
        None,
        (log_end.producer_id, ControlType.COMMIT),
    )


def _round(
    cluster: Cluster, missing: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int, tries: int
) -> tuple[list[PartitionAssignment], LinkEngineError | None]:
    """Try each partition once; return those that are not claimed yet and the last error."""
    log_ends = read_log_ends(cluster, [LogEndQuery(assignment=assignment, clean=False) for assignment in missing])
    unclaimed, failure = [], None
    for assignment in missing:
        log_end = log_ends[assignment.key]
        try:
            if isinstance(log_end, LinkEngineError):
                raise log_end
            if not _is_claimed(cluster, assignment, log_end, end=ends[assignment.partition]):
                write_marker(cluster, assignment, log_end, generation=generation, commit=False, tries=tries)
                unclaimed.append(assignment)  # the next round checks where the marker landed
        except LinkEngineError as error:
            failure = error
            unclaimed.append(assignment)
    return unclaimed, failure


def _is_claimed(cluster: Cluster, assignment: PartitionAssignment, log_end: LogEnd, *, end: int) -> bool:
    if log_end.end <= end:
        return log_end.end < end
    if _ends_claimed(cluster, assignment, log_end, end=end):
        return True
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"Topic {assignment.mirror_topic!r} cannot become a mirror: partition {assignment.partition} holds {log_end.end - end} "
        f"offsets, from offset {end} on, that the other side does not have. Fail over here to make the topic writable again; "
        "truncate-and-restore then exports these records.",
    )

"""Takes an ordinary topic over as a mirror where it stands: it must end exactly where its former copy was fenced.

The fence of the other side is one marker at offset E, the first offset that is not common. Here the same offset gets a marker
of the new mirror's own producer. It lands at E only if nobody wrote meanwhile, so the marker is proof and claim in one; the
copier goes on behind it. An ABORT marker like every fill: a COMMIT marker of ours would read as a fence, so a topic that still
ends with the fence of its own last life is not taken over. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import count

from linkengine.batches.control import ControlType
from linkengine.copyjob.fence import PAUSE_S, last_marker, write_marker
from linkengine.copyjob.tails import Tail, TailQuery, read_tails
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Cluster

PATIENCE_S = 30.0
_FINAL = frozenset({ErrorCode.AUTHENTICATION_ERROR, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.SIDES_DIVERGED})


def adopt_partitions(
    address: ClusterAddress, assignments: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int
) -> None:
    """Claim the partitions up to ``ends``, by partition; safe to repeat.

    A partition that ends before its end is a prefix and needs no claim. Raises SIDES_DIVERGED where one holds more, and what
    keeps us from the cluster.
    """
    cluster = Cluster(address)
    deadline = time.monotonic() + PATIENCE_S
    missing = [one for one in assignments if one.partition in ends]
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
    """List the partitions that end with a claim: an earlier ``adopt_partitions`` got so far. Raises where one is hidden."""
    asked = [one for one in assignments if one.partition in ends]
    with closing(Cluster(address)) as cluster:
        tails = read_tails(cluster, [TailQuery(assignment=one, clean=True) for one in asked])
        return frozenset(one.partition for one in asked if _ends_claimed(cluster, one, tails[one.key], end=ends[one.partition]))


def _ends_claimed(cluster: Cluster, one: PartitionAssignment, tail: Tail | LinkEngineError, *, end: int) -> bool:
    if isinstance(tail, LinkEngineError):
        raise tail
    return tail.end == end + 1 and last_marker(cluster, one, tail) not in (None, (tail.producer_id, ControlType.COMMIT))


def _round(
    cluster: Cluster, missing: Sequence[PartitionAssignment], *, ends: Mapping[int, int], generation: int, tries: int
) -> tuple[list[PartitionAssignment], LinkEngineError | None]:
    """Take each partition one step further; answer those not done yet and the last error."""
    tails = read_tails(cluster, [TailQuery(assignment=one, clean=False) for one in missing])
    rest, failure = [], None
    for one in missing:
        tail = tails[one.key]
        try:
            if isinstance(tail, LinkEngineError):
                raise tail
            if not _is_claimed(cluster, one, tail, end=ends[one.partition]):
                write_marker(cluster, one, tail, generation=generation, commit=False, tries=tries)
                rest.append(one)  # the next round looks where it landed
        except LinkEngineError as error:
            failure = error
            rest.append(one)
    return rest, failure


def _is_claimed(cluster: Cluster, one: PartitionAssignment, tail: Tail, *, end: int) -> bool:
    if tail.end <= end:
        return tail.end < end
    if _ends_claimed(cluster, one, tail, end=end):
        return True
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"Topic {one.mirror_topic!r} holds {tail.end - end} offsets in partition {one.partition} that the other side lacks "
        f"(from offset {end} on), so it cannot become its mirror. Fail over here to make it writable again; "
        "truncate-and-restore then sets these records aside.",
    )

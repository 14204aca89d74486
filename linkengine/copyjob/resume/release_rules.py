"""Decides what to read of a mirror before it resumes, and when writing is safe after a change of owner. No I/O.

Data and markers need different care. An append of a previous owner is refused by the leader if it arrives late: its
sequence or epoch no longer fits. A marker is not conditional, so a late marker lands wherever the log ends then. An owner
whose predecessor did not release the lease cleanly therefore waits until that lease must have expired, and raises the
producer epoch with its first marker, which fences the predecessor.
"""

from __future__ import annotations

from collections.abc import Callable

from linkengine.batches.steps import Append
from linkengine.copyjob.partition_state import PartitionState
from linkengine.copyjob.values import LogEndQuery
from linkengine.domain.workers import FIRST_GENERATION, Grant

# brokers remember a producer for a day after its newest record (``producer.id.expiration.ms``), unless set to less
REMEMBERED_MS = 3_600_000


def log_end_query(partition: PartitionState) -> LogEndQuery:
    """Return what to read of a mirror's tail; an end that no owner has confirmed gets a tail check (``tail_check``)."""
    first_attempt, inherited = not partition.producer_state.adopted, _inherited(partition)
    expected_end = partition.sent_end if not first_attempt else inherited[1] if inherited else None
    return LogEndQuery(
        assignment=partition.assignment,
        # a first generation is read twice: Redis may have lost the lease record while another worker writes
        clean=first_attempt
        and partition.grant is not None
        and partition.grant.clean
        and partition.grant.generation > FIRST_GENERATION,
        lost_marker=partition.lost_marker,
        transactions=None if first_attempt or partition.lost_marker else partition.transactions,
        expected_end=expected_end,
        previous_end=_previous_end(partition) if first_attempt and expected_end is None else expected_end,
        check_tail=expected_end is None or partition.unchecked_tail is not None,
        overtaken=partition.overtaken,
        unacknowledged=None if first_attempt else partition.unacknowledged,
    )


def is_settled(partition: PartitionState, grant: Grant) -> bool:
    """Return whether no marker of an earlier owner can still be written; its late data is refused in any case.

    Markers may be in flight after an owner that crashed, or after Redis lost the lease record. Only this owner's first marker,
    which raises the epoch, fences them.
    """
    fenced = partition.producer_state.adopted and not partition.producer_state.must_raise
    in_flight = partition.producer_state.memory_lost or (grant.markers_announced and not grant.clean)
    return fenced or not in_flight


def is_held_up(partition: PartitionState, step: Append, *, now_ms: Callable[[], int]) -> bool:
    """Return whether an append has to wait as markers do, because a previous owner may still consider its lease valid.

    The leader chooses between two owners by what it remembers of their producer. If it remembers nothing, or may forget it
    between two batches (it counts from the timestamps of the records), it would accept the same batch from both.
    """
    if partition.may_fill(0.0):  # no previous owner has to be waited for
        return False
    return partition.producer_state.epoch < 0 or step.max_timestamp < now_ms() - REMEMBERED_MS


def _inherited(partition: PartitionState) -> tuple[int, int] | None:
    """Return (source epoch, end) of the previous owner if both can be relied on.

    That is after a clean release at most ``SEEN_TRUSTED_MS`` ago, if the source's leader still has the epoch that was read. A
    leader with an older epoch may be that of a cluster restored from a snapshot, and hold other records since. After a
    longer time even the same epoch proves nothing: a restored cluster counts its epochs again.
    """
    seen = partition.grant.trusted_seen if partition.grant is not None and partition.grant.clean else None
    same = seen is not None and partition.origin is not None and partition.origin.leader.epoch == seen[0]
    return seen if same else None


def _previous_end(partition: PartitionState) -> int | None:
    """Return the mirror's end at the release of the previous owner, whichever leader it read from.

    Only if progress of these topics was reported before (``source_seen``), and not beyond that end: when a mirror is stopped
    while Redis is not available, or Redis is restored from a backup, the lease record keeps the end of an earlier owner. A log
    that starts behind such an end had no foreign write.
    """
    grant, reported = partition.grant, partition.assignment.source_seen
    seen = grant.seen if grant is not None and grant.clean else None
    return seen[1] if seen is not None and reported is not None and reported[1] <= seen[1] else None

"""What a partition has to know of its mirror's end before it can go on, and what it tells the next owner. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from linkengine.batches.steps import Append
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.tails import TailQuery
from linkengine.domain.leases import FIRST_GENERATION, Grant

REMEMBERED_MS = 3_600_000  # brokers keep a producer for a day after its newest record, if nobody has set it to less


def tail_query(one: MirrorPartition) -> TailQuery:
    """Answer what to ask; an end that nobody vouches for is to be proven (``proving.py``)."""
    fresh, inherited = not one.writer.adopted, _inherited(one)
    expected_end = one.sent_end if not fresh else inherited[1] if inherited else None
    return TailQuery(
        assignment=one.assignment,
        # a first generation may mean that the lease's memory was lost while somebody else writes: look twice
        clean=fresh and one.grant is not None and one.grant.clean and one.grant.generation > FIRST_GENERATION,
        lost_marker=one.lost_marker,
        transactions=None if fresh or one.lost_marker else one.transactions,
        expected_end=expected_end,
        left_end=_left_end(one) if fresh and expected_end is None else expected_end,
        prove=expected_end is None or one.to_prove is not None,
        overtaken=one.overtaken,
        doubt=None if fresh else one.doubt,
    )


def is_settled(one: MirrorPartition, grant: Grant) -> bool:
    """Tell whether no marker of an earlier owner can be written any more; its data is harmless whenever it comes.

    After an owner that died with markers on their way, or that the lease has forgotten together with how it ended, our first
    one has shut them out, and nothing else does.
    """
    shut_out = one.writer.adopted and not one.writer.must_raise
    on_their_way = one.writer.memory_lost or (grant.armed and not grant.clean)
    return shut_out or not on_their_way


def is_held_up(one: MirrorPartition, step: Append, *, now_ms: Callable[[], int]) -> bool:
    """Tell whether data has to wait as markers do, because a former owner may still believe in its lease.

    The leader decides between two owners by what it remembers of their producer. Where it knows nothing, and where it may
    forget from one batch to the next, since it counts from the times of the records, it would take the same batch from both.
    """
    if one.may_fill(0.0):  # nobody is waited for
        return False
    return one.writer.epoch < 0 or step.max_timestamp < now_ms() - REMEMBERED_MS


def _inherited(one: MirrorPartition) -> tuple[int, int] | None:
    """What the former owner left, if it can be relied on: clean, lately, and the source's leader is the one it read from.

    Nor is a leader of an older epoch to be relied on: it may have been set back, and have other records since. Nor, later on,
    one of the same: set back to a snapshot, a cluster counts its epochs once more.
    """
    seen = one.grant.vouched if one.grant is not None and one.grant.clean else None
    same = seen is not None and one.origin is not None and one.origin.leader.epoch == seen[0]
    return seen if same else None


def _left_end(one: MirrorPartition) -> int | None:
    """Where the former owner left the mirror, whatever it read from.

    Only of a life that has been reported of: a stop while the lease's memory is away lets what was left before stay there.
    """
    seen = _left(one)
    return seen[1] if seen is not None and one.assignment.source_seen is not None else None


def _left(one: MirrorPartition) -> tuple[int, int] | None:
    return one.grant.seen if one.grant is not None and one.grant.clean else None

"""What a partition looks like from outside: its phase, and the observation that its task reports. No I/O."""

from __future__ import annotations

from linkengine.copyjob.account import RECENT_MS
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Stage, Trouble
from linkengine.domain.plans import PartitionPhase, PartitionProgress


def phase_of(one: MirrorPartition) -> PartitionPhase:
    """Name this moment."""
    trouble = _trouble(one)
    if one.failure:
        return PartitionPhase.FAILED
    if one.stage is Stage.ENDED:
        return PartitionPhase.RELEASED
    if one.stage is Stage.WAITING:
        return PartitionPhase.WAITING
    if trouble:
        return trouble.phase
    # a hold that begins says nothing yet: the trouble that ended the last one may still be there
    return PartitionPhase.COPYING if one.account.moving else PartitionPhase.WAITING


def progress_of(one: MirrorPartition, *, now_ms: int, gaps_of_ms: int | None = RECENT_MS) -> PartitionProgress:
    """Answer the observation of this moment, with the gaps of so many ms, or all that are remembered (None)."""
    account, trouble, proven = one.account, _trouble(one), one.to_prove is None
    account.measure(now_ms)
    in_sight = one.source_trouble is None and proven  # else it has moved on unseen: the lag is unknown
    return PartitionProgress(
        key=one.key,
        hold_id=one.hold_id,
        phase=phase_of(one),
        observed_at_ms=now_ms,
        generation=0 if one.grant is None else one.grant.generation,
        source_start=account.source_start,
        source_end=account.source_end if in_sight else None,
        source_high_watermark=account.source_high_watermark if in_sight else None,
        source_seen_at_ms=account.source_heard_ms if in_sight else None,
        mirror_start=account.mirror_start,
        mirror_end=account.mirror_end if proven else None,
        unproven_end=None if proven else account.mirror_end,
        set_back_to=account.set_back_to,
        set_backs=account.set_backs,
        last_fetch_offset=None if one.position is None or one.position == 0 else one.position - 1,
        source_epoch=one.past.epoch_of(one.origin),
        last_timestamp_ms=account.last_timestamp_ms,
        caught_up_at_ms=account.caught_up_at_ms,
        bytes_copied=account.bytes_copied,
        records_copied=account.records_copied,
        bytes_per_s=account.bytes_per_s,
        records_per_s=account.records_per_s,
        error_code=trouble.code if trouble else "",
        error_message=trouble.message if trouble else "",
        source_kept=trouble.source_kept if trouble else None,
        failed_at_ms=trouble.at_ms if trouble else None,
        gaps=account.gaps(since_ms=0 if gaps_of_ms is None else now_ms - gaps_of_ms),
        life=one.assignment.life,
        since_ms=one.assignment.since_ms,
    )


def _trouble(one: MirrorPartition) -> Trouble | None:
    if one.stage is Stage.ENDED and not one.failure:
        return one.parting
    return one.failure or one.source_trouble or one.mirror_trouble

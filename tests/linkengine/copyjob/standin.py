"""A copy loop that copies nothing: holds the leases of its share until the slice ends, then reports. Runs in executors."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import structlog

from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders
from linkengine.coordination.progress import RedisProgress
from linkengine.copyjob.ports import Clock
from linkengine.domain.plans import CopyPlan, PartitionAssignment, PartitionPhase, PartitionProgress


def hold_leases(
    plan: CopyPlan,
    share: Sequence[PartitionAssignment],
    *,
    lease: RedisLease,
    orders: RedisOrders,
    progress: RedisProgress,
    clock: Clock,
    allowance: object = None,
) -> list[PartitionProgress]:
    """Take every lease, renew until the slice is over or the orders say stop; tell the process id as the mirror's end."""
    ends_at = clock.monotonic() + plan.tuning.slice_ms / 1000
    grants = {}
    while clock.monotonic() < ends_at:
        for one in share:
            if one.key not in grants and (grant := lease.acquire(one.key, plan.slice_id)):
                grants[one.key] = grant
        lease.renew(grants.values())
        progress.report([_seen(plan, one, generation=grants[one.key].generation) for one in share if one.key in grants])
        news = orders.read()
        if news and not all(news.wanted.get(one.mirror_id, False) for one in share):
            break
        time.sleep(0.01)
    for grant in grants.values():
        lease.release(grant)
    return [_seen(plan, one, generation=grants[one.key].generation if one.key in grants else 0) for one in share]


def outlive_the_slice(
    plan: CopyPlan, share: Sequence[PartitionAssignment], *, orders: RedisOrders, **_: object
) -> list[PartitionProgress]:
    """Hang until there are orders, or for a minute, whatever the plan says."""
    gives_up_at = time.monotonic() + 60
    while orders.read() is None and time.monotonic() < gives_up_at:
        time.sleep(0.05)
    return [_seen(plan, one, generation=0) for one in share]


def _seen(plan: CopyPlan, one: PartitionAssignment, *, generation: int) -> PartitionProgress:
    return PartitionProgress(
        key=one.key,
        slice_id=plan.slice_id,
        phase=PartitionPhase.COPYING,
        observed_at_ms=time.time_ns() // 1_000_000,
        source_end=generation,
        source_seen_at_ms=time.time_ns() // 1_000_000,
        mirror_end=os.getpid(),
    )


def write_a_log_line(plan: CopyPlan, share: Sequence[PartitionAssignment], **_: object) -> list[PartitionProgress]:
    """Stand where the copy loop does, and log something."""
    structlog.get_logger("standin").warning("standin.wrote", plan=plan.link_id)
    return [_seen(plan, one, generation=0) for one in share]

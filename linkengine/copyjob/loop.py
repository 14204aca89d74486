"""The copy loop: all partitions of one task, from their leases to their release, in one thread over epoll.

The loop owns the partitions' state; its helpers own connections (``intake``, ``outlet``), threads (``background``) and Redis
(``steward``). It returns when every partition has ended: the slice is over, the orders changed, or they failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

import structlog

from linkengine.copyjob.asking import is_settled
from linkengine.copyjob.background import Background
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import BufferPool
from linkengine.copyjob.mirrorside import MirrorSide
from linkengine.copyjob.observing import progress_of
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.partition import MirrorPartition
from linkengine.copyjob.pieces import Chunk, Stage
from linkengine.copyjob.poller import Poller
from linkengine.copyjob.ports import Allowance, Clock, Lease, Orders, ProgressSink, SystemClock
from linkengine.copyjob.reporting import Turns
from linkengine.copyjob.sourceside import SourceSide
from linkengine.copyjob.steward import Steward, StewardEvents
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.leases import Grant, OrdersSnapshot
from linkengine.domain.plans import CopyPlan, PartitionAssignment, PartitionProgress

_log = structlog.get_logger(__name__)

TICK_S = 0.02  # how late a timer may be; sockets and events wake the loop at once
# between looks at every single partition, and more for each: leases that ran out, phases to tell (each append looks by itself)
SCAN_S, SCAN_EACH_S = 0.1, 0.001
DRAIN_S = 5.0  # after the order to stop: for answers in flight, before the lease is left to run out


def run_task(
    plan: CopyPlan,
    assignments: Sequence[PartitionAssignment],
    *,
    lease: Lease,
    orders: Orders,
    progress: ProgressSink,
    clock: Clock | None = None,
    allowance: Allowance | None = None,
) -> list[PartitionProgress]:
    """Copy the partitions until the slice ends, the orders change or nothing is left to do; answer the last observations.

    Waits for each partition's lease first. Errors of single partitions or brokers are in the observations; only bugs raise.
    The answer lists all gaps of the slice; reports on the way list those of the last ten seconds (and all that is lost), so
    that whoever reads them merges.
    """
    task = CopyTask(
        plan, assignments, lease=lease, orders=orders, progress=progress, clock=clock or SystemClock(), allowance=allowance
    )
    try:
        return task.run()
    finally:
        task.close()


class CopyTask:
    """One run of the loop."""

    def __init__(
        self,
        plan: CopyPlan,
        assignments: Sequence[PartitionAssignment],
        *,
        lease: Lease,
        orders: Orders,
        progress: ProgressSink,
        clock: Clock,
        allowance: Allowance | None = None,
    ) -> None:
        self._plan, self._clock, self._lease = plan, clock, lease
        self._partitions = {one.key: MirrorPartition(one, slice_id=plan.slice_id) for one in assignments}
        self._turns = Turns(self._partitions.values(), every_s=plan.tuning.progress_ms / 1000)
        self._ends_at = clock.monotonic() + plan.tuning.slice_ms / 1000
        self._living = dict(self._partitions)  # have not ended
        self._stopping: dict[str, float] = {}  # key -> when to stop waiting for answers
        self._orders: OrdersSnapshot | None = None
        self._tick_at = self._scan_at = 0.0
        self._background, self._poller, self._pool = Background(), Poller(), BufferPool()
        limit, shared = max(0, plan.tuning.bytes_per_s), allowance is not None
        self._bandwidth = Bandwidth(limit if shared else limit // plan.tasks, ask=self._spend if shared else None)
        services = Services(
            background=self._background,
            poller=self._poller,
            clock=clock,
            tuning=plan.tuning,
            pool=self._pool,
            bandwidth=self._bandwidth,
        )
        self._source = SourceSide(services, plan.source, planned=self._planned, failed=self._failed, lose=progress.lose)
        self._mirror = MirrorSide(
            services,
            plan.destination,
            may_write=self._may_write,
            arm=lambda some: self._steward.arm([one.grant for one in some if one.grant is not None]),
            advanced=self._advanced,
            failed=self._failed,
            fenced=self._fenced,
            resumed=self._resumed,
        )
        told = StewardEvents(
            granted=self._granted, armed=self._armed, lost=self._lost, ordered=self._ordered, paused=self._paused
        )
        self._steward = Steward(
            plan, self._background, lease=lease, orders=orders, progress=progress, clock=clock, events=told, allowance=allowance
        )

    def run(self) -> list[PartitionProgress]:
        """Run until every partition has ended."""
        self._poller.watch(self._background, lambda _readable, _writable: self._background.run_events())
        self._steward.start()
        for one in self._partitions.values():
            self._steward.want(one.key)
            self._source.add(one)
            self._mirror.warm_up(one)
        while self._living:
            self._poller.wait(self._patience())
            now = self._clock.monotonic()
            self._source.pump(now)  # first: the source reads while we write
            self._mirror.pump(now)
            self._source.pump(now)
            if now >= self._tick_at:
                self._tick(now)
        return self._observations(self._partitions.values(), all_gaps=True)

    def _patience(self) -> float:
        return min(TICK_S, max(0.0, self._source.due() - self._clock.monotonic()))

    def close(self) -> None:
        """Publish the last observations and close everything."""
        self._report(self._partitions.values())
        self._steward.finish()
        self._source.close()
        self._mirror.close()
        self._poller.close()
        self._background.close()

    # --- time --------------------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        self._tick_at = now + TICK_S
        if now >= self._ends_at:
            self._stop(self._living.values())
        self._source.tick(now)
        self._mirror.tick(now)
        if self._source.starved(now):
            self._detach_waiting_chunks()
        self._end_what_is_quiet(now)
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S + SCAN_EACH_S * len(self._living)
            self._check_leases(now)
            self._report(self._turns.changed())
        self._report(self._turns.due(now))

    def _check_leases(self, now: float) -> None:
        for one in list(self._living.values()):
            if one.grant is not None and now >= self._lease.deadline(one.grant):
                self._dispossess(one)

    def _end_what_is_quiet(self, now: float) -> None:
        for key, patience in list(self._stopping.items()):
            one = self._partitions[key]
            if one.quiet or now >= patience:
                self._end(one)

    def _end(self, one: MirrorPartition) -> None:
        self._mirror.let_go(one, one.end())
        self._mirror.forget(one)
        self._source.forget(one)
        del self._living[one.key], self._stopping[one.key]
        self._scan_at = 0.0  # tell it soon
        if one.grant is None:
            self._steward.unwant(one.key, settled=partial(is_settled, one))
        elif one.quiet and one.lost_marker is None and not one.loose_appends:
            self._steward.release(one.grant, seen=one.handed_over, clean=is_settled(one, one.grant))
        else:
            self._steward.abandon(one.grant)

    def _report(self, some: Collection[MirrorPartition]) -> None:
        if some:
            self._steward.report(self._observations(some))

    def _observations(self, some: Collection[MirrorPartition], *, all_gaps: bool = False) -> list[PartitionProgress]:
        for one in some:
            self._source.note_unchanged(one)
        now_ms = self._clock.now_ms()
        return [progress_of(one, now_ms=now_ms, all_gaps=all_gaps) for one in some]

    def _detach_waiting_chunks(self) -> None:
        """A slow destination holds all receive buffers: copy what waits, so that other partitions can go on."""
        for one in self._partitions.values():
            for chunk in one.chunks:
                chunk.detach(self._pool)
        self._mirror.own_unsent()

    # --- what the steward tells --------------------------------------------------------------------------------------

    def _granted(self, grants: list[Grant]) -> None:
        for grant in grants:
            one = self._partitions[grant.key]
            if one.stage is Stage.WAITING:
                one.granted(grant)
                self._source.inherited(one)
                self._mirror.resume(one)
            elif one.stage is not Stage.ENDED:  # else it was given back when nobody wanted it any more
                self._steward.release(grant, seen=grant.vouched, clean=is_settled(one, grant))

    def _armed(self, grants: list[Grant]) -> None:
        for one in (self._partitions[grant.key] for grant in grants if grant == self._partitions[grant.key].grant):
            one.armed = True

    def _lost(self, keys: set[str]) -> None:
        for key in keys:
            if self._partitions[key].grant is not None:
                self._dispossess(self._partitions[key])

    def _dispossess(self, one: MirrorPartition) -> None:
        _log.warning("lease.lost", partition=one.key)
        stopping, grant = one.stage is Stage.STOPPING, one.grant
        self._let_go(one, one.dispossessed())
        self._mirror.forget(one)
        if grant is not None:
            self._steward.abandon(grant)
        if stopping:
            one.stage = Stage.STOPPING  # its time to drain goes on
        else:
            self._steward.want(one.key)

    def _spend(self, size: int) -> None:
        self._steward.spend(size)

    def _paused(self, pause_s: float) -> None:
        self._bandwidth.granted(pause_s, self._clock.monotonic())

    def _ordered(self, orders: OrdersSnapshot) -> None:
        if orders == self._orders:
            return
        self._orders = orders
        if orders.revision > self._plan.revision:
            self._stop(self._living.values())
        self._stop(
            one for one in self._living.values() if not orders.let_go_on(one.assignment.mirror_id, life=one.assignment.life)
        )

    def _stop(self, partitions: Iterable[MirrorPartition]) -> None:
        for one in list(partitions):
            if one.stage not in (Stage.STOPPING, Stage.ENDED):
                self._let_go(one, one.stop())
        self._end_what_is_quiet(self._clock.monotonic())

    # --- what the sides tell -----------------------------------------------------------------------------------------

    def _may_write(self, one: MirrorPartition) -> bool:
        return one.grant is not None and self._clock.monotonic() < self._lease.deadline(one.grant)

    def _planned(self, one: MirrorPartition) -> None:
        self._mirror.wake(one)  # sent at the end of this turn, together with others

    def _advanced(self, one: MirrorPartition) -> None:
        if one.stage is Stage.STOPPING:
            self._end_what_is_quiet(self._clock.monotonic())  # somebody may be waiting for the lease
        self._source.wake(one)

    def _resumed(self, one: MirrorPartition) -> None:
        assert one.grant is not None
        if one.writer.generation > one.grant.generation:
            self._steward.raise_generation(one.key, one.writer.generation)
        self._source.wake(one)

    def _failed(self, one: MirrorPartition, error: LinkEngineError) -> None:
        _log.error("partition.failed", partition=one.key, code=error.code, reason=error.message)
        self._let_go(one, one.fail(error))

    def _fenced(self, one: MirrorPartition, error: LinkEngineError) -> None:
        """Somebody newer writes this mirror, or it was stopped: leave it alone for the rest of the slice."""
        _log.warning("partition.fenced", partition=one.key, reason=error.message)
        grant = one.grant
        self._let_go(one, one.dispossessed())
        self._let_go(one, one.stop())
        if grant is not None:
            self._steward.abandon(grant)

    def _let_go(self, one: MirrorPartition, chunks: list[Chunk]) -> None:
        self._mirror.let_go(one, chunks)
        self._source.wake(one)
        if one.stage is Stage.STOPPING:
            self._stopping.setdefault(one.key, self._clock.monotonic() + DRAIN_S)

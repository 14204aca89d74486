"""Copies the partitions of a link that are assigned to this worker, from acquiring each lease to releasing it.

The worker's loop calls it (``pump``, ``tick``). It owns the partitions' state; its helpers own connections (``source``,
``destination``) and threads (``event_loop``). Partitions are added and removed while it runs. Whatever the link's settings
decide (addresses, credentials, limits) is fixed for the life of a LinkCopy: when a setting changes, the worker retires it and
creates another.

How a partition ends decides what happens to its lease:

| end | lease |
|---|---|
| all requests acknowledged, none can still be written late | released: the next owner gets it at once |
| requests still in flight after ``DRAIN_S``, or fenced | left to expire: the next owner has to expect late writes |
| lease lost | not touched; the partition waits for a new lease, unless it was stopping |

A release is clean if no marker of an earlier owner can still be written either (``partition_state.has_no_late_markers``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, KeysView, Mapping
from dataclasses import dataclass, replace
from functools import partial

import structlog

from linkengine.copyjob.broker_link import Services, stagger_of
from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.coordination_thread import CoordinationThread, Lease, ProgressSink
from linkengine.copyjob.destination.side import DestinationSide
from linkengine.copyjob.event_loop import Background, Guard, GuardedPoller, LinkThreads, Poller
from linkengine.copyjob.pacing import Bandwidth, Clock
from linkengine.copyjob.partition_counters import RECENT_MS
from linkengine.copyjob.partition_state import OVERLAP_S, PartitionState, has_no_late_markers
from linkengine.copyjob.progress_reports import ReportSchedule, progress_of
from linkengine.copyjob.source.side import SourceSide
from linkengine.copyjob.values import Chunk, Stage
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.plans import CopyPlan, PartitionAssignment, PartitionProgress
from linkengine.domain.workers import Grant

_log = structlog.get_logger(__name__)

# Pause between scans of all partitions, and additional pause per partition. A scan finds expired leases and changed phases. A
# late scan cannot damage a mirror: each append checks its lease.
SCAN_S, SCAN_EACH_S = 0.1, 0.001
DRAIN_S = 5.0  # wait for responses after a stop; then the lease is left to expire
FENCED_RETRY_S = 10.0  # until a fenced partition that is still assigned is tried again: the mirror may have been restored since
# until a partition that failed permanently and is still assigned is tried again: a promotion may wait for it
FAILED_RETRY_S = 60.0
KEEP_S = 60.0  # between two persistent reports of a partition with filled gaps; Redis keeps them until they are processed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The services that all links of a worker share."""

    background: Background
    poller: Poller
    clock: Clock
    lease: Lease
    lease_ttl_s: float
    coordination: CoordinationThread
    progress: ProgressSink  # losses are reported from a link's own threads
    has_shared_budget: bool  # whether all workers of a link share a bandwidth budget
    next_copy_run_id: Callable[[], str]
    ahead: AheadMemory


class LinkCopy:
    """A worker's copy of a link."""

    def __init__(
        self, plan: CopyPlan, shared: Shared, *, guard: Guard, expiring_leases: Mapping[str, float] | None = None
    ) -> None:
        """Start the plan's partitions; ``expiring_leases`` is that of the preceding LinkCopy of this link."""
        self.plan, self._shared, self._clock = plan, shared, shared.clock
        self._lease, self._coordination = shared.lease, shared.coordination
        self._partitions: dict[str, PartitionState] = {}  # including ended partitions that are still assigned
        self._active: dict[str, PartitionState] = {}
        self._stopping: dict[str, float] = {}  # key -> when to stop waiting for responses
        self._assignments: dict[str, PartitionAssignment] = {}
        self._start_at: dict[str, float] = {}  # key -> when to start an assigned partition that does not run yet
        self.expiring_leases = dict(expiring_leases or {})  # key -> when a lease that was left to expire has expired
        stagger = stagger_of(plan.link_id)
        self._report_schedule = ReportSchedule(every_s=plan.tuning.progress_ms / 1000, stagger=stagger)
        self._persist_at: dict[str, float] = {}
        self._scan_at = 0.0
        self._bytes_of_ended = 0  # copied bytes of partitions that have ended
        self.pool = BufferPool()
        self._threads = LinkThreads(shared.background, guard=guard)
        limit = max(0, plan.tuning.bytes_per_s)
        own_limit = limit if shared.has_shared_budget else -(-limit // max(1, plan.workers))
        self._bandwidth = Bandwidth(own_limit, spend_shared=self._spend if shared.has_shared_budget else None)
        services = Services(
            background=self._threads,
            poller=GuardedPoller(shared.poller, guard=guard),
            clock=shared.clock,
            tuning=plan.tuning,
            pool=self.pool,
            ahead=shared.ahead,
            bandwidth=self._bandwidth,
            stagger=stagger,
        )
        lose = partial(shared.progress.report_loss, plan.link_id)
        self._source = SourceSide(services, plan.source, planned=self._planned, failed=self._failed, lose=lose)
        self._destination = DestinationSide(
            services,
            plan.destination,
            may_write=self._may_write,
            announce_markers=lambda unannounced: self._coordination.announce_markers(
                [partition.grant for partition in unannounced if partition.grant is not None]
            ),
            advanced=self._advanced,
            failed=self._failed,
            fenced=self._fenced,
            resumed=self._resumed,
            read_starts=self._source.read_starts,
        )
        self.follow(plan)

    # --- assignments -------------------------------------------------------------------------------------------------

    def suits(self, plan: CopyPlan) -> bool:
        """Return whether a plan uses the same connections and limits as this LinkCopy."""
        current = self.plan
        same = current.revision == plan.revision and current.tuning == plan.tuning
        return same and (current.source, current.destination) == (plan.source, plan.destination)

    def follow(self, plan: CopyPlan) -> None:
        """Start partitions that are new in the plan, and release those that are no longer in it."""
        self.plan, before = plan, self._assignments
        self._assignments = {assignment.key: assignment for assignment in plan.assignments}
        for key in before.keys() - self._assignments.keys():
            self._start_at.pop(key, None)
            self._release(key)
        for key, assignment in self._assignments.items():
            partition = self._partitions.get(key)
            if partition is None:
                self._start_at.setdefault(key, 0.0)
            elif _is_same(partition.assignment, assignment):
                partition.assignment = assignment
            else:  # the mirror has other topics since: it was restored, reversed or moved
                self._start_at[key] = 0.0
                self._release(key)
        self._start_due(self._clock.monotonic())

    def retire(self) -> None:
        """Stop all partitions and release their leases."""
        self._assignments = {}
        self._start_at.clear()
        for key in list(self._partitions):
            self._release(key)

    @property
    def is_over(self) -> bool:
        """Whether all partitions have ended, so that this LinkCopy can be closed."""
        return not self._partitions and not self._start_at

    @property
    def partitions(self) -> int:
        """Number of partitions that have not ended."""
        return len(self._active)

    @property
    def bytes_copied(self) -> int:
        """Bytes copied by this LinkCopy."""
        return self._bytes_of_ended + sum(partition.counters.bytes_copied for partition in self._active.values())

    @property
    def keys(self) -> KeysView[str]:
        """Keys of the partitions that this LinkCopy has."""
        return self._partitions.keys()

    # --- calls of the loop -------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Send the Fetch and Produce requests that can be sent now."""
        self._source.pump(now)  # first: the source reads while records are written
        self._destination.pump(now)
        self._source.pump(now)

    def due(self) -> float:
        """Return when the next request may be sent (monotonic seconds); infinite while responses are awaited."""
        return self._source.due()

    def tick(self, now: float) -> None:
        """Do everything whose time has come: starts, retries, timeouts, expired leases, reports."""
        self._start_due(now)
        self._source.tick(now)
        self._destination.tick(now)
        if self._source.starved(now):
            self._detach_waiting_chunks()
        self._end_drained(now)
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S + SCAN_EACH_S * len(self._partitions)
            self._check_leases(now)
            self._report(self._report_schedule.changed())
            self._persist_gaps(now)
        self._report(self._report_schedule.due(now))

    def close(self) -> None:
        """Close connections and threads without waiting for responses. Leases that are still held are left to expire."""
        for partition in list(self._active.values()):
            if partition.grant is not None:
                self._expire_lease(partition.key, partition.grant)
            else:
                self._coordination.stop_acquiring(partition.key, settled=partial(has_no_late_markers, partition))
        self._report(self._active.values())
        self._threads.close()
        self._source.close()
        self._destination.close()

    def _start_due(self, now: float) -> None:
        for key in [key for key, at in self._start_at.items() if at <= now and self.expiring_leases.get(key, 0.0) <= now]:
            self.expiring_leases.pop(key, None)
            old = self._partitions.get(key)
            if old is not None and old.stage is not Stage.ENDED:
                continue
            del self._start_at[key]
            if old is not None:
                self._drop(old)
            partition = PartitionState(self._assignments[key], copy_run_id=self._shared.next_copy_run_id())
            self._partitions[key] = self._active[key] = partition
            self._report_schedule.add(partition)
            self._coordination.acquire(key)
            self._source.add(partition)

    def _release(self, key: str) -> None:
        partition = self._partitions.get(key)
        if partition is not None and partition.stage is Stage.ENDED:
            self._drop(partition)
        elif partition is not None:
            self._stop([partition])

    def _drop(self, partition: PartitionState) -> None:
        self._report([partition])
        self._report_schedule.drop(partition)
        del self._partitions[partition.key]

    def _check_leases(self, now: float) -> None:
        for partition in list(self._active.values()):
            if partition.grant is not None and now >= self._lease.deadline(partition.grant):
                self._lose_lease(partition)

    def _end_drained(self, now: float) -> None:
        for key, drained_by in list(self._stopping.items()):
            partition = self._active[key]
            if partition.is_drained or now >= drained_by:
                self._end(partition, now)

    def _end(self, partition: PartitionState, now: float) -> None:
        self._destination.release_buffers(partition, partition.end())
        self._destination.forget(partition)
        self._source.forget(partition)
        del self._active[partition.key], self._stopping[partition.key]
        self._bytes_of_ended += partition.counters.bytes_copied
        self._persist_at.pop(partition.key, None)
        (final,) = self._observations([partition], gaps_of_ms=None)
        if _is_news(final):
            self._coordination.keep(self.plan.link_id, final)  # before the release, after which the next owner reports
        self._release_lease(partition)
        if partition.key not in self._assignments:
            self._drop(partition)
        elif partition.key not in self._start_at:  # it failed or was fenced
            self._report([partition])
            self._start_at[partition.key] = now + (FAILED_RETRY_S if partition.failure else FENCED_RETRY_S)

    def _release_lease(self, partition: PartitionState) -> None:
        if partition.grant is None:
            self._coordination.stop_acquiring(partition.key, settled=partial(has_no_late_markers, partition))
        elif partition.is_drained and partition.lost_marker is None and not partition.late_appends:
            self._coordination.release(
                partition.grant, seen=partition.handed_over, clean=has_no_late_markers(partition, partition.grant)
            )
        else:
            self._expire_lease(partition.key, partition.grant)

    def _expire_lease(self, key: str, grant: Grant) -> None:
        """Stop renewing a lease, so that it expires.

        This worker waits for the expiry as well: Redis would grant the lease to the same owner at once.
        """
        self._coordination.expire_lease(grant)
        self.expiring_leases[key] = self._clock.monotonic() + self._shared.lease_ttl_s + OVERLAP_S

    def _report(self, partitions: Collection[PartitionState]) -> None:
        observations = self._observations(partitions)
        if observations:
            self._coordination.report(self.plan.link_id, observations)

    def _persist_gaps(self, now: float) -> None:
        """Persist the gaps of each partition every KEEP_S, then drop them from memory; staggered, since each takes some time.

        A persistent report stays in Redis until it is in the gap ledger, even if no reconciler runs.
        """
        for partition in self._active.values():
            if now < self._persist_at.setdefault(partition.key, now + KEEP_S * (1.0 - stagger_of(partition.key))):
                continue
            self._persist_at[partition.key] = now + KEEP_S
            (observation,) = self._observations([partition], gaps_of_ms=int(KEEP_S * 1000) + RECENT_MS)
            if observation.gaps:
                self._coordination.keep(self.plan.link_id, observation)
                partition.counters.forget_gaps(self._clock.now_ms() - RECENT_MS)

    def _observations(
        self, partitions: Iterable[PartitionState], *, gaps_of_ms: int | None = RECENT_MS
    ) -> list[PartitionProgress]:
        now_ms, observations = self._clock.now_ms(), []
        for partition in partitions:
            self._source.note_unchanged(partition)
            observations.append(progress_of(partition, now_ms=now_ms, gaps_of_ms=gaps_of_ms))
        return observations

    def _detach_waiting_chunks(self) -> None:
        """Copy waiting chunks out of the receive buffers that a slow destination holds, so that others can fetch."""
        for partition in self._active.values():
            for chunk in partition.chunks:
                chunk.detach(self.pool)
        self._destination.own_unsent()

    # --- events of the coordination thread ---------------------------------------------------------------------------

    def granted(self, grant: Grant) -> None:
        """Start copying under a lease that was granted; release it if the partition is no longer wanted."""
        partition = self._partitions.get(grant.key)
        if partition is not None and partition.stage is Stage.WAITING:
            partition.start_hold(grant)
            self._source.inherited(partition)
            self._destination.resume(partition)
        elif partition is not None and partition.stage is not Stage.ENDED:  # else ``stop_acquiring`` releases it
            self._coordination.release(grant, seen=grant.trusted_seen, clean=has_no_late_markers(partition, grant))

    def markers_announced(self, grant: Grant) -> None:
        """Allow markers to be sent: the lease now records that they may be in flight."""
        partition = self._partitions.get(grant.key)
        if partition is not None and partition.grant == grant:
            partition.may_send_markers = True

    def lost(self, key: str) -> None:
        """Stop writing to a partition whose lease was lost."""
        partition = self._active.get(key)
        if partition is not None and partition.grant is not None:
            self._lose_lease(partition)

    def paused(self, pause_s: float) -> None:
        """Continue fetching after ``pause_s``, when the bandwidth limit allows more."""
        self._bandwidth.granted(pause_s, self._clock.monotonic())

    def _lose_lease(self, partition: PartitionState) -> None:
        _log.warning("lease.lost", partition=partition.key)
        stopping, grant = partition.stage is Stage.STOPPING, partition.grant
        self._discard(partition, partition.end_hold())
        self._destination.forget(partition)
        if grant is not None:
            self._coordination.expire_lease(grant)
        if stopping:
            partition.stage = Stage.STOPPING  # its drain time keeps running
        else:
            self._coordination.acquire(partition.key)

    def _spend(self, size: int) -> None:
        limit = self._bandwidth.bytes_per_s
        fallback_pause_s = size * max(1, self.plan.workers) / limit
        self._coordination.spend(self.plan.link_id, size, bytes_per_s=limit, otherwise_s=fallback_pause_s)

    def _stop(self, partitions: Iterable[PartitionState]) -> None:
        for partition in list(partitions):
            if partition.stage not in (Stage.STOPPING, Stage.ENDED):
                self._discard(partition, partition.stop())
        self._end_drained(self._clock.monotonic())

    # --- events of the source side and the destination side ----------------------------------------------------------

    def _may_write(self, partition: PartitionState) -> bool:
        return partition.grant is not None and self._clock.monotonic() < self._lease.deadline(partition.grant)

    def _planned(self, partition: PartitionState) -> None:
        self._destination.wake(partition)  # sent at the end of this iteration of the loop, together with other partitions

    def _advanced(self, partition: PartitionState) -> None:
        if partition.stage is Stage.STOPPING:
            self._end_drained(self._clock.monotonic())  # another worker may be waiting for the lease
        self._source.wake(partition)

    def _resumed(self, partition: PartitionState) -> None:
        assert partition.grant is not None
        if partition.producer_state.generation > partition.grant.generation:
            self._coordination.raise_generation(partition.key, partition.producer_state.generation)
        self._source.wake(partition)

    def _failed(self, partition: PartitionState, error: LinkEngineError) -> None:
        _log.error("partition.failed", partition=partition.key, code=error.code, reason=error.message)
        self._discard(partition, partition.fail(error))

    def _fenced(self, partition: PartitionState, error: LinkEngineError) -> None:
        """Stop a partition that a newer owner writes, or whose mirror was stopped, and let its lease expire.

        It is tried again after FENCED_RETRY_S.
        """
        _log.warning("partition.fenced", partition=partition.key, reason=error.message)
        grant = partition.grant
        self._discard(partition, partition.end_hold())
        self._discard(partition, partition.stop())
        if grant is not None:
            self._expire_lease(partition.key, grant)

    def _discard(self, partition: PartitionState, chunks: list[Chunk]) -> None:
        self._destination.release_buffers(partition, chunks)
        self._source.wake(partition)
        if partition.stage is Stage.STOPPING:
            self._stopping.setdefault(partition.key, self._clock.monotonic() + DRAIN_S)


def _is_same(assignment: PartitionAssignment, other: PartitionAssignment) -> bool:
    """Return whether both assignments name the same topics. Changes of ``source_seen`` and ``since_ms`` need no restart."""
    return assignment == replace(other, source_seen=assignment.source_seen, since_ms=assignment.since_ms)


def _is_news(final: PartitionProgress) -> bool:
    return bool(final.bytes_copied or final.gaps or final.set_backs) or final.source_kept is not None

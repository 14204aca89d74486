"""Copies those partitions of one link that its worker has, from their leases to their release. Turned by the worker's loop.

It owns the partitions' state; its helpers own connections (``intake``, ``outlet``) and threads (``background``). Partitions
come and go while it runs. What the settings of a link decide (addresses, credentials, limits) is fixed for the life of a
LinkCopy: where that changes, the worker lets this one end and makes another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import structlog

from linkengine.copyjob.account import RECENT_MS
from linkengine.copyjob.asking import is_settled
from linkengine.copyjob.background import Background, Guard, Room
from linkengine.copyjob.brokerlink import Services
from linkengine.copyjob.buffers import AheadMemory, BufferPool
from linkengine.copyjob.mirrorside import MirrorSide
from linkengine.copyjob.observing import progress_of
from linkengine.copyjob.pacing import Bandwidth
from linkengine.copyjob.partition import OVERLAP_S, MirrorPartition
from linkengine.copyjob.pieces import Chunk, Stage
from linkengine.copyjob.poller import GuardedPoller, Poller
from linkengine.copyjob.ports import Clock, Lease, ProgressSink
from linkengine.copyjob.reporting import Turns
from linkengine.copyjob.sourceside import SourceSide
from linkengine.copyjob.steward import Steward
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.leases import Grant
from linkengine.domain.plans import CopyPlan, PartitionAssignment, PartitionProgress

_log = structlog.get_logger(__name__)

# between looks at every single partition, and more for each: leases that ran out, phases to tell (each append looks by itself)
SCAN_S, SCAN_EACH_S = 0.1, 0.001
DRAIN_S = 5.0  # after the order to stop: for answers in flight, before the lease is left to run out
FENCED_RETRY_S = 10.0  # who was fenced and is still wanted comes again: the mirror may have been wanted anew
FAILED_RETRY_S = 60.0  # who failed for good and is still wanted: a promotion that waits for it
MANY = 2_500  # partitions of a link; of more, the idle ones report half as often
IDLE_MS = 3_500  # less than two turns of ``reporting.MOST_S``
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms")
_CONTENT = attrgetter(*(field.name for field in fields(PartitionProgress) if field.name not in _TIMES))
KEEP_S = 60.0  # between two reports that stay until they are taken in, of a partition in which gaps are filled


class HoldNames(Protocol):
    """Names holds: each is another one."""

    def __call__(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all links of a worker use."""

    background: Background
    poller: Poller
    clock: Clock
    lease: Lease
    lease_ttl_s: float
    steward: Steward
    progress: ProgressSink  # for losses, which are told from a link's own threads
    limited: bool  # whether there is a budget that all workers share
    name_hold: HoldNames
    ahead: AheadMemory


class LinkCopy:
    """All that a worker does for one link."""

    def __init__(self, plan: CopyPlan, shared: Shared, *, guard: Guard, abandoned: Mapping[str, float] | None = None) -> None:
        """Begin with the plan's partitions; ``abandoned`` is what the LinkCopy before this one tells of itself."""
        self.plan, self._shared, self._clock = plan, shared, shared.clock
        self._lease, self._steward = shared.lease, shared.steward
        self._partitions: dict[str, MirrorPartition] = {}  # those that ended and are still wanted, too
        self._living: dict[str, MirrorPartition] = {}
        self._stopping: dict[str, float] = {}  # key -> when to stop waiting for answers
        self._wanted: dict[str, PartitionAssignment] = {}
        self._begin_at: dict[str, float] = {}  # wanted, and not begun yet
        self.abandoned = dict(abandoned or {})  # leases that were left to run out, and when they have
        self._turns = Turns(every_s=plan.tuning.progress_ms / 1000)
        self._keep_at: dict[str, float] = {}
        self._reported: dict[str, tuple[int, object]] = {}  # when, and the last report without its times
        self._scan_at = 0.0
        self._moved_bytes = 0  # by partitions that have ended
        self.pool = BufferPool()
        self._room = Room(shared.background, guard=guard)
        limit = max(0, plan.tuning.bytes_per_s)
        own_share = limit if shared.limited else -(-limit // max(1, plan.workers))
        self._bandwidth = Bandwidth(own_share, ask=self._spend if shared.limited else None)
        services = Services(
            background=self._room,
            poller=GuardedPoller(shared.poller, guard=guard),
            clock=shared.clock,
            tuning=plan.tuning,
            pool=self.pool,
            ahead=shared.ahead,
            bandwidth=self._bandwidth,
        )
        lose = partial(shared.progress.lose, plan.link_id)
        self._source = SourceSide(services, plan.source, planned=self._planned, failed=self._failed, lose=lose)
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
        self.follow(plan)

    # --- what is wanted ----------------------------------------------------------------------------------------------

    def suits(self, plan: CopyPlan) -> bool:
        """Tell whether a plan asks for the connections and limits that this one has."""
        ours = self.plan
        same = ours.revision == plan.revision and ours.tuning == plan.tuning
        return same and (ours.source, ours.destination) == (plan.source, plan.destination)

    def follow(self, plan: CopyPlan) -> None:
        """Begin with partitions that are new in the plan, and let go of those that are not in it any more."""
        self.plan, before = plan, self._wanted
        self._wanted = {one.key: one for one in plan.assignments}
        for key in before.keys() - self._wanted.keys():
            self._begin_at.pop(key, None)
            self._dismiss(key)
        for key, assignment in self._wanted.items():
            one = self._partitions.get(key)
            if one is None:
                self._begin_at.setdefault(key, 0.0)
            elif _is_same(one.assignment, assignment):
                one.assignment = assignment
            else:  # the mirror has another life: other topics
                self._begin_at[key] = 0.0
                self._dismiss(key)
        self._begin_due(self._clock.monotonic())

    def retire(self) -> None:
        """Let go of everything."""
        self._wanted = {}
        self._begin_at.clear()
        for key in list(self._partitions):
            self._dismiss(key)

    @property
    def over(self) -> bool:
        """Whether nothing is left to wait for."""
        return not self._partitions and not self._begin_at

    @property
    def partitions(self) -> int:
        """How many partitions were not let go of."""
        return len(self._living)

    @property
    def moved_bytes(self) -> int:
        """Bytes copied since the link is copied here."""
        return self._moved_bytes + sum(one.account.bytes_copied for one in self._living.values())

    @property
    def keys(self) -> KeysView[str]:
        """Names of the partitions that are here."""
        return self._partitions.keys()

    # --- turns -------------------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Send and ask for what can be."""
        self._source.pump(now)  # first: the source reads while we write
        self._mirror.pump(now)
        self._source.pump(now)

    def due(self) -> float:
        """Answer when the next request may go out; infinite while answers are awaited."""
        return self._source.due()

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._begin_due(now)
        self._source.tick(now)
        self._mirror.tick(now)
        if self._source.starved(now):
            self._detach_waiting_chunks()
        self._end_what_is_quiet(now)
        if now >= self._scan_at:
            self._scan_at = now + SCAN_S + SCAN_EACH_S * len(self._partitions)
            self._check_leases(now)
            self._report(self._turns.changed())
            self._keep_gaps(now)
        self._report(self._turns.due(now), routine=True)

    def close(self) -> None:
        """Close everything at once; what was held and not let go of runs out."""
        for one in list(self._living.values()):
            if one.grant is not None:
                self._abandon(one.key, one.grant)
            else:
                self._steward.unwant(one.key, settled=partial(is_settled, one))
        self._report(self._living.values())
        self._room.close()
        self._source.close()
        self._mirror.close()

    def _begin_due(self, now: float) -> None:
        for key in [key for key, at in self._begin_at.items() if at <= now and self.abandoned.get(key, 0.0) <= now]:
            self.abandoned.pop(key, None)
            old = self._partitions.get(key)
            if old is not None and old.stage is not Stage.ENDED:
                continue
            del self._begin_at[key]
            if old is not None:
                self._remove(old)
            one = MirrorPartition(self._wanted[key], hold_id=self._shared.name_hold())
            self._partitions[key] = self._living[key] = one
            self._turns.add(one)
            self._steward.want(key)
            self._source.add(one)

    def _dismiss(self, key: str) -> None:
        one = self._partitions.get(key)
        if one is not None and one.stage is Stage.ENDED:
            self._remove(one)
        elif one is not None:
            self._stop([one])

    def _remove(self, one: MirrorPartition) -> None:
        self._report([one])
        self._turns.drop(one)
        self._reported.pop(one.key, None)
        del self._partitions[one.key]

    def _check_leases(self, now: float) -> None:
        for one in list(self._living.values()):
            if one.grant is not None and now >= self._lease.deadline(one.grant):
                self._dispossess(one)

    def _end_what_is_quiet(self, now: float) -> None:
        for key, patience in list(self._stopping.items()):
            one = self._living[key]
            if one.quiet or now >= patience:
                self._end(one, now)

    def _end(self, one: MirrorPartition, now: float) -> None:
        self._mirror.let_go(one, one.end())
        self._mirror.forget(one)
        self._source.forget(one)
        del self._living[one.key], self._stopping[one.key]
        self._moved_bytes += one.account.bytes_copied
        self._keep_at.pop(one.key, None)
        (last,) = self._observations([one], gaps_of_ms=None)
        if _is_news(last):
            self._steward.keep(self.plan.link_id, last)  # before the lease goes: the next owner reports
        self._give_back(one)
        if one.key not in self._wanted:
            self._remove(one)
        elif one.key not in self._begin_at:  # it ended by itself
            self._report([one])
            self._begin_at[one.key] = now + (FAILED_RETRY_S if one.failure else FENCED_RETRY_S)

    def _give_back(self, one: MirrorPartition) -> None:
        if one.grant is None:
            self._steward.unwant(one.key, settled=partial(is_settled, one))
        elif one.quiet and one.lost_marker is None and not one.loose_appends:
            self._steward.release(one.grant, seen=one.handed_over, clean=is_settled(one, one.grant))
        else:
            self._abandon(one.key, one.grant)

    def _abandon(self, key: str, grant: Grant) -> None:
        """Let a lease run out. Nobody gets it before that, not even we, who are the same to Redis as we were."""
        self._steward.abandon(grant)
        self.abandoned[key] = self._clock.monotonic() + self._shared.lease_ttl_s + OVERLAP_S

    def _report(self, some: Collection[MirrorPartition], *, routine: bool = False) -> None:
        observations = self._observations(some)
        if routine and len(self._partitions) > MANY:
            observations = [one for one in observations if not self._is_told(one)]
        if observations:
            self._reported |= {one.key: (one.observed_at_ms, _CONTENT(one)) for one in observations}
            self._steward.report(self.plan.link_id, observations)

    def _is_told(self, one: PartitionProgress) -> bool:
        """Return whether the last report is recent and differs in nothing but times: these are told every other time."""
        reported_ms, content = self._reported.get(one.key, (0, None))
        return one.observed_at_ms - reported_ms < IDLE_MS and _CONTENT(one) == content

    def _keep_gaps(self, now: float) -> None:
        """Have gaps kept until they are in the ledger, whoever is away meanwhile, and forget them."""
        for one in self._living.values():
            if now < self._keep_at.setdefault(one.key, now + KEEP_S):
                continue
            self._keep_at[one.key] = now + KEEP_S
            (seen,) = self._observations([one], gaps_of_ms=int(KEEP_S * 1000) + RECENT_MS)
            if seen.gaps:
                self._steward.keep(self.plan.link_id, seen)
                one.account.forget_gaps(self._clock.now_ms() - RECENT_MS)

    def _observations(self, some: Iterable[MirrorPartition], *, gaps_of_ms: int | None = RECENT_MS) -> list[PartitionProgress]:
        now_ms, found = self._clock.now_ms(), []
        for one in some:
            self._source.note_unchanged(one)
            found.append(progress_of(one, now_ms=now_ms, gaps_of_ms=gaps_of_ms))
        return found

    def _detach_waiting_chunks(self) -> None:
        """A slow destination holds all receive buffers: copy what waits, so that other partitions can go on."""
        for one in self._living.values():
            for chunk in one.chunks:
                chunk.detach(self.pool)
        self._mirror.own_unsent()

    # --- what the steward tells --------------------------------------------------------------------------------------

    def granted(self, grant: Grant) -> None:
        """A lease is ours."""
        one = self._partitions.get(grant.key)
        if one is not None and one.stage is Stage.WAITING:
            one.granted(grant)
            self._source.inherited(one)
            self._mirror.resume(one)
        elif one is not None and one.stage is not Stage.ENDED:  # else it was given back when nobody wanted it any more
            self._steward.release(grant, seen=grant.vouched, clean=is_settled(one, grant))

    def armed(self, grant: Grant) -> None:
        """It is noted that markers may be sent."""
        one = self._partitions.get(grant.key)
        if one is not None and one.grant == grant:
            one.armed = True

    def lost(self, key: str) -> None:
        """A lease is not ours any more."""
        one = self._living.get(key)
        if one is not None and one.grant is not None:
            self._dispossess(one)

    def paused(self, pause_s: float) -> None:
        """The bandwidth limit allows more after a pause."""
        self._bandwidth.granted(pause_s, self._clock.monotonic())

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
        limit = self._bandwidth.bytes_per_s
        alone_s = size * max(1, self.plan.workers) / limit
        self._steward.spend(self.plan.link_id, size, bytes_per_s=limit, otherwise_s=alone_s)

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
        """Somebody newer writes this mirror, or it was stopped: leave it alone for a while."""
        _log.warning("partition.fenced", partition=one.key, reason=error.message)
        grant = one.grant
        self._let_go(one, one.dispossessed())
        self._let_go(one, one.stop())
        if grant is not None:
            self._abandon(one.key, grant)

    def _let_go(self, one: MirrorPartition, chunks: list[Chunk]) -> None:
        self._mirror.let_go(one, chunks)
        self._source.wake(one)
        if one.stage is Stage.STOPPING:
            self._stopping.setdefault(one.key, self._clock.monotonic() + DRAIN_S)


def _is_same(one: PartitionAssignment, other: PartitionAssignment) -> bool:
    """Tell whether both name the same topics; what was seen of them, and since when, changes by itself."""
    return one == replace(other, source_seen=one.source_seen, since_ms=one.since_ms)


def _is_news(last: PartitionProgress) -> bool:
    return bool(last.bytes_copied or last.gaps or last.set_backs) or last.source_kept is not None

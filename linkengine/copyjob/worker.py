"""The copy worker: one epoll loop that copies partitions of any number of links until its assignments end.

Assignments change while it runs: links and partitions are added and removed, and settings of links change. Each link has its
own connections, threads, buffers and limits (``link_copy``). An unexpected exception in the copy of a link closes that link
and restarts it after a backoff; the other links continue.

The loop blocks on nothing but epoll: name resolution, handshakes, tokens and metadata requests run in background threads, and
Redis is used by a thread of its own (``coordination_thread``).
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from typing import TypeVar

import structlog
from structlog.contextvars import bind_contextvars

from linkengine.copyjob.buffers import AheadMemory
from linkengine.copyjob.coordination_thread import CoordinationEvents, CoordinationPorts, CoordinationThread
from linkengine.copyjob.event_loop import Background, Event, Poller
from linkengine.copyjob.link_copy import LinkCopy, Shared
from linkengine.copyjob.pacing import Clock, SystemClock
from linkengine.domain.plans import CopyPlan
from linkengine.domain.times import pause_s
from linkengine.domain.workers import HEARTBEAT_MS, AssignmentStatus, Executor, Grant, Heartbeat, WorkerAssignments, WorkerSetup

_log = structlog.get_logger(__name__)
T = TypeVar("T")

TICK_S = 0.02  # how late a timer may be; sockets and events wake the loop immediately
IDLE_S = 0.25  # longest wait of a worker without links
TICK_LINKS = 25  # up to this many links are ticked every ``TICK_S``; with more, each is ticked less often
BROKEN_RETRY_S = 6.0  # after an unexpected exception; leases that the link held have expired by then
LONGEST_RETRY_S = 60.0


def run_worker(
    setup: WorkerSetup, *, ports: CoordinationPorts, clock: Clock | None = None, executor: Executor | None = None
) -> None:
    """Copy the assigned partitions until the assignments end. Raises only errors that concern all links."""
    worker = CopyWorker(setup, ports=ports, clock=clock or SystemClock(), executor=executor or Executor())
    try:
        worker.run()
    finally:
        worker.close()


class CopyWorker:
    """The epoll loop with its links: their assignments, timers and failures."""

    def __init__(self, setup: WorkerSetup, *, ports: CoordinationPorts, clock: Clock, executor: Executor) -> None:
        self._setup, self._clock, self._executor = setup, clock, executor
        self._background, self._poller = Background(), Poller()
        events = CoordinationEvents(
            assigned=self._assigned,
            granted=self._granted,
            markers_announced=self._markers_announced,
            lost=self._lost,
            paused=self._paused,
        )
        self._coordination = CoordinationThread(setup, self._background, ports=ports, clock=clock, events=events)
        self._shared = Shared(
            background=self._background,
            poller=self._poller,
            clock=clock,
            lease=ports.lease,
            lease_ttl_s=setup.lease_ttl_ms / 1000,
            coordination=self._coordination,
            progress=ports.progress,
            has_shared_budget=ports.allowances is not None,
            next_copy_run_id=partial(_copy_run_id, f"{setup.worker_id}.{uuid.uuid4().hex[:6]}", count(1)),
            ahead=AheadMemory(changed=self._share_memory, excess=self._memory_excess),
        )
        self._links: dict[str, LinkCopy] = {}
        self._retiring: set[str] = set()  # links that are ending: new settings require a restart, or no partition is assigned
        self._assignments: WorkerAssignments | None = None
        self._to_pump: set[str] = set()  # links with an event since they were pumped
        self._due: dict[str, float] = {}  # when the next request of a link may be sent
        self._tick_at: dict[str, float] = {}
        self._errors: dict[str, str] = {}  # why a link's copy failed unexpectedly
        self._failures: dict[str, int] = {}  # consecutive unexpected failures of a link
        self._retry_at: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}
        self._contexts: dict[str, Context] = {}  # of log lines, by link
        self._entered: set[str] = set()  # links whose context is entered: a Context cannot be entered twice
        self._beat_at, self._last_beat = 0.0, (0.0, 0)  # time and copied bytes at the last heartbeat
        self._started_at_ms = clock.now_ms()

    def run(self) -> None:
        """Run until the assignments end."""
        self._poller.watch(self._background, lambda _readable, _writable: self._background.run_events())
        self._coordination.start()
        while not self._is_over:
            self._poller.wait(self._wait_s())
            now = self._clock.monotonic()
            for link_id in [*self._to_pump, *(key for key, at in self._due.items() if at <= now)]:
                self._pump(link_id, now)
            self._tick(now)
            if now >= self._beat_at:
                self._beat(now)

    def close(self) -> None:
        """Publish the last observations and close all links, threads and sockets."""
        for link_id, link in self._links.items():
            self._guarded(link_id, link.close)
        self._beat(self._clock.monotonic(), ended=True)
        self._coordination.finish()
        self._poller.close()
        self._background.close()

    @property
    def _is_over(self) -> bool:
        return self._assignments is not None and self._assignments.ends and not self._links

    def _wait_s(self) -> float:
        if self._to_pump:
            return 0.0
        if not self._links:
            return IDLE_S  # new assignments wake the loop
        return min(TICK_S, max(0.0, min(self._due.values(), default=TICK_S) - self._clock.monotonic()))

    def _pump(self, link_id: str, now: float) -> None:
        self._to_pump.discard(link_id)
        link = self._links.get(link_id)
        if link is None:
            self._due.pop(link_id, None)
            return
        self._guarded(link_id, partial(link.pump, now), pump=False)
        if link_id in self._links:
            self._due[link_id] = link.due()

    def _tick(self, now: float) -> None:
        interval_s = TICK_S * max(1.0, len(self._links) / TICK_LINKS)
        for link_id, link in list(self._links.items()):
            if now < self._tick_at.get(link_id, 0.0):
                continue
            self._tick_at[link_id] = now + interval_s
            self._guarded(link_id, partial(link.tick, now))
            if link_id in self._retiring and link.is_over:
                self._retired(link_id, link)
        for link_id in [key for key, at in self._retry_at.items() if at <= now]:
            del self._retry_at[link_id]
            self._follow(link_id)

    # --- assignments -------------------------------------------------------------------------------------------------

    def _assigned(self, assignments: WorkerAssignments) -> None:
        before, self._assignments = self._assignments, assignments
        for link_id, plan in assignments.plans.items():
            if before is None or before.plans.get(link_id) is not plan or assignments.ends:
                self._follow(link_id)
        self._beat_at = 0.0  # report the applied assignments immediately

    def _plan_of(self, link_id: str) -> CopyPlan | None:
        return None if self._assignments is None or self._assignments.ends else self._assignments.plans.get(link_id)

    def _follow(self, link_id: str) -> None:
        """Begin, update or retire a link so that it matches its newest plan."""
        plan = self._plan_of(link_id)
        link = self._links.get(link_id)
        if plan is not None:
            self._contexts[link_id] = _context_of(plan)
        if link is None:
            if plan is not None and plan.assignments and link_id not in self._retry_at:
                self._begin(plan)
        elif plan is None or not plan.assignments or not link.suits(plan):
            self._retiring.add(link_id)
            self._guarded(link_id, link.retire)
        elif link_id not in self._retiring:  # else it begins again once the previous copy has ended
            self._guarded(link_id, partial(link.follow, plan))

    def _begin(self, plan: CopyPlan, before: LinkCopy | None = None) -> None:
        link_id = plan.link_id
        try:
            expiring_leases = None if before is None else before.expiring_leases
            begin = partial(
                LinkCopy, plan, self._shared, guard=partial(self._guarded, link_id), expiring_leases=expiring_leases
            )
            link = self._in_context(link_id, begin)
        except Exception as bug:  # noqa: BLE001 - a bug or unexpected input fails this link only
            self._fail(link_id, bug)
            return
        self._links[link_id], self._begun_at[link_id] = link, self._clock.monotonic()
        self._to_pump.add(link_id)
        self._share_memory()

    def _retired(self, link_id: str, link: LinkCopy) -> None:
        """Close a link that has ended, and begin it again if its plan has partitions."""
        self._guarded(link_id, link.close)
        self._drop(link_id)
        plan = self._plan_of(link_id)
        if plan is not None and plan.assignments:
            self._begin(plan, link)

    def _drop(self, link_id: str) -> None:
        self._links.pop(link_id, None)
        self._retiring.discard(link_id)
        for table in (self._due, self._tick_at):
            table.pop(link_id, None)
        self._share_memory()

    def _share_memory(self) -> None:
        for link in self._links.values():
            link.pool.share(len(self._links), beside_ahead=self._shared.ahead.in_use)

    def _memory_excess(self) -> int:
        return sum(link.pool.trim() for link in self._links.values())

    # --- unexpected exceptions -----------------------------------------------------------------------------------------

    def _guarded(self, link_id: str, work: Event, *, pump: bool = True) -> None:
        """Run ``work`` for a link; an exception stops the copy of this link until its retry.

        ``pump``: pump the link in the next iteration.
        """
        if pump:
            self._to_pump.add(link_id)
        try:
            self._in_context(link_id, work)
        except Exception as bug:  # noqa: BLE001 - logged with its traceback, reported by the next heartbeat, retried
            self._fail(link_id, bug)

    def _in_context(self, link_id: str, work: Callable[[], T]) -> T:
        """Run ``work`` so that its log lines name the link and the request that its newest assignments came from.

        A Context is kept per link: entering it takes a tenth of the time of binding and unbinding the values.
        """
        context = self._contexts.get(link_id)
        if context is None or link_id in self._entered:
            return work()
        self._entered.add(link_id)
        try:
            return context.run(work)
        finally:
            self._entered.remove(link_id)

    def _fail(self, link_id: str, bug: Exception) -> None:
        now = self._clock.monotonic()
        ran_long = now - self._begun_at.get(link_id, now) > LONGEST_RETRY_S
        failures = self._failures[link_id] = 1 if ran_long else self._failures.get(link_id, 0) + 1
        self._in_context(link_id, partial(_log.error, "link.failed", link=link_id, failures=failures, exc_info=bug))
        link = self._links.get(link_id)
        self._drop(link_id)
        if link is not None:
            try:
                self._in_context(link_id, link.close)
            except Exception as another:  # noqa: BLE001 - the link has failed already; its restart matters more
                _log.warning("link.not_closed", link=link_id, error=str(another))
        self._errors[link_id] = (
            f"The copy of this link failed unexpectedly ({type(bug).__name__}). It is restarted automatically. "
            "See the Spark executor's log for details."
        )
        self._retry_at[link_id] = now + pause_s(
            failures - 1, first_s=BROKEN_RETRY_S, longest_s=LONGEST_RETRY_S, spread=(1.0, 1.0)
        )
        self._beat_at = 0.0

    # --- events of the coordination thread ---------------------------------------------------------------------------

    def _granted(self, grants: list[Grant]) -> None:
        self._each({grant.key: grant for grant in grants}, LinkCopy.granted)

    def _markers_announced(self, grants: list[Grant]) -> None:
        self._each({grant.key: grant for grant in grants}, LinkCopy.markers_announced)

    def _lost(self, keys: set[str]) -> None:
        self._each({key: key for key in keys}, LinkCopy.lost)

    def _paused(self, link_id: str, pause_s: float) -> None:
        link = self._links.get(link_id)
        if link is not None:
            self._guarded(link_id, partial(link.paused, pause_s))

    def _each(self, events: Mapping[str, T], handle: Callable[[LinkCopy, T], None]) -> None:
        """Call ``handle`` with each link that has any of these partitions (by key) and its event, guarded per link."""
        for link_id, link in list(self._links.items()):
            for key in link.keys & events.keys():
                if self._links.get(link_id) is link:  # else an earlier event has made the link fail
                    self._guarded(link_id, partial(handle, link, events[key]))

    # --- heartbeats ------------------------------------------------------------------------------------------------------

    def _beat(self, now: float, *, ended: bool = False) -> None:
        self._beat_at = now + HEARTBEAT_MS / 1000
        copied = sum(link.bytes_copied for link in self._links.values())
        before_at, before = self._last_beat
        self._last_beat = (now, copied)
        rate = max(0, copied - before) / (now - before_at) if before_at and now > before_at else 0.0
        self._coordination.beat(
            Heartbeat(
                worker_id=self._setup.worker_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                executor=self._executor.name,
                executor_slots=self._executor.slots,
                started_at_ms=self._started_at_ms,
                partitions=sum(link.partitions for link in self._links.values()),
                bytes_per_s=rate,
                links={link_id: self._status_of(link_id) for link_id in sorted(self._reported_links())},
                ended=ended,
            )
        )

    def _reported_links(self) -> set[str]:
        """Return the links in the heartbeat: running, refused or assigned. A link that is no longer assigned drops out."""
        assignments = self._assignments
        if assignments is None:
            return set()
        assigned = (link_id for link_id, plan in assignments.plans.items() if plan.assignments)
        return {*self._links, *assignments.refused, *assigned}

    def _status_of(self, link_id: str) -> AssignmentStatus:
        assert self._assignments is not None
        link = self._links.get(link_id)
        failure = self._errors.get(link_id, "") if link_id in self._retry_at else ""
        error = self._assignments.refused.get(link_id) or failure
        partitions = 0 if link is None else link.partitions
        return AssignmentStatus(applied=self._assignments.numbers.get(link_id, 0), partitions=partitions, error=error)


def _context_of(plan: CopyPlan) -> Context:
    context = copy_context()
    context.run(bind_contextvars, link=plan.link_id, **({"request_id": plan.request_id} if plan.request_id else {}))
    return context


def _copy_run_id(prefix: str, numbers: count[int]) -> str:
    return f"{prefix}.{next(numbers)}"

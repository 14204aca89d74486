"""A copy worker: one loop over epoll that copies partitions of any number of links until it is told to end.

What it copies is told by its assignments, which change while it runs: partitions and links come and go, settings of links
change. Each link has its own connections, threads, buffers and limits (``linkcopy``). A link that fails in a way that nobody
foresaw is closed and begun anew after a pause; the others go on.

No step of the loop waits for anything but the sockets: names, handshakes, tokens and metadata are asked for beside it.
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

from linkengine.copyjob.background import Background, Event
from linkengine.copyjob.buffers import AheadMemory
from linkengine.copyjob.linkcopy import LinkCopy, Shared
from linkengine.copyjob.poller import Poller
from linkengine.copyjob.ports import Clock, SystemClock, Told
from linkengine.copyjob.steward import Steward, StewardEvents, StewardPorts
from linkengine.domain.leases import Grant
from linkengine.domain.plans import CopyPlan
from linkengine.domain.workers import HEARTBEAT_MS, Heartbeat, LinkShare, WorkerSetup

_log = structlog.get_logger(__name__)
T = TypeVar("T")

TICK_S = 0.02  # how late a timer may be; sockets and events wake the loop at once
IDLE_S = 0.25  # of a worker without links
TICK_LINKS = 25  # so many have their tick in that time; of more, each has it less often
BROKEN_RETRY_S = 6.0  # after a failure that nobody foresaw: leases that it left have run out by then
LONGEST_RETRY_S = 60.0


def run_worker(setup: WorkerSetup, *, ports: StewardPorts, clock: Clock | None = None) -> None:
    """Copy what the assignments say until they say that it is over. Raises only what concerns all links."""
    worker = CopyWorker(setup, ports=ports, clock=clock or SystemClock())
    try:
        worker.run()
    finally:
        worker.close()


class CopyWorker:
    """One run of the loop."""

    def __init__(self, setup: WorkerSetup, *, ports: StewardPorts, clock: Clock) -> None:
        self._setup, self._clock = setup, clock
        self._background, self._poller = Background(), Poller()
        events = StewardEvents(told=self._hear, granted=self._granted, armed=self._armed, lost=self._lost, paused=self._paused)
        self._steward = Steward(setup, self._background, ports=ports, clock=clock, events=events)
        self._shared = Shared(
            background=self._background,
            poller=self._poller,
            clock=clock,
            lease=ports.lease,
            lease_ttl_s=setup.lease_ttl_ms / 1000,
            steward=self._steward,
            progress=ports.progress,
            limited=ports.allowances is not None,
            name_hold=partial(_hold_name, f"{setup.worker_id}.{uuid.uuid4().hex[:6]}", count(1)),
            ahead=AheadMemory(changed=self._share_memory),
        )
        self._links: dict[str, LinkCopy] = {}
        self._retiring: set[str] = set()  # their settings have changed, or nothing of them is wanted any more
        self._told: Told | None = None
        self._stirred: set[str] = set()  # something happened to them since they were pumped
        self._due: dict[str, float] = {}  # when the next request of a link may go out
        self._tick_at: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        self._failures: dict[str, int] = {}  # in a row, of links that failed as nobody foresaw
        self._retry_at: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}
        self._contexts: dict[str, Context] = {}  # of log lines, by link
        self._entered: set[str] = set()  # links whose context is entered; that cannot be done twice
        self._beat_at, self._beaten = 0.0, (0.0, 0)  # time and bytes of the last heartbeat
        self._started_at_ms = clock.now_ms()

    def run(self) -> None:
        """Run until the assignments end."""
        self._poller.watch(self._background, lambda _readable, _writable: self._background.run_events())
        self._steward.start()
        while not self._is_over:
            self._poller.wait(self._patience())
            now = self._clock.monotonic()
            for link_id in [*self._stirred, *(one for one, at in self._due.items() if at <= now)]:
                self._pump(link_id, now)
            self._tick(now)
            if now >= self._beat_at:
                self._beat(now)

    def close(self) -> None:
        """Publish the last observations and close everything."""
        for link_id, link in self._links.items():
            self._guarded(link_id, link.close)
        self._beat(self._clock.monotonic(), ended=True)
        self._steward.finish()
        self._poller.close()
        self._background.close()

    @property
    def _is_over(self) -> bool:
        return self._told is not None and self._told.ends and not self._links

    def _patience(self) -> float:
        if self._stirred:
            return 0.0
        if not self._links:
            return IDLE_S  # news wake it
        return min(TICK_S, max(0.0, min(self._due.values(), default=TICK_S) - self._clock.monotonic()))

    def _pump(self, link_id: str, now: float) -> None:
        self._stirred.discard(link_id)
        link = self._links.get(link_id)
        if link is None:
            self._due.pop(link_id, None)
            return
        self._guarded(link_id, partial(link.pump, now), stirs=False)
        if link_id in self._links:
            self._due[link_id] = link.due()

    def _tick(self, now: float) -> None:
        pause_s = TICK_S * max(1.0, len(self._links) / TICK_LINKS)
        for link_id, link in list(self._links.items()):
            if now < self._tick_at.get(link_id, 0.0):
                continue
            self._tick_at[link_id] = now + pause_s
            self._guarded(link_id, partial(link.tick, now))
            if link_id in self._retiring and link.over:
                self._retired(link_id, link)
        for link_id in [one for one, at in self._retry_at.items() if at <= now]:
            del self._retry_at[link_id]
            self._follow(link_id)

    # --- what is told ------------------------------------------------------------------------------------------------

    def _hear(self, told: Told) -> None:
        before, self._told = self._told, told
        for link_id, plan in told.plans.items():
            if before is None or before.plans.get(link_id) is not plan or told.ends:
                self._follow(link_id)
        self._beat_at = 0.0  # tell what is followed now

    def _follow(self, link_id: str) -> None:
        """Bring a link in line with its newest plan."""
        plan = None if self._told is None or self._told.ends else self._told.plans.get(link_id)
        link = self._links.get(link_id)
        if plan is not None:
            self._contexts[link_id] = _context_of(plan)
        if link is None:
            if plan is not None and plan.assignments and link_id not in self._retry_at:
                self._begin(plan)
        elif plan is None or not plan.assignments or not link.suits(plan):
            self._retiring.add(link_id)
            self._guarded(link_id, link.retire)
        elif link_id not in self._retiring:  # else it begins anew once the old one is over
            self._guarded(link_id, partial(link.follow, plan))

    def _begin(self, plan: CopyPlan, before: LinkCopy | None = None) -> None:
        link_id = plan.link_id
        try:
            abandoned = None if before is None else before.abandoned
            begin = partial(LinkCopy, plan, self._shared, guard=partial(self._guarded, link_id), abandoned=abandoned)
            link = self._in_context(link_id, begin)
        except Exception as bug:  # noqa: BLE001 - nobody foresaw it: it concerns this link alone
            self._fail(link_id, bug)
            return
        self._links[link_id], self._begun_at[link_id] = link, self._clock.monotonic()
        self._stirred.add(link_id)
        self._share_memory()

    def _retired(self, link_id: str, link: LinkCopy) -> None:
        """What was let go of is over; begin anew where more is wanted."""
        self._guarded(link_id, link.close)
        self._drop(link_id)
        plan = None if self._told is None or self._told.ends else self._told.plans.get(link_id)
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

    # --- failures that nobody foresaw ----------------------------------------------------------------------------------

    def _guarded(self, link_id: str, work: Event, *, stirs: bool = True) -> None:
        """Do something for one link; what it raises ends that link's copy for a while, and no other's."""
        if stirs:
            self._stirred.add(link_id)
        try:
            self._in_context(link_id, work)
        except Exception as bug:  # noqa: BLE001 - logged in full, told with the next heartbeat, tried again
            self._fail(link_id, bug)

    def _in_context(self, link_id: str, work: Callable[[], T]) -> T:
        """Run ``work`` so that its log lines name the link and the request that its newest assignments came from.

        One context per link, which is entered: binding and unbinding would cost ten times as much, in each turn of the loop.
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
        calm = now - self._begun_at.get(link_id, now) > LONGEST_RETRY_S
        failures = self._failures[link_id] = 1 if calm else self._failures.get(link_id, 0) + 1
        self._in_context(link_id, partial(_log.error, "link.failed", link=link_id, failures=failures, exc_info=bug))
        link = self._links.get(link_id)
        self._drop(link_id)
        if link is not None:
            try:
                self._in_context(link_id, link.close)
            except Exception as another:  # noqa: BLE001 - it is broken already
                _log.warning("link.not_closed", link=link_id, error=str(another))
        self._troubles[link_id] = (
            f"The copy of this link failed unexpectedly ({type(bug).__name__}); Spark's log has the details."
        )
        self._retry_at[link_id] = now + min(LONGEST_RETRY_S, BROKEN_RETRY_S * 2 ** (failures - 1))
        self._beat_at = 0.0

    # --- what the steward tells --------------------------------------------------------------------------------------

    def _granted(self, grants: list[Grant]) -> None:
        self._each({one.key: one for one in grants}, LinkCopy.granted)

    def _armed(self, grants: list[Grant]) -> None:
        self._each({one.key: one for one in grants}, LinkCopy.armed)

    def _lost(self, keys: set[str]) -> None:
        self._each({key: key for key in keys}, LinkCopy.lost)

    def _paused(self, link_id: str, pause_s: float) -> None:
        link = self._links.get(link_id)
        if link is not None:
            self._guarded(link_id, partial(link.paused, pause_s))

    def _each(self, news: Mapping[str, T], tell: Callable[[LinkCopy, T], None]) -> None:
        """Tell the links that have these partitions, each under its own guard."""
        for link_id, link in list(self._links.items()):
            for key in link.keys & news.keys():
                if self._links.get(link_id) is link:  # else it has just failed
                    self._guarded(link_id, partial(tell, link, news[key]))

    # --- signs of life ---------------------------------------------------------------------------------------------------

    def _beat(self, now: float, *, ended: bool = False) -> None:
        self._beat_at = now + HEARTBEAT_MS / 1000
        moved = sum(link.moved_bytes for link in self._links.values())
        before_at, before = self._beaten
        self._beaten = (now, moved)
        rate = max(0, moved - before) / (now - before_at) if before_at and now > before_at else 0.0
        self._steward.beat(
            Heartbeat(
                worker_id=self._setup.worker_id,
                host=socket.gethostname(),
                pid=os.getpid(),
                started_at_ms=self._started_at_ms,
                partitions=sum(link.partitions for link in self._links.values()),
                bytes_per_s=rate,
                links={link_id: self._share_of(link_id) for link_id in sorted(self._mentioned())},
                ended=ended,
            )
        )

    def _mentioned(self) -> set[str]:
        """Name the links of which there is something to say; those that nobody wants any more are soon forgotten."""
        told = self._told
        if told is None:
            return set()
        return {*self._links, *told.refused, *(name for name, one in told.plans.items() if one.assignments)}

    def _share_of(self, link_id: str) -> LinkShare:
        assert self._told is not None
        link = self._links.get(link_id)
        error = self._told.refused.get(link_id) or (self._troubles.get(link_id, "") if link_id in self._retry_at else "")
        partitions = 0 if link is None else link.partitions
        return LinkShare(applied=self._told.numbers.get(link_id, 0), partitions=partitions, error=error)


def _context_of(plan: CopyPlan) -> Context:
    context = copy_context()
    context.run(bind_contextvars, link=plan.link_id, **({"request_id": plan.request_id} if plan.request_id else {}))
    return context


def _hold_name(prefix: str, numbers: count[int]) -> str:
    return f"{prefix}.{next(numbers)}"

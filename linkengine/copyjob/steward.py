"""The thread that talks to Redis for the loop: assignments, leases, progress. A slow or silent Redis never stalls the copying.

It reads what the worker is told, shows life, acquires what the loop wants, renews what it holds, publishes progress, gives back
what the loop is done with, and posts what it learned as events. Whether the loop may write is decided by the lease's local
deadline, which needs no Redis. A loop that does not turn is not kept in its leases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

import structlog

from linkengine.copyjob.background import Background
from linkengine.copyjob.ports import Allowances, Assignments, Clock, Lease, ProgressSink, Told
from linkengine.domain.leases import CoordinationUnavailableError, Grant
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.workers import Heartbeat, WorkerSetup

_log = structlog.get_logger(__name__)

RENEWALS_PER_TTL = 4  # three may fail before a lease is lost
RENEWED_TOGETHER = 1_000  # partitions in one request: Redis does nothing else meanwhile
ACQUIRE_S = 0.05  # between tries for what somebody else has
ACQUIRE_EACH_S = 0.0002  # and so much more per partition, so that thousands do not flood Redis
IDLE_S = 0.05
STUCK_S = 10.0  # since the loop last showed life; a worker that is merely busy does so every second
OUTAGE_PAUSE_S = 0.25  # a Redis that refuses at once is not asked hundreds of times a second
OUTAGE_NEWS_S = 5.0  # one line of log per outage
FAREWELL_S = 5.0  # for the last reports and releases when the worker ends


@dataclass(frozen=True, slots=True, kw_only=True)
class StewardPorts:
    """Where the steward asks and says."""

    lease: Lease
    assignments: Assignments
    progress: ProgressSink
    allowances: Allowances | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StewardEvents:
    """What the loop wants to hear; called in the loop's thread."""

    told: Callable[[Told], None]
    granted: Callable[[list[Grant]], None]
    armed: Callable[[list[Grant]], None]
    lost: Callable[[set[str]], None]
    paused: Callable[[str, float], None]  # a link by its bandwidth limit, for so many seconds


class Steward:
    """One thread; the loop calls its methods, which only leave notes."""

    def __init__(
        self, setup: WorkerSetup, background: Background, *, ports: StewardPorts, clock: Clock, events: StewardEvents
    ) -> None:
        self._setup, self._background, self._clock = setup, background, clock
        self._ports, self._lease, self._progress = ports, ports.lease, ports.progress
        self._events = events
        self._notes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wanted: dict[str, None] = {}
        self._held: dict[str, Grant] = {}
        self._unarmed: dict[str, Grant] = {}  # shall be armed
        self._read_at = self._acquire_at = self._renew_at = self._arm_at = self._outage_until = 0.0
        self._beaten_at = clock.monotonic()
        self._told: Told | None = None
        self._ending = False
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="copy-steward", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def beat(self, heartbeat: Heartbeat) -> None:
        """Show life: the loop turns."""
        self._notes.put(lambda: self._beat(heartbeat))

    def want(self, key: str) -> None:
        """Try to get the lease of a partition until it is granted."""
        self._notes.put(lambda: self._want(key))

    def unwant(self, key: str, *, settled: Callable[[Grant], bool]) -> None:
        """Do not try any more. A grant that is on its way is given back; ``settled`` tells how, as ``clean`` does."""
        self._notes.put(lambda: self._unwant(key, settled))

    def arm(self, grants: Sequence[Grant]) -> None:
        """Note that their owners are about to send markers; told when it is noted, and tried until then."""
        self._notes.put(lambda: self._arm_also(grants))

    def release(self, grant: Grant, *, seen: tuple[int, int] | None, clean: bool) -> None:
        """Give a lease back, with nothing of ours in flight; ``clean``: nor markers of an earlier owner."""
        self._notes.put(lambda: self._release(grant, seen, clean=clean))

    def abandon(self, grant: Grant) -> None:
        """Let a lease run out: something may still be on its way to the mirror."""
        self._notes.put(lambda: self._forget(grant))

    def raise_generation(self, key: str, at_least: int) -> None:
        """Tell the lease's memory which generation is in use."""
        self._notes.put(lambda: self._raise(key, at_least))

    def spend(self, link_id: str, size: int, *, bytes_per_s: int, otherwise_s: float) -> None:
        """Count fetched bytes against a link's bandwidth limit; ``otherwise_s`` is the pause while Redis is away."""
        self._notes.put(lambda: self._spend(link_id, size, bytes_per_s, otherwise_s))

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish observations."""
        self._notes.put(lambda: self._progress.report(link_id, observations))

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Publish an observation that stays until somebody has taken it in."""
        self._notes.put(lambda: self._progress.keep(link_id, observation))

    def finish(self) -> None:
        """Do what has been asked for, then end; waits for at most FAREWELL_S."""
        self._notes.put(self._end)
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        while not self._ending:
            self._guarded(self._read, due=self._read_at)
            self._guarded(self._renew, due=self._renew_at)
            if self._wanted:
                self._guarded(self._acquire, due=self._acquire_at)
            if self._unarmed:
                self._guarded(self._arm, due=self._arm_at)
            self._do_notes()

    def _do_notes(self) -> None:
        """Wait for notes until the next thing is due, and do them all."""
        due = min(self._read_at, self._renew_at, self._acquire_at if self._wanted else float("inf"))
        now = self._clock.monotonic()
        wait_s = min(IDLE_S, max(0.0005, due - now, self._outage_until - now))
        try:
            note = self._notes.get(timeout=wait_s)
            while True:
                self._guarded(note)
                note = self._notes.get_nowait()
        except Empty:
            return

    def _guarded(self, work: Callable[[], object], *, due: float = 0.0) -> None:
        if self._clock.monotonic() < max(due, self._outage_until if due else 0.0):
            return
        try:
            work()
        except CoordinationUnavailableError as error:
            if self._clock.monotonic() > self._outage_until + OUTAGE_NEWS_S:
                _log.warning("coordination.unavailable", reason=str(error))
            self._outage_until = self._clock.monotonic() + OUTAGE_PAUSE_S
        except Exception as error:  # noqa: BLE001 - a bug: it belongs to the loop's thread, which reports and raises it
            self._background.post(lambda bug=error: _raise(bug))  # type: ignore[misc]
            self._ending = True

    def _read(self) -> None:
        self._read_at = self._clock.monotonic() + self._setup.poll_ms / 1000
        told = self._ports.assignments.read()
        if told is not self._told:
            self._told = told
            self._background.post(lambda: self._events.told(told))

    def _beat(self, heartbeat: Heartbeat) -> None:
        self._beaten_at = self._clock.monotonic()
        self._ports.assignments.beat(heartbeat)

    def _renew(self) -> None:
        self._renew_at = self._clock.monotonic() + self._setup.lease_ttl_ms / 1000 / RENEWALS_PER_TTL
        if not self._held or self._clock.monotonic() > self._beaten_at + STUCK_S:
            return
        grants, kept = list(self._held.values()), set[str]()
        for begin in range(0, len(grants), RENEWED_TOGETHER):
            kept |= self._lease.renew(grants[begin : begin + RENEWED_TOGETHER])
        lost = {grant.key for grant in grants} - kept
        for key in lost:
            del self._held[key]
        if lost:
            self._background.post(lambda: self._events.lost(lost))

    def _want(self, key: str) -> None:
        self._wanted[key] = None
        self._acquire_at = 0.0

    def _acquire(self) -> None:
        self._acquire_at = self._clock.monotonic() + ACQUIRE_S + ACQUIRE_EACH_S * len(self._wanted)
        keys = list(self._wanted)
        granted = [
            grant
            for begin in range(0, len(keys), RENEWED_TOGETHER)
            for grant in self._lease.acquire_all(keys[begin : begin + RENEWED_TOGETHER], self._setup.worker_id)
        ]
        for grant in granted:
            del self._wanted[grant.key]
            self._held[grant.key] = grant
        if granted:
            self._background.post(lambda: self._events.granted(granted))

    def _arm_also(self, grants: Sequence[Grant]) -> None:
        self._unarmed |= {grant.key: grant for grant in grants}
        self._arm()

    def _arm(self) -> None:
        self._arm_at = self._clock.monotonic() + IDLE_S
        self._unarmed = {key: grant for key, grant in self._unarmed.items() if self._held.get(key) == grant}
        keys = self._lease.arm(self._unarmed.values())
        armed = [grant for key, grant in self._unarmed.items() if key in keys]
        for grant in armed:
            del self._unarmed[grant.key]
        if armed:
            self._background.post(lambda: self._events.armed(armed))

    def _unwant(self, key: str, settled: Callable[[Grant], bool]) -> None:
        self._wanted.pop(key, None)
        grant = self._held.get(key)
        if grant is not None:  # the loop may have ended before it hears of it
            self._release(grant, grant.vouched, clean=settled(grant))

    def _release(self, grant: Grant, seen: tuple[int, int] | None, *, clean: bool) -> None:
        if self._held.get(grant.key) == grant:
            del self._held[grant.key]
        self._lease.release(grant, seen=seen, clean=clean)

    def _forget(self, grant: Grant) -> None:
        if self._held.get(grant.key) == grant:
            del self._held[grant.key]

    def _spend(self, link_id: str, size: int, bytes_per_s: int, otherwise_s: float) -> None:
        """Ask the shared budget; in an outage keep to this worker's even share of the limit."""
        assert self._ports.allowances is not None
        pause_s = otherwise_s
        try:
            pause_s = self._ports.allowances.spend(link_id, size, bytes_per_s=bytes_per_s)
        finally:
            self._background.post(lambda: self._events.paused(link_id, pause_s))

    def _raise(self, key: str, at_least: int) -> None:
        self._lease.raise_generation(key, at_least)

    def _end(self) -> None:
        self._ending = True


def _raise(error: BaseException) -> None:
    raise error

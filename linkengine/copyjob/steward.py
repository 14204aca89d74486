"""The thread that talks to Redis for the loop: leases, orders, progress. A slow or silent Redis never stalls the copying.

It acquires what the loop wants, renews what it holds, reads the orders, publishes progress, gives back what the loop is done
with, and posts what it learned as events. Whether the loop may write is decided by the lease's local deadline, which needs
no Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread

import structlog

from linkengine.copyjob.background import Background
from linkengine.copyjob.ports import Allowance, Clock, Lease, Orders, ProgressSink
from linkengine.domain.leases import CoordinationUnavailableError, Grant, OrdersSnapshot
from linkengine.domain.plans import CopyPlan, PartitionProgress

_log = structlog.get_logger(__name__)

RENEWALS_PER_TTL = 4  # three may fail before a lease is lost
ACQUIRE_S = 0.002  # between tries: this is what a hand-over costs
SAMPLE = 8  # of many partitions these are tried; once one of them is free the others are about to be
ACQUIRE_ALL_S = 0.1  # between tries for all of them
ACQUIRE_EACH_S = 0.001  # and so much more per partition, so that thousands do not flood Redis
IDLE_S = 0.05
OUTAGE_PAUSE_S = 0.25  # a Redis that refuses at once is not asked hundreds of times a second
OUTAGE_NEWS_S = 5.0  # one line of log per outage
FAREWELL_S = 5.0  # for the last reports and releases when the task ends


@dataclass(frozen=True, slots=True, kw_only=True)
class StewardEvents:
    """What the loop wants to hear; called in the loop's thread."""

    granted: Callable[[list[Grant]], None]
    armed: Callable[[list[Grant]], None]
    lost: Callable[[set[str]], None]
    ordered: Callable[[OrdersSnapshot], None]
    paused: Callable[[float], None]  # by the bandwidth limit, for so many seconds


class Steward:
    """One thread; the loop calls its methods, which only leave notes."""

    def __init__(
        self,
        plan: CopyPlan,
        background: Background,
        *,
        lease: Lease,
        orders: Orders,
        progress: ProgressSink,
        clock: Clock,
        events: StewardEvents,
        allowance: Allowance | None = None,
    ) -> None:
        self._plan = plan
        self._background = background
        self._lease, self._orders, self._progress, self._clock = lease, orders, progress, clock
        self._events = events
        self._allowance = allowance
        self._notes: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wanted: dict[str, None] = {}
        self._held: dict[str, Grant] = {}
        self._unarmed: dict[str, Grant] = {}  # shall be armed
        self._acquire_at = self._renew_at = self._orders_at = self._arm_at = 0.0
        self._outage_until = self._acquire_all_at = 0.0
        self._granting = False  # the last try brought something: more is about to be free
        self._ending = False
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="copy-steward", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def want(self, key: str) -> None:
        """Try to get the lease of a partition until it is granted."""
        self._notes.put(lambda: self._wanted.setdefault(key))

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

    def spend(self, size: int) -> None:
        """Count fetched bytes against the link's bandwidth limit."""
        self._notes.put(lambda: self._spend(size))

    def report(self, observations: Sequence[PartitionProgress]) -> None:
        """Publish observations."""
        self._notes.put(lambda: self._progress.report(observations))

    def finish(self) -> None:
        """Do what has been asked for, then end; waits for at most FAREWELL_S."""
        self._notes.put(self._end)
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        while not self._ending:
            self._guarded(self._read_orders, due=self._orders_at)
            self._guarded(self._renew, due=self._renew_at)
            self._guarded(self._acquire, due=self._acquire_at)
            if self._unarmed:
                self._guarded(self._arm, due=self._arm_at)
            self._do_notes()

    def _do_notes(self) -> None:
        """Wait for notes until the next thing is due, and do them all."""
        due = min(self._orders_at, self._renew_at, self._acquire_at if self._wanted else float("inf"))
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

    def _read_orders(self) -> None:
        self._orders_at = self._clock.monotonic() + self._plan.tuning.control_poll_ms / 1000
        orders = self._orders.read()
        if orders is not None:
            self._background.post(lambda: self._events.ordered(orders))

    def _renew(self) -> None:
        self._renew_at = self._clock.monotonic() + self._plan.tuning.lease_ttl_ms / 1000 / RENEWALS_PER_TTL
        if not self._held:
            return
        lost = set(self._held) - self._lease.renew(list(self._held.values()))
        for key in lost:
            del self._held[key]
        if lost:
            self._background.post(lambda: self._events.lost(lost))

    def _acquire(self) -> None:
        now = self._clock.monotonic()
        self._acquire_at = now + ACQUIRE_S
        if self._granting or now >= self._acquire_all_at or len(self._wanted) <= SAMPLE:
            self._acquire_all_at = now + ACQUIRE_ALL_S + ACQUIRE_EACH_S * len(self._wanted)
            keys = list(self._wanted)
        else:
            keys = list(islice(self._wanted, 0, None, len(self._wanted) // SAMPLE))  # from all over: of every earlier owner
        granted = self._lease.acquire_all(keys, self._plan.slice_id) if keys else []
        self._granting = bool(granted)
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
        self._held.pop(grant.key, None)
        self._lease.release(grant, seen=seen, clean=clean)

    def _forget(self, grant: Grant) -> None:
        self._held.pop(grant.key, None)

    def _spend(self, size: int) -> None:
        """Ask the shared budget; in an outage keep to this task's even share of the limit."""
        assert self._allowance is not None
        pause_s = size * self._plan.tasks / self._plan.tuning.bytes_per_s
        try:
            pause_s = self._allowance.spend(size)
        finally:
            self._background.post(lambda: self._events.paused(pause_s))

    def _raise(self, key: str, at_least: int) -> None:
        self._lease.raise_generation(key, at_least)

    def _end(self) -> None:
        self._ending = True


def _raise(error: BaseException) -> None:
    raise error

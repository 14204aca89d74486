"""The coordination thread of a copy worker: the only thread that uses Redis, so that a slow Redis never blocks the copy loop.

It reads assignments, publishes heartbeats and progress, acquires the leases that the loop requests, renews those that are held,
releases those that are no longer needed, and posts the results to the loop as events::

    copy loop ──requests (a queue)──► coordination thread ──► Redis
        ▲                                     │
        └──────── events (Background) ────────┘

Whether the loop may write is decided by the lease's local deadline, which needs no Redis (``Lease.deadline``). If the
loop has published no heartbeat for ``STUCK_S``, its leases are not renewed, so that another worker can take over.

A slow Redis must not delay the renewals: all leases of the worker would expire together. So the order is:

1. what is due periodically (renewals, assignments, leases to acquire), checked after each request;
2. requests, in their order;
3. progress, a request per link. A newer report of the same copy run replaces one that was not sent yet, so unsent reports take
   bounded memory and time, however slow Redis is. A heartbeat replaces an unsent one as well.

A report may therefore be published after a later release of its lease. Redis refuses it then if the next owner has reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

import structlog

from linkengine.copyjob.event_loop import Background
from linkengine.copyjob.pacing import Clock
from linkengine.domain.plans import PartitionProgress
from linkengine.domain.ranges import OffsetRange
from linkengine.domain.workers import CoordinationUnavailableError, Grant, Heartbeat, WorkerAssignments, WorkerSetup

_log = structlog.get_logger(__name__)
RENEWALS_PER_TTL = 4  # three may fail before a lease is lost
RENEWED_TOGETHER = 1_000  # partitions per request: Redis executes one script at a time
REPORTED_TOGETHER = 256  # reports per request, for the same reason
ACQUIRE_S = 0.05  # between attempts to acquire leases that other workers hold
ACQUIRE_EACH_S = 0.0002  # added per partition, so that thousands of them do not overload Redis
IDLE_S = 0.05  # the longest wait for requests of the loop
STUCK_S = 10.0  # since the loop's last heartbeat, which a busy loop also sends every second
OUTAGE_PAUSE_S = 0.25  # between attempts while Redis refuses connections immediately
OUTAGE_LOG_S = 5.0  # an outage that follows the previous outage so soon is not logged again
FINISH_S = 5.0  # for the last reports and releases when the worker ends


# --- interfaces to Redis -------------------------------------------------------------------------------------------------
# Protocols, which ``linkengine.coordination`` implements. Methods raise CoordinationUnavailableError, where their docstrings
# state it, if Redis did not respond in time. Leases then expire at their local deadlines unless Redis is back before.


class Lease(Protocol):
    """The leases of mirror partitions. All methods but ``deadline`` may raise CoordinationUnavailableError."""

    def acquire_all(self, keys: Sequence[str], owner: str) -> list[Grant]:
        """Acquire the leases of those partitions that are free; return their grants. Does not wait for the others."""

    def renew(self, grants: Iterable[Grant]) -> set[str]:
        """Extend leases; return the keys still held."""

    def announce_markers(self, grants: Iterable[Grant]) -> set[str]:
        """Record that the owners may send markers from now on; return the keys for which that is recorded."""

    def release(self, grant: Grant, *, seen: tuple[int, int] | None = None, clean: bool = True) -> None:
        """Release a lease with nothing in flight; ``clean`` and, if so, ``seen`` are passed to the next owner (``Grant``)."""

    def raise_generation(self, key: str, at_least: int) -> int:
        """Raise the generation counter to the generation that the destination's log shows; return the generation to use."""

    def deadline(self, grant: Grant) -> float:
        """Return until when the owner may write (monotonic seconds); in the past if the lease is lost. Never blocks."""


class Assignments(Protocol):
    """The worker's assignments and heartbeat. Calls may raise CoordinationUnavailableError."""

    def read(self) -> WorkerAssignments:
        """Return the current assignments; the same object while they do not change."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Publish a heartbeat."""


class Allowances(Protocol):
    """The bandwidth limits of links, each shared by all copy workers."""

    def spend(self, link_id: str, size: int, *, bytes_per_s: int) -> float:
        """Count ``size`` fetched bytes; return the seconds to pause. May raise CoordinationUnavailableError."""


class ProgressSink(Protocol):
    """Publishes observations of partitions."""

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link."""

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Publish an observation that is stored until the reconciler has processed it."""

    def report_loss(self, link_id: str, loss: tuple[str, OffsetRange]) -> None:
        """Store a range of lost offsets of a partition (by key). May raise CoordinationUnavailableError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationPorts:
    """The interfaces that the coordination thread uses."""

    lease: Lease
    assignments: Assignments
    progress: ProgressSink
    allowances: Allowances | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationEvents:
    """Callbacks to the loop, called in the loop's thread."""

    assigned: Callable[[WorkerAssignments], None]  # new assignments
    granted: Callable[[list[Grant]], None]  # leases were acquired
    markers_announced: Callable[[list[Grant]], None]  # the leases record that their owner may send markers
    lost: Callable[[set[str]], None]  # leases, by key, that could not be renewed
    paused: Callable[[str, float], None]  # fetching of a link, by its bandwidth limit, for so many seconds


class CoordinationThread:
    """The coordination thread. The public methods only queue a request and return."""

    def __init__(
        self, setup: WorkerSetup, background: Background, *, ports: CoordinationPorts, clock: Clock, events: CoordinationEvents
    ) -> None:
        self._setup, self._background, self._clock = setup, background, clock
        self._ports, self._lease, self._progress = ports, ports.lease, ports.progress
        self._events = events
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._unsent = _Unsent()
        self._to_acquire: dict[str, None] = {}
        self._held: dict[str, Grant] = {}
        self._unannounced: dict[str, Grant] = {}  # their owners have to announce markers
        self._read_at = self._acquire_at = self._renew_at = self._announce_at = self._outage_until = 0.0
        self._last_beat_at = clock.monotonic()
        self._assignments: WorkerAssignments | None = None
        self._ending = False
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="copy-coordination", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def beat(self, heartbeat: Heartbeat) -> None:
        """Publish a heartbeat, which also shows that the loop runs; an unsent earlier one is dropped."""
        self._last_beat_at = self._clock.monotonic()
        if heartbeat.ended:
            self._requests.put(lambda: self._beat_last(heartbeat))
        elif self._unsent.put_beat(heartbeat):
            self._requests.put(self._beat)

    def acquire(self, key: str) -> None:
        """Acquire the lease of a partition as soon as it is free."""
        self._requests.put(lambda: self._start_acquiring(key))

    def stop_acquiring(self, key: str, *, settled: Callable[[Grant], bool]) -> None:
        """Stop acquiring a lease; release it if it was granted already, with ``settled`` of the grant as ``clean``."""
        self._requests.put(lambda: self._stop_acquiring(key, settled))

    def announce_markers(self, grants: Sequence[Grant]) -> None:
        """Record in leases that their owner is about to send markers; retried until recorded (``markers_announced``)."""
        self._requests.put(lambda: self._announce_markers_of(grants))

    def release(self, grant: Grant, *, seen: tuple[int, int] | None, clean: bool) -> None:
        """Release a lease with no request in flight; ``clean``: no markers of an earlier owner are in flight either."""
        self._requests.put(lambda: self._release(grant, seen, clean=clean))

    def expire_lease(self, grant: Grant) -> None:
        """Stop renewing a lease without releasing it, because a request to the mirror may still be in flight."""
        self._requests.put(lambda: self._forget(grant))

    def raise_generation(self, key: str, at_least: int) -> None:
        """Raise the generation counter to the generation in use, after Redis lost the lease's state."""
        self._requests.put(lambda: self._raise(key, at_least))

    def spend(self, link_id: str, size: int, *, bytes_per_s: int, otherwise_s: float) -> None:
        """Count fetched bytes against a link's bandwidth limit; ``otherwise_s`` is the pause if Redis is not available."""
        self._requests.put(lambda: self._spend(link_id, size, bytes_per_s, otherwise_s))

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish observations; those that they replace are dropped if they were not published yet."""
        if self._unsent.put_reports(link_id, observations):
            self._requests.put(_wake)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Publish an observation that is stored until the reconciler has processed it."""
        self._requests.put(lambda: self._progress.keep(link_id, observation))

    def finish(self) -> None:
        """Process all requests, then end the thread; waits at most ``FINISH_S``."""
        self._requests.put(self._end)
        self._thread.join(FINISH_S)

    def _run(self) -> None:
        while not self._ending:
            self._guarded(self._read, due=self._read_at)
            self._guarded(self._renew, due=self._renew_at)
            if self._to_acquire:
                self._guarded(self._acquire, due=self._acquire_at)
            if self._unannounced:
                self._guarded(self._announce_markers, due=self._announce_at)
            self._do_requests()

    def _do_requests(self) -> None:
        """Wait for requests until the next periodic action is due; process them, then reports, until it is."""
        now, due = self._clock.monotonic(), min(self._read_at, self._renew_at)
        if self._to_acquire:  # those that are requested below are acquired together
            due = min(due, self._acquire_at)
        if self._unannounced:
            due = min(due, self._announce_at)
        is_reporting = self._unsent.has_reports and now >= self._outage_until
        request = self._next(0.0 if is_reporting else min(IDLE_S, max(0.0005, due - now, self._outage_until - now)))
        while request is not None:
            self._guarded(request)
            if self._ending or self._clock.monotonic() >= due:
                return  # the requests that are left wait for a renewal, not the other way round
            request = self._next(0.0)

    def _next(self, wait_s: float) -> Callable[[], None] | None:
        """Return the next request, or else the unsent reports of a link; None if there are none for ``wait_s``."""
        try:
            return self._requests.get(timeout=wait_s) if wait_s else self._requests.get_nowait()
        except Empty:
            return self._report if self._unsent.has_reports and self._clock.monotonic() >= self._outage_until else None

    def _guarded(self, work: Callable[[], object], *, due: float = 0.0) -> None:
        if self._clock.monotonic() < max(due, self._outage_until if due else 0.0):
            return
        try:
            work()
        except CoordinationUnavailableError as error:
            if self._clock.monotonic() > self._outage_until + OUTAGE_LOG_S:
                _log.warning("coordination.unavailable", reason=str(error))
            self._outage_until = self._clock.monotonic() + OUTAGE_PAUSE_S
        except Exception as error:  # noqa: BLE001 - a bug, raised again in the loop's thread, which reports it
            self._background.post(lambda bug=error: _raise(bug))  # type: ignore[misc]
            self._ending = True

    def _read(self) -> None:
        self._read_at = self._clock.monotonic() + self._setup.poll_ms / 1000
        assignments = self._ports.assignments.read()
        if assignments is not self._assignments:
            self._assignments = assignments
            self._background.post(lambda: self._events.assigned(assignments))

    def _beat(self) -> None:
        self._ports.assignments.beat(self._unsent.take_beat())

    def _beat_last(self, heartbeat: Heartbeat) -> None:
        self._report_all()
        self._ports.assignments.beat(heartbeat)

    def _report(self) -> None:
        self._progress.report(*self._unsent.take_reports())

    def _renew(self) -> None:
        self._renew_at = self._clock.monotonic() + self._setup.lease_ttl_ms / 1000 / RENEWALS_PER_TTL
        if not self._held or self._clock.monotonic() > self._last_beat_at + STUCK_S:
            return
        grants, kept = list(self._held.values()), set[str]()
        for begin in range(0, len(grants), RENEWED_TOGETHER):
            kept |= self._lease.renew(grants[begin : begin + RENEWED_TOGETHER])
        lost = {grant.key for grant in grants} - kept
        for key in lost:
            del self._held[key]
        if lost:
            self._background.post(lambda: self._events.lost(lost))

    def _start_acquiring(self, key: str) -> None:
        self._to_acquire[key] = None
        self._acquire_at = 0.0

    def _acquire(self) -> None:
        self._acquire_at = self._clock.monotonic() + ACQUIRE_S + ACQUIRE_EACH_S * len(self._to_acquire)
        keys = list(self._to_acquire)
        granted = [
            grant
            for begin in range(0, len(keys), RENEWED_TOGETHER)
            for grant in self._lease.acquire_all(keys[begin : begin + RENEWED_TOGETHER], self._setup.worker_id)
        ]
        for grant in granted:
            del self._to_acquire[grant.key]
            self._held[grant.key] = grant
        if granted:
            self._background.post(lambda: self._events.granted(granted))

    def _announce_markers_of(self, grants: Sequence[Grant]) -> None:
        self._unannounced |= {grant.key: grant for grant in grants}
        self._announce_markers()

    def _announce_markers(self) -> None:
        self._announce_at = self._clock.monotonic() + IDLE_S
        self._unannounced = {key: grant for key, grant in self._unannounced.items() if self._held.get(key) == grant}
        keys = self._lease.announce_markers(self._unannounced.values())
        markers_announced = [grant for key, grant in self._unannounced.items() if key in keys]
        for grant in markers_announced:
            del self._unannounced[grant.key]
        if markers_announced:
            self._background.post(lambda: self._events.markers_announced(markers_announced))

    def _stop_acquiring(self, key: str, settled: Callable[[Grant], bool]) -> None:
        self._to_acquire.pop(key, None)
        grant = self._held.get(key)
        if grant is not None:  # granted, but the loop may not have processed the event
            self._release(grant, grant.trusted_seen, clean=settled(grant))

    def _release(self, grant: Grant, seen: tuple[int, int] | None, *, clean: bool) -> None:
        if self._held.get(grant.key) == grant:
            del self._held[grant.key]
        self._lease.release(grant, seen=seen, clean=clean)

    def _forget(self, grant: Grant) -> None:
        if self._held.get(grant.key) == grant:
            del self._held[grant.key]

    def _spend(self, link_id: str, size: int, bytes_per_s: int, otherwise_s: float) -> None:
        """Charge the shared budget; during an outage of Redis use this worker's even share of the limit."""
        assert self._ports.allowances is not None
        pause_s = otherwise_s
        try:
            pause_s = self._ports.allowances.spend(link_id, size, bytes_per_s=bytes_per_s)
        finally:
            self._background.post(lambda: self._events.paused(link_id, pause_s))

    def _raise(self, key: str, at_least: int) -> None:
        self._lease.raise_generation(key, at_least)

    def _report_all(self) -> None:
        while self._unsent.has_reports and not self._ending:
            self._guarded(self._report)

    def _end(self) -> None:
        self._report_all()
        self._ending = True


class _Unsent:
    """The heartbeat and the reports that wait to be published. The loop puts them, the coordination thread takes them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._heartbeat: Heartbeat | None = None
        self._reports: dict[str, dict[tuple[str, str], PartitionProgress]] = {}  # by link, then by partition and copy run

    @property
    def has_reports(self) -> bool:
        return bool(self._reports)

    def put_beat(self, heartbeat: Heartbeat) -> bool:
        """Replace the heartbeat; return whether there was none."""
        with self._lock:
            before, self._heartbeat = self._heartbeat, heartbeat
            return before is None

    def take_beat(self) -> Heartbeat:
        with self._lock:
            heartbeat, self._heartbeat = self._heartbeat, None
        assert heartbeat is not None  # each request for a heartbeat was queued when there was none
        return heartbeat

    def put_reports(self, link_id: str, observations: Iterable[PartitionProgress]) -> bool:
        """Add reports of a link, and drop those that they replace; return whether there were none of any link."""
        with self._lock:
            is_first = not self._reports
            reports = self._reports.setdefault(link_id, {})
            for progress in observations:
                run = (progress.key, progress.copy_run_id)
                reports.pop(run, None)  # the order of reports on a partition is kept
                reports[run] = progress
            return is_first

    def take_reports(self) -> tuple[str, list[PartitionProgress]]:
        """Return the link that has waited longest, and its reports, ``REPORTED_TOGETHER`` at most."""
        with self._lock:
            link_id = next(iter(self._reports))
            reports = self._reports.pop(link_id)
            taken = [reports.pop(run) for run in list(islice(reports, REPORTED_TOGETHER))]
            if reports:
                self._reports[link_id] = reports
            return link_id, taken


def _wake() -> None:
    """Do nothing: a request that makes the coordination thread look for reports."""


def _raise(error: BaseException) -> None:
    raise error

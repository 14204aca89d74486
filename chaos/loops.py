"""The engine without Spark and console: a pool of copy workers in processes, with a supervisor in a thread.

The supervisor does in a few lines what the reconciler does in the product: it assigns partitions to the workers with a recent
heartbeat, and replaces workers that died or are silent.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from secrets import token_bytes

import psutil

from chaos.copiers import Copiers, freeze, thaw
from chaos.effects import CHANGE_TIMEOUT_S, OWNERS_TIMEOUT_S, InjectedFault, changed_workers, lease_name, until, worker_of
from chaos.environment import ChaosEnvironment
from chaos.judge import Finding
from chaos.reading import Ends
from chaos.schedule import Fault, ScheduledFault
from linkengine import jobs
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop
from linkengine.domain.plans import (
    CopyPlan,
    CopyTuning,
    PartitionAssignment,
    PartitionPhase,
    PartitionProgress,
    producer_id_for,
)
from linkengine.domain.signatures import Signer
from linkengine.domain.states import StopReason
from linkengine.domain.workers import CoordinationUnavailableError, PartitionLoad, PoolWorker, assign, worker_id_for

LINK = "chaos"
SECRETS, SIGNER = (urlsafe_b64encode(token_bytes(32)).decode(),), Signer((token_bytes(32),))
POOL = 2  # copy workers
BEGIN_S = 10.0  # a worker without a heartbeat by then is replaced
DRAIN_S = 3.0  # for a replaced worker to complete its requests
POLL_S = 0.25
END_EVERY_S = 0.5  # the order to end is repeated while Redis is not available
SLOW_PASS_S = 1.0  # between two passes while there are two assigners: each placement stays long enough to be applied
DRAIN_TIMEOUT_S = 120.0
AT_ONCE = 4  # mirrors that are set up, or promoted, in parallel
REQUEST_TIMEOUT_MS = 8_000
SETUP_ATTEMPTS = 6
STOP_GENERATION = 1 << 20  # higher than that of every copy worker
_mirrors = itertools.count(1)  # unique in this process, since engines share a Redis


class LoopEngine:
    """Copies topics with copy workers in processes; a context manager."""

    def __init__(
        self, environment: ChaosEnvironment, topics: Mapping[str, int], *, mutation: str = "", tuning: CopyTuning | None = None
    ) -> None:
        """Create the mirrors; copying starts with the context."""
        self._environment, self._topics = environment, dict(topics)
        self._tuning = tuning or CopyTuning(request_timeout_ms=REQUEST_TIMEOUT_MS)
        self._addresses = {
            name: address_from_properties(side.cluster.proxied_properties("link"))
            for name, side in (("source", environment.source), ("destination", environment.destination))
        }
        environment.create_topics(topics)
        self._link = f"{LINK}-{mutation or 'whole'}-{next(_mirrors)}"
        numbers = [next(_mirrors) for _ in self._topics]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.assignments = dict(zip(self._topics, pool.map(self._set_up, numbers, self._topics), strict=True))
        self._wanted = dict.fromkeys(self._topics, True)
        self._stopped: dict[str, dict[int, int]] = {}
        self._workers = itertools.count(1)
        self.copiers = Copiers(environment.directory / self._link, mutation=mutation)
        self._running: dict[int, str] = {}  # process id -> worker id
        self._pool: dict[int, tuple[str, float]] = {}  # place in the pool -> its worker id, and when it was started
        self._placed: dict[str, str] = {}  # partition -> worker id
        self._pass_s = POLL_S  # between two passes of the supervisor
        self._lock = threading.Lock()  # for _running: supervisor and faults start workers
        self._failed: dict[str, PartitionProgress] = {}  # partitions that have FAILED
        self._over = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._next_at = 0.0  # no worker is started before

    def __enter__(self) -> LoopEngine:
        """Start to copy and to supervise."""
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._over.set()
        if self._supervisor is not None:
            self._supervisor.join(60)
        self.copiers.close()

    def inject(self, fault: ScheduledFault) -> InjectedFault | None:
        environment = self._environment
        own: dict[Fault, Callable[[], InjectedFault | None]] = {
            Fault.DRAIN: lambda: environment.moved(self._drain_busiest),
            Fault.REBALANCE: lambda: environment.moved(self._rotate),
            Fault.TWO_ASSIGNERS: lambda: environment.contested(partial(self._assign_otherwise, fault.lasts_s)),
            Fault.STALE_ASSIGNMENT: lambda: environment.replayed(self._rotate, lambda: [self.copiers.log]),
            Fault.CUT_REDIS: lambda: self._cut_off_owner(fault),
            Fault.KILL_COPIER: lambda: self._kill_owner(fault),
            Fault.STOP_COPIER: self._freeze_all,
            Fault.SECOND_COPIER: lambda: self._copy_beside(fault),
            Fault.SECOND_OWNER: lambda: self._copy_beside(fault),
        }
        return own[fault.kind]() if fault.kind in own else environment.inject(fault)

    def _copy_beside(self, fault: ScheduledFault) -> InjectedFault:
        pid = self.start_copier(seconds=fault.lasts_s)
        if fault.kind is Fault.SECOND_OWNER:
            return InjectedFault(proof=self._environment.owners.end_leases)
        worker_id = self.running().get(pid, "")
        return InjectedFault(
            proof=partial(self._environment.owners.beside, pid, worker_id, self._environment.destination_ports)
        )

    def _kill_owner(self, fault: ScheduledFault) -> InjectedFault | None:
        pid = self._picked_owner(fault)
        if pid is None:
            return None
        self.copiers.kill(pid)
        self._next_at = time.monotonic() + fault.lasts_s  # delays the supervisor
        return InjectedFault()

    def _cut_off_owner(self, fault: ScheduledFault) -> InjectedFault | None:
        pid = self._picked_owner(fault)
        return None if pid is None else self._environment.cut_off(pid)

    def _picked_owner(self, fault: ScheduledFault) -> int | None:
        """Return the process of a worker that holds a lease, after waiting for the first; None after a timeout."""
        owners: list[int] = []

        def has_owner() -> bool:
            names = {worker_of(token) for token in self._environment.owners.tokens().values()}
            owners[:] = [pid for pid, name in self.running().items() if name in names]
            return bool(owners)

        return owners[int(fault.pick * len(owners))] if until(has_owner, OWNERS_TIMEOUT_S) else None

    def _freeze_all(self) -> InjectedFault | None:
        before, pids = self._environment.owners.awaited(), list(self.running())
        if not before or not pids:
            return None
        freeze(pids)  # they send no heartbeat, and the supervisor starts others
        return InjectedFault(repair=partial(thaw, pids), proof=partial(self._environment.owners.taken_over, before))

    # --- moves -------------------------------------------------------------------------------------------------------

    def _drain_busiest(self) -> None:
        """Replace the worker with most partitions; it is ended after its partitions were reassigned."""
        names = list(self._placed.values())
        busiest = max(set(names), key=names.count, default="")
        self._pool = {number: (name, since) for number, (name, since) in self._pool.items() if name != busiest}
        self._end_later([busiest], DRAIN_S)

    def _rotate(self) -> None:
        """Assign every partition to another worker of the pool."""
        following = _following(name for name, _ in self._pool.values())
        self._placed = {key: following.get(name, name) for key, name in self._placed.items()}

    def _assign_otherwise(self, seconds: float) -> None:
        """Publish assignments that differ from the supervisor's, in turn with it: a second assigner with other placements."""
        deadline, self._pass_s = time.monotonic() + seconds, SLOW_PASS_S
        try:
            while time.monotonic() < deadline:
                with suppress(CoordinationUnavailableError):
                    names, placed = self._alive_in_pool(self._alive()), dict(self._placed)
                    plans = {name: self.plan(keys={key for key, worker in placed.items() if worker == name}) for name in names}
                    following = _following(names)
                    self._write_assignments({following[name]: plan for name, plan in plans.items()})
                time.sleep(SLOW_PASS_S)
        finally:
            self._pass_s = POLL_S

    def _end_later(self, names: Collection[str], seconds: float) -> None:
        def end() -> None:
            while not self._over.is_set():
                with suppress(CoordinationUnavailableError):
                    jobs.end_workers(self._environment.redis.url, names, secrets=SECRETS)
                    return
                self._over.wait(END_EVERY_S)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()

    # --- workers -----------------------------------------------------------------------------------------------------

    def start_copier(self, *, seconds: float | None = None, topics: Collection[str] | None = None) -> int:
        """Start a worker in addition to the pool that copies everything until it is ended; return its process id."""
        name, pid = self._start_worker()
        self._write_assignments({name: self.plan(topics=topics)})
        if seconds is not None:
            self._end_later([name], seconds)
        return pid

    def _start_worker(self) -> tuple[str, int]:
        name = worker_id_for(next(self._workers), uuid.uuid4().hex[:12])
        setup = jobs.setup_worker(
            name, redis_url=self._environment.redis_url, secrets=SECRETS, lease_ttl_ms=self._tuning.lease_ttl_ms
        )
        pid = self.copiers.copy(setup)
        with self._lock:
            self._running[pid] = name
        return name, pid

    def running(self) -> dict[int, str]:
        """Return the ids of the workers that have not ended, by process id."""
        with self._lock:
            self._running = {pid: name for pid, name in self._running.items() if psutil.pid_exists(pid)}
            return dict(self._running)

    def plan(self, *, topics: Collection[str] | None = None, keys: Collection[str] | None = None) -> CopyPlan:
        """Return a plan of all partitions that are to be copied, or of some of them."""
        wanted = self._topics if topics is None else topics
        return CopyPlan(
            link_id=self._link, revision=1, source=self._addresses["source"], destination=self._addresses["destination"],
            assignments=tuple(
                assignment
                for topic in wanted
                if self._wanted[topic]
                for assignment in self.assignments[topic]
                if keys is None or assignment.key in keys
            ),
            tuning=self._tuning, signing_keys=SIGNER.texts(),
        )  # fmt: skip

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        wanted = {topic: self._topics[topic] for topic in topics}
        source = Ends(self._environment.source.cluster.client(), wanted)
        mirror = Ends(self._environment.destination.cluster.client(), wanted)
        deadline = time.monotonic() + timeout_s
        while (there := source.all()) is None or there != (here := mirror.all()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"The mirrors are not in sync: source {there}, mirror {here if there else None}.")
            time.sleep(POLL_S)

    def fail_over(self, topic: str) -> None:
        self._stop(topic, StopReason.FAILOVER)

    def promote(self, topics: Collection[str], *, timeout_s: float) -> None:
        del timeout_s  # each stop has its own
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(partial(self._stop, reason=StopReason.PROMOTE), topics))

    def promote_during_move(self, topic: str, *, wait_until_drained: Callable[[], object]) -> InjectedFault | None:
        """Here a promotion is the wait for lag zero and the fence; its states are the console's."""
        names = [lease_name(assignment.key) for assignment in self.assignments[topic]]
        with self._environment.owners.followed() as trails:
            until(lambda: all(name in trails for name in names), OWNERS_TIMEOUT_S)
            self._rotate()
            moved = until(lambda: changed_workers(trails, names), CHANGE_TIMEOUT_S)
        wait_until_drained()
        self._await_copied(topic)
        self._stop(topic, StopReason.PROMOTE)
        return InjectedFault(proof=lambda: moved)

    def _await_copied(self, topic: str) -> None:
        """Wait until the mirror has what its source has now; raise TimeoutError otherwise."""
        counts = {topic: self._topics[topic]}
        source, mirror = (
            Ends(side.cluster.client(), counts) for side in (self._environment.source, self._environment.destination)
        )
        wanted: dict[tuple[str, int], int] = {}

        def has_copied() -> bool:
            wanted.update({} if wanted else source.all() or {})
            here = mirror.all() or {}
            return bool(wanted) and all(here.get(place, -1) >= end for place, end in wanted.items())

        if not until(has_copied, DRAIN_TIMEOUT_S):
            raise TimeoutError(f"Mirror {topic} did not reach {wanted} in {DRAIN_TIMEOUT_S:.0f} s.")

    def stopped(self, topic: str) -> dict[int, int]:
        return self._stopped.get(topic, {})

    def phases(self) -> dict[str, str]:
        """Return what the workers report, by partition: the phase, or the code of an error."""
        return {report.key: report.error_code or report.phase for report in self.reports()}

    def reports(self) -> list[PartitionProgress]:
        """Return the reports of the workers."""
        return jobs.read_progress(self._environment.redis.url, self._link, SIGNER)

    def write_orders(self) -> None:
        """Assign the partitions to the pool's workers with a recent heartbeat, and write the assignments."""
        alive = self._alive()
        workers = [PoolWorker(worker_id=name) for name, _ in self._pool.values() if name in alive]
        partitions = [
            PartitionLoad(key=assignment.key, link_id=self._link, worker_id=self._placed.get(assignment.key, ""))
            for assignment in self.plan().assignments
        ]
        self._placed = {partition.key: partition.worker_id for partition in partitions} | assign(partitions, workers)
        shares = {name: {key for key, worker in self._placed.items() if worker == name} for name in alive}
        self._write_assignments({name: self.plan(keys=shares[name]) for name in self._alive_in_pool(alive)})

    def _alive(self) -> set[str]:
        """Return the workers with a recent heartbeat."""
        return {beat.worker_id for beat in jobs.read_workers(self._environment.redis.url, secrets=SECRETS) if beat.alive}

    def _alive_in_pool(self, alive: Collection[str]) -> set[str]:
        """Return the workers to assign partitions to: those of the pool, not those started in addition."""
        return {name for name, _ in self._pool.values()} & set(alive)

    def _write_assignments(self, plans: Mapping[str, CopyPlan]) -> None:
        applied = dict.fromkeys(plans, 1)  # so that an empty plan is written even to a worker without an assignment
        jobs.write_assignments(self._environment.redis.url, self._link, plans, secrets=SECRETS, applied=applied)

    def _note_failures(self) -> None:
        self._failed |= {report.key: report for report in self.reports() if report.phase is PartitionPhase.FAILED}

    def failures(self) -> Iterator[Finding]:
        self._note_failures()
        for topic, assignments in self.assignments.items():
            for assignment in assignments:
                if (failed := self._failed.get(assignment.key)) is not None:
                    detail = f"{failed.error_code}: {failed.error_message}"
                    yield Finding(kind="failed", topic=topic, partition=assignment.partition, offset=-1, detail=detail)

    def crashes(self) -> Iterator[Finding]:
        return self.copiers.crashes()

    def log_tails(self) -> str:
        return self.copiers.log_tail()

    def _stop(self, topic: str, reason: StopReason) -> None:
        self._wanted[topic] = False
        with suppress(CoordinationUnavailableError):
            self.write_orders()
        stop = MirrorStop(
            source=self._addresses["source"], destination=self._addresses["destination"],
            assignments=self.assignments[topic], reason=reason, generation=STOP_GENERATION,
            source_topic=topic, mirror_topic=topic, source_configs={"cleanup.policy": "delete", "retention.ms": "-1"},
        )  # fmt: skip
        self._stopped[topic] = self.copiers.stop_mirror(stop)

    def _supervise(self) -> None:
        while not self._over.wait(self._pass_s):
            with suppress(CoordinationUnavailableError):
                self.write_orders()
                self._note_failures()
            with suppress(CoordinationUnavailableError):
                self._replace_workers()

    def _replace_workers(self) -> None:
        now, pids, alive = time.monotonic(), {name: pid for pid, name in self.running().items()}, self._alive()
        for number in range(POOL):
            name, since = self._pool.get(number, ("", 0.0))
            silent = name not in alive and now - since > BEGIN_S
            if (name in pids and not silent) or now < self._next_at:
                continue
            if name:
                self._end_later([name], 0.0)  # a frozen worker reads it when it is thawed
            self._pool[number] = (self._start_worker()[0], now)

    def _set_up(self, number: int, topic: str) -> tuple[PartitionAssignment, ...]:
        setup = MirrorSetup(
            link_id=self._link, mirror_id=str(number), source=self._addresses["source"],
            destination=self._addresses["destination"], source_topic=topic, mirror_topic=topic,
        )  # fmt: skip

        def assignments(partitions: int, topic_id: str) -> tuple[PartitionAssignment, ...]:
            return tuple(
                PartitionAssignment(
                    mirror_id=str(number), partition=partition, source_topic=topic, mirror_topic=topic,
                    source_topic_id=topic_id, producer_id=producer_id_for(1, number, partition),
                )
                for partition in range(partitions)
            )  # fmt: skip

        for left in reversed(range(SETUP_ATTEMPTS)):
            try:
                created = jobs.set_up_mirror_topic(setup, assignments_factory=assignments)
            except LinkEngineError:  # brokers learn of new topics one after the other; the product retries as well
                if not left:
                    raise
            else:
                break
        return assignments(created.partitions, created.source_topic_id)


def _following(names: Iterable[str]) -> dict[str, str]:
    """Return the next worker of each, in a circle."""
    ordered = sorted(names)
    return dict(zip(ordered, ordered[1:] + ordered[:1], strict=True))
